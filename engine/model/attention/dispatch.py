"""Dispatch: which kernel computes the attention of a layer. This file alone decides it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import Tensor

from decodescope.engine.core.spec import ModelSpec

from .attention import AttentionRequest, attention_by_head, causal_attention, eager_attention, fused_attention
from .extra_kv import ExtraKV
from .groups import attention_by_group_size
from .per_head import HeadStore
from .segments import RopeMode, Segment, attend_segments


class LayerEntries(Protocol):
    """The cache of one layer, as kernels read it: `LayerStore` in `model/stores`."""

    @property
    def n(self) -> int:
        """Committed entries; the pending ones follow them."""
        ...

    @property
    def m(self) -> int:
        """Pending entries."""
        ...

    @property
    def k(self) -> Tensor:
        """Keys, float [B, H_kv, n + m, D]."""
        ...

    @property
    def v(self) -> Tensor:
        """Values, in the same shape."""
        ...

    @property
    def heads(self) -> HeadStore | None:
        """Keys and values by head, where heads hold different numbers of entries."""
        ...

    @property
    def is_segmented(self) -> bool:
        """True if the entries are in segments, such as packed and plain ones."""
        ...

    def segments(self, mask: Tensor | None) -> list[Segment]:
        """All entries as segments; mask: bool [B or 1, H_kv or 1, T, n + m], what each row sees; None: everything."""
        ...


class LayerInput(Protocol):
    """What the rows of a pass may read in one layer: `LayerRead` in `model/forward`. Each part is made on request."""

    @property
    def queries(self) -> Mapping[RopeMode, Tensor]:
        """Queries by rotation, float [B, H_kv, g, T, D]; "original" comes first and is always there."""
        ...

    @property
    def store(self) -> LayerEntries | None:
        """The cache, with the rows of the pass already appended; None: the pass has no cache."""
        ...

    @property
    def fresh(self) -> Tensor | None:
        """Without a cache: keys and values of the pass alone, float [2, B, H_kv, T, D]."""
        ...

    @property
    def outside(self) -> Sequence[ExtraKV]:
        """Entries without tokens, in addition to those of the text."""
        ...

    def mask(self, padded: bool = True) -> Tensor | None:
        """What each row sees, bool [B or 1, H_kv or 1, T, n + m]; None: everything. padded: as for `PassMasks.mask`."""
        ...

    def is_causal_square(self) -> bool:
        """True if several rows read only themselves, causally, and nothing is hidden."""
        ...

    def moved_sinks(self) -> list[Segment] | None:
        """The entries, if sinks are at other positions than in the text; None: they are not."""
        ...

    def sparse_segments(self) -> list[Segment] | None:
        """The entries that a policy chose for these queries; None: it did not choose."""
        ...

    def extra(self) -> list[Segment]:
        """The entries without tokens, and the prefix that the pass brings along."""
        ...


def attend(spec: ModelSpec, i: int, read: LayerInput, wanted: AttentionRequest | None) -> Tensor:
    """Attention of layer i, float [B, H_kv, g, T, D]. wanted: the weights that a probe asks for.

    Segments are used if the entries of a layer are not in one piece or need queries of several rotations. Cases: sinks that
    moved, entries that a policy chose, a store in segments, entries without tokens, a prefix. Everything else is read at once.
    """
    segments = _segments(read)
    if segments is None or read.store is None:
        return _attend_at_once(spec, i, read, wanted)
    segments, slots = [*segments, *read.extra()], read.store.n + read.store.m
    return attend_segments(
        segments, read.queries, spec.score_scale, spec.attn_cap, slots=slots, wanted=wanted
    )


def _segments(read: LayerInput) -> list[Segment] | None:
    """The entries of the text in segments; None: they can be read at once."""
    store = read.store
    if store is None:
        return None
    if len(read.queries) > 1 and (sinks := read.moved_sinks()) is not None:
        return sinks
    if (chosen := read.sparse_segments()) is not None:
        return chosen
    if store.is_segmented or read.outside or "unrotated" in read.queries:
        return store.segments(read.mask())
    return None


def _attend_at_once(spec: ModelSpec, i: int, read: LayerInput, wanted: AttentionRequest | None) -> Tensor:
    """Attention over all entries of a store, or over those of the pass alone, by one of five kernels."""
    q = read.queries["original"]
    store = read.store
    scale = spec.score_scale
    visible_weights = wanted is not None or spec.attn_cap is not None  # no fused kernel gives or caps them
    if store is not None and store.heads is not None and not visible_weights:
        return attention_by_head(q, store.heads, store.n, store.m, read.mask(padded=False), scale)
    if store is not None:
        k, v = store.k, store.v
    else:
        assert read.fresh is not None
        k, v = read.fresh
    if visible_weights:
        return eager_attention(q, k, v, read.mask(), scale, spec.attn_cap, wanted)
    causal, groups = read.is_causal_square(), spec.uneven_at(i)
    if groups is not None:
        return attention_by_group_size(groups, q, k, v, None if causal else read.mask(), scale, causal=causal)
    return causal_attention(q, k, v, scale) if causal else fused_attention(q, k, v, read.mask(), scale)
