"""PassShape: the sizes of a forward pass, from which its cost follows. No torch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction

Held = int | Sequence[int] | Sequence[Sequence[int]]  # entries: one number, by layer, or by layer and KV head


@dataclass(slots=True)  # a frozen one takes four times as long to make
class PassShape:
    """A pass that feeds `tokens` rows per sequence on `held` entries.

    held:    entries before the pass, one number, one per layer or one per layer and KV head (policies, exits)
    logits:  rows per sequence that reach the head; 0: no head
    batch:   sequences;  again: entries that another sequence has loaded
    pairs:   true entries of the attention mask per sequence, one number or one per layer; None: those of the model's own mask
    attn_layers, ffn_layers: sub-layers that run, as layers or as a count from the first; None: all
    propagated, copied: layers without attention whose keys and values are computed from an exit state, or copied from below
    heads, kv_heads: open query and KV heads per layer; None: all that the model has there
    weight_bits: bits per weight, scales included, where the model records none;  head_bits: the head's, None: the same
    act_bits: bits per activation
    kv_bits: bits per number of a new entry;  read_bits: average bits per number of the entries that are read; None: the same
    dequant: charge two operations per weight for unpacking
    fused:   the scores of the attention do not go through memory
    bounds:  by layer, pages whose bounds are read first
    rows:    by layer, how many rows run it, the last ones of the pass; if fewer than all, the other rows are entries before
             them (None: all)
    ffn_rows: rows of its feed-forward block, if not as many;  entering: how many rows leave entries, if others than those that
              run
    """

    tokens: int
    held: Held
    _: KW_ONLY
    logits: int = 1
    batch: int = 1
    pairs: int | Sequence[int | Fraction] | None = None
    attn_layers: Collection[int] | int | None = None
    ffn_layers: Collection[int] | int | None = None
    propagated: Collection[int] | int = 0
    copied: Collection[int] | int = 0
    again: int = 0
    heads: Sequence[int] | None = None
    kv_heads: Sequence[int] | None = None
    weight_bits: float = 16
    head_bits: float | None = None
    act_bits: float = 16
    kv_bits: float = 16
    read_bits: float | None = None
    dequant: bool = False
    fused: bool = True
    bounds: Sequence[int] | None = None
    rows: Sequence[int] | None = None
    ffn_rows: Sequence[int] | None = None
    entering: Sequence[int] | None = None

    @property
    def differs_by_layer(self) -> bool:
        """Whether any field can make one layer cost more than another, apart from the lengths of the caches."""
        sub_layers = self.attn_layers is self.ffn_layers is self.heads is self.kv_heads is None
        return not (sub_layers and self.bounds is self.rows is self.ffn_rows is self.entering is None)
