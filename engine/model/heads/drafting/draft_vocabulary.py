"""DraftVocabularyHead: base of nets that read several layers of the target and guess the tokens of a draft vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self, cast

import torch
from torch import Tensor

from ...layers.matrix import linear, pack, unpack
from ...layers.vocabulary import Vocabulary
from ..base import Head, HeadLinear

DEEP = 16  # layers from which on a target counts as deep


def fused_layers(n_layers: int) -> tuple[int, int, int]:
    """The layers of a target that have their inputs read, if a net names none: low, middle and high.

    In targets of 16 layers and more they are those of EAGLE-3, 2, M / 2 and M - 3. In smaller targets M - 3 would leave
    out a good part of all layers (three of eight), so the high one is the last: 2, 4 and 7 of eight.
    """
    high = n_layers - 3 if n_layers >= DEEP else n_layers - 1
    return min(2, n_layers // 4), n_layers // 2, high


class DraftVocabularyHead(Head):
    """Base of nets with logits for the `kept` ids that `mask` (float [vocab]) marks, in ascending order; others have none.

    layer_ids: the layers of the target that have their inputs read; None: those of `fused_layers`. The number of the target's
    layers means the output of the last one, before the final norm.
    """

    mask: Tensor

    def __init__(self, **shape: int) -> None:
        super().__init__(**shape)
        self.layer_ids: tuple[int, ...] | None = None
        self.register_buffer("mask", (torch.arange(shape["vocab"]) < shape["kept"]).float())
        self._words: tuple[tuple[Tensor, int], Tensor, Tensor] | None = None

    def places(self, n_layers: int) -> tuple[int | Literal["final"], ...]:
        """The places of a target of so many layers that have their states read, one after the other."""
        return self.layer_ids or fused_layers(n_layers)

    def _copy_metadata(self, head: Self) -> Self:
        head.layer_ids = self.layer_ids
        return super()._copy_metadata(head)

    def set_draft_vocabulary(self, ids: Sequence[int]) -> None:
        """Make `ids`, `kept` different ones, the draft vocabulary."""
        self.mask.zero_()[list(ids)] = 1
        assert int(self.mask.sum()) == self.shape["kept"], "the shape says how many ids are kept"

    @property
    def ids(self) -> Tensor:
        """int64 [kept]: the draft vocabulary, ascending."""
        return self.mask.nonzero()[:, 0]

    def choices(self, features: Tensor, words: Tensor) -> Tensor:
        """Logits [..., kept] of outputs [..., d], words being rows of the unembedding [kept, d]."""
        return linear(features, words)

    def rows(self, decoder: Vocabulary) -> tuple[Tensor, Tensor]:
        """int64 [K] and float [K, d]: the ids of the draft vocabulary that the target may write, and their rows of the
        unembedding. Gathered once for a target."""
        key = decoder.head, decoder.vocab
        if self._words is None or self._words[0][0] is not key[0] or self._words[0][1] != key[1]:
            ids = self.ids
            usable = ids < decoder.vocab
            table = unpack(decoder.head)[ids[usable]] if self.words is None else self.own_vocabulary[usable]
            self._words = key, ids[usable], pack(table)
        return self._words[1:]

    @property
    def own_vocabulary(self) -> Tensor:
        """float [kept, d]: the rows of its own vocabulary matrix, if it has one."""
        assert self.words is not None
        return unpack(cast(HeadLinear, self.words[0]).weight)

    def _logits(self, features: Tensor, decoder: Vocabulary, first: int) -> Tensor:
        """Logits [..., V] of outputs [..., d], -inf for what is not in the draft vocabulary; half types come out as float32."""
        ids, words = self.rows(decoder)
        logits = self.choices(features, words)
        return scatter_logits(
            logits if logits.dtype in (torch.float32, torch.float64) else logits.float(), ids, decoder.vocab
        )


def scatter_logits(logits: Tensor, ids: Tensor, vocab: int) -> Tensor:
    """Logits [..., vocab] that are `logits` [..., K] at `ids` (int64 [K]) and -inf elsewhere."""
    return logits.new_full((*logits.shape[:-1], vocab), -torch.inf).index_copy_(-1, ids, logits)
