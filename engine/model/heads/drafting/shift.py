"""Which token a head sees and which it guesses: the one table that training and drafting both go by."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class HeadShift:
    """Offsets from t, the token of the target's state that a head reads.

    reads: offsets of the tokens with embeddings that it reads too;  known: the last token that is certain, or drafted before,
    when it guesses;  says: the token that it guesses
    """

    reads: tuple[int, ...]
    known: int
    says: int

    @property
    def last(self) -> int:
        """The last token that the head reads directly, by its state or its embedding."""
        return max((0, *self.reads))

    def rows(self, length: int) -> int:
        """The number of t in a text of `length` tokens with token t + says inside the text."""
        return max(0, length - self.says)

    def align(self, x: Tensor, offset: int) -> Tensor:
        """The rows for token t + offset, for every such t: x [B, T, ...] -> [B, rows, ...]."""
        return x[:, offset : offset + self.rows(x.shape[1])]

    def align_target(self, x: Tensor) -> Tensor:
        """The target's rows with the distribution of token t + says, one row before it: [B, T, ...] -> [B, rows, ...]."""
        return self.align(x, self.says - 1)


def head_shifts(kind: str, heads: int = 1) -> list[HeadShift]:
    """The table, one line for each head; the k-th (from 0) belongs to the draft's level k.

    When the heads of Medusa, Hydra, Clover, EAGLE, MTP, blockwise decoding, ReDrafter and the MLP speculator are asked, the
    target has read up to t, and the root, t + 1, is known. Kangaroo reads the root itself, so it guesses t + 1. EAGLE, FSPAD,
    MTP and Kangaroo have one net for every level, and so has EAGLE-3, which is trained on several. PPD's prompt tokens,
    PaSS's look-ahead tokens and BiTA's mask tokens come after t and know nothing of t + 1, like Medusa's heads;
    ParallelSpec's and P-EAGLE's masks see the slot of t, which holds the root, and DFlash's block begins with the root.
    DSpark's places are told the token before them, too.
    """
    if kind in ("medusa", "blockwise", "ppd", "look_ahead_tokens", "bita"):
        return [HeadShift((), 1, 2 + k) for k in range(heads)]
    if kind in ("hydra", "mlp_speculator", "redrafter", "clover"):
        return [HeadShift(tuple(range(1, k + 2)), k + 1, 2 + k) for k in range(heads)]
    if kind in ("eagle", "fspad", "mtp"):
        return [HeadShift((1,), 1, 2)]
    if kind in ("parallelspec", "p_eagle", "dflash"):
        return [HeadShift((1,), 1, 2 + k) for k in range(heads)]
    if kind == "dspark":
        return [HeadShift((1, k + 1) if k else (1,), k + 1, 2 + k) for k in range(heads)]
    if kind == "eagle3":
        return [HeadShift((k + 1,), k + 1, 2 + k) for k in range(heads)]
    if kind == "kangaroo":
        return [HeadShift((), 0, 1)]
    known = (
        "medusa, hydra, eagle, eagle3, kangaroo, blockwise, mlp_speculator, redrafter, fspad, parallelspec, clover, dflash, "
        "dspark, p_eagle, mtp, ppd, look_ahead_tokens, bita"
    )
    raise ValueError(f"no heads are called {kind!r}; there are {known}.")
