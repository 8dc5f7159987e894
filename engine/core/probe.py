"""Needs and Probe: what a forward pass is asked to record, and what it recorded. No torch at import time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from .moments import Moments

Attention = Literal["none", "decode", "columns", "rows"]
_ORDER: tuple[Attention, ...] = ("none", "decode", "columns", "rows")


@dataclass(frozen=True)
class Needs:
    """What a component needs from every pass of its lane. The decoder runs the cheapest pass that satisfies the union.

    attention: "none": the fused kernel. "decode": rows in decode, nothing for a prompt. "columns": column sums after prefill,
               rows in decode; eviction scores are computed from these. "rows": full rows in prefill too, which costs memory
               quadratic in the prompt.
    attention_layers: the layers whose attention is wanted; empty: all
    hidden:    residual-stream places: layer numbers (input of that layer; the number of layers means the output of the last
               one, before the final norm) and "final" (after the final norm)
    queries:   how many of the prompt's last queries to keep; a policy may ask for their attention when the prompt ends. Passes
               stay fused
    moments:   the first position from which mean and covariance of the prompt's queries before rotation are wanted; None: not
               wanted
    """

    attention: Attention = "none"
    attention_layers: frozenset[int] = frozenset()
    hidden: frozenset[int | Literal["final"]] = frozenset()
    queries: int = 0
    moments: int | None = None

    def __or__(self, other: Needs) -> Needs:
        attention = _ORDER[max(map(_ORDER.index, (self.attention, other.attention)))]
        asks = [x for x in (self, other) if x.attention != "none"]
        layers: frozenset[int] = frozenset()
        if asks and all(x.attention_layers for x in asks):
            layers = frozenset().union(*(x.attention_layers for x in asks))
        firsts = [x.moments for x in (self, other) if x.moments is not None]
        queries = max(self.queries, other.queries)
        return Needs(attention, layers, self.hidden | other.hidden, queries, min(firsts, default=None))

    def __bool__(self) -> bool:
        return bool(self.hidden) or self.attends

    @property
    def attends(self) -> bool:
        """Whether it needs something from the attention blocks, which then have to run for every row of a pass."""
        return self.attention != "none" or self.queries > 0 or self.moments is not None

    @property
    def decode_needs(self) -> Needs:
        """What remains of it once the prompt has ended."""
        return replace(self, queries=0, moments=None)


def union_of_needs(needs: Iterable[Needs]) -> Needs:
    """What all of them ask for."""
    return reduce(or_, needs, Needs())


@dataclass
class Probe:
    """What one pass left behind, keyed by layer. Filled by the decoder, read by policies, drafters and the recorder.

    rows:    layer -> float32 [B, H_kv, g, T, S]; post-softmax weights of the T fed queries over the S entries of the
             layer's store, committed and pending; not reduced over the group
    columns: layer -> float32 [B, H_kv, S]; prefill only: the rows summed over queries and over the group
    hidden:  layer or "final" -> float [B, T, d_model]
    queries: layer -> float [B, H_kv, g, t, D]; the last t fed queries, as many as are asked for (all behind the prefill)
    moments: layer -> Moments of the fed queries before rotation
    """

    needs: Needs
    rows: dict[int, Tensor] = field(default_factory=dict)
    columns: dict[int, Tensor] = field(default_factory=dict)
    hidden: dict[int | str, Tensor] = field(default_factory=dict)
    queries: dict[int, Tensor] = field(default_factory=dict)
    moments: dict[int, Moments] = field(default_factory=dict)

    def wants_attention(self, layer: int, prefill: bool) -> bool:
        """Whether the attention of `layer` was asked for, in a pass that reads a prompt or in another."""
        asked, attention = self.needs.attention_layers, self.needs.attention
        return (
            attention != "none" and not (prefill and attention == "decode") and (not asked or layer in asked)
        )

    def attention_by_entry(self, layer: int) -> Tensor | None:
        """float32 [B, H_kv, S]: the attention that the pass gave to each entry of `layer`, summed over rows and group.

        None: nobody asked for the attention of that layer, or none of it ran.
        """
        rows = self.rows.get(layer)
        return self.columns.get(layer) if rows is None else rows.sum((2, 3))
