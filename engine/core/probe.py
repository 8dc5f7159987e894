"""Needs and Probe: what a forward pass is asked to leave behind, and what it left. No torch at import time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Attention = Literal["none", "columns", "rows"]
_ORDER: tuple[Attention, ...] = ("none", "columns", "rows")


@dataclass(frozen=True)
class Needs:
    """What a component asks of every pass of its lane. The decoder runs the cheapest pass that satisfies the union.

    attention: "none": the fused kernel. "columns": column sums after prefill, rows in decode; what eviction scores
               are made of. "rows": full rows in prefill too, which costs memory quadratic in the prompt.
    attention_layers: the layers whose attention is wanted; empty: all
    hidden:    residual-stream places: layer numbers (input of that layer) and "final" (after the final norm)
    """

    attention: Attention = "none"
    attention_layers: frozenset[int] = frozenset()
    hidden: frozenset[int | Literal["final"]] = frozenset()

    def __or__(self, other: Needs) -> Needs:
        attention = max(self.attention, other.attention, key=_ORDER.index)
        asks = [x for x in (self, other) if x.attention != "none"]
        layers: frozenset[int] = frozenset()
        if asks and all(x.attention_layers for x in asks):
            layers = frozenset().union(*(x.attention_layers for x in asks))
        return Needs(attention, layers, self.hidden | other.hidden)

    def __bool__(self) -> bool:
        return self.attention != "none" or bool(self.hidden)


def union(needs: Iterable[Needs]) -> Needs:
    """What all of them ask for."""
    return reduce(or_, needs, Needs())


@dataclass
class Probe:
    """What one pass left behind, keyed by layer. Filled by the decoder, read by policies, drafters and the recorder.

    rows:    layer -> float32 [B, H_kv, g, T, S]; post-softmax weights of the T fed queries over the S entries of the
             layer's store, committed and pending; not reduced over the group
    columns: layer -> float32 [B, H_kv, S]; prefill only: the rows summed over queries and over the group
    hidden:  layer or "final" -> float [B, T, d_model]
    """

    needs: Needs
    rows: dict[int, Tensor] = field(default_factory=dict)
    columns: dict[int, Tensor] = field(default_factory=dict)
    hidden: dict[int | str, Tensor] = field(default_factory=dict)

    def wants_attention(self, layer: int) -> bool:
        """Whether the attention of `layer` was asked for."""
        asked = self.needs.attention_layers
        return self.needs.attention != "none" and (not asked or layer in asked)
