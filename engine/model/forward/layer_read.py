"""LayerRead: what the rows of one pass may read in one layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ..attention.extra_kv import ExtraKV
from ..attention.segments import RopeMode, Segment
from ..layers.stack import LayerStack
from ..stores.cache import LayerStore
from .masks import PassMasks


@dataclass(slots=True)
class LayerRead:
    """The input of `attention/dispatch.py` for one layer. Masks and segments are made when they are asked for.

    layer:   its number
    queries: by rotation, float [B, H_kv, g, T, D]; "original" comes first
    store:   its cache, the rows of the pass appended; None: the pass has no cache
    fresh:   without a cache, keys and values of the pass, float [2, B, H_kv, T, D]
    outside: entries without tokens
    """

    layer: int
    stack: LayerStack
    sight: PassMasks
    queries: dict[RopeMode, Tensor]
    store: LayerStore | None
    fresh: Tensor | None
    outside: Sequence[ExtraKV]

    def mask(self, padded: bool = True) -> Tensor | None:
        """What each row sees, as in `PassMasks.mask`."""
        return self.sight.mask(self.layer, self.store, padded)

    def is_causal_square(self) -> bool:
        """True if the layer sees a causal square, as in `PassMasks.is_causal_square`."""
        return self.sight.is_causal_square(self.layer, self.store)

    def moved_sinks(self) -> list[Segment] | None:
        """Sinks for the queries that were rotated for them, and the other entries; None: no sink moved."""
        sight = self.sight
        i = self.layer
        rope = self.sight.rope
        if rope == "original" or rope not in self.queries or self.store is None:
            return None
        table, middle = self.stack.rope_of(i), sight.middle_read(i)
        segments = sight.segments(i, self.store, table)
        if middle is not None:
            between = sight.middle_segment(self.store, self.queries["inserted"], table, middle)
            segments += [] if between is None else [between]
        return segments

    def sparse_segments(self) -> list[Segment] | None:
        """The segments that the layer reads if a policy chooses; None: all that its rows may see, as in a layer with a
        window."""
        board = self.sight.feed.board
        if board is None or self.store is None or self.stack.spec.window(self.layer) is not None:
            return None
        return board.segments(self.layer, self.store, self.queries["original"], self.mask())

    def extra(self) -> list[Segment]:
        """The entries without tokens, and the prefix of the feed."""
        sight, segments = self.sight, list[Segment]()
        if self.outside:
            rope = sight.rope if sight.rope in self.queries else "original"
            segments += sight.extra_segments(self.layer, self.outside, rope)
        if "unrotated" in self.queries:
            segments.append(sight.prefix(self.layer))
        return segments
