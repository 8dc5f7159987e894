"""Masks: what the fed rows of a pass may see in each layer, and the positions of the entries that they see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec

from ..attention.attention import upcast_half
from ..attention.extra_kv import ExtraKV, UnreportedSegment
from ..attention.segments import DenseSegment, RopeMode, Segment
from ..layers.rope import RopeTable, unrotate
from ..stores.cache import LayerStore
from ..stores.sparse_read import gather_chosen, top_mask
from .feed import Feed, MiddleRead


class PassMasks:
    """Masks and distances of one pass over `feed`. Layers with equally many entries in their stores share a mask.

    band: the feed's, None as long as it hides nothing;  rope: how the distance of sinks is counted
    """

    def __init__(self, spec: ModelSpec, feed: Feed):
        self.spec = spec
        self.feed = feed
        self.sinks = feed.sinks
        self.masks: dict[tuple[int, ...], Tensor | None] = {}
        band = feed.band
        self.band = None if band is None or feed.highest <= band.first + band.newest else band
        self.rope: RopeMode = "original"
        if feed.sinks is not None:
            self.rope = "in_cache" if feed.sinks.cap is None else "capped"

    def is_causal_square(self, i: int, store: LayerStore | None) -> bool:
        """True if layer i sees a causal square of several rows: nothing before it, nothing hidden."""
        if self.feed.length == 1 or not self.spec.causal:
            return False
        alone = store is None or (store.n == 0 and store.m == self.feed.length)
        window = self.spec.window(i)
        whole = (
            self.feed.visible is None and not self._has_band(i) and not self._cap_may_hide(self.feed.length)
        )
        return whole and alone and (window is None or window >= self.feed.length)

    def mask(self, i: int, store: LayerStore | None, padded: bool = True) -> Tensor | None:
        """bool [B or 1, H_kv or 1, T, S]: what each fed row may see in layer i; None: everything. padded: where heads hold
        different numbers of entries, the slots after the last of a head count as hidden."""
        T, window = self.feed.length, self.spec.window(i)
        n, m = (0, T) if store is None else (store.n, store.m)
        present = store.present_mask if store is not None and padded else None
        if (
            window is not None
            and n + m <= window
            and (store is None or store.in_order or self.rope == "in_cache")
        ):
            window = None  # nothing is out of reach yet
        key: tuple[int, ...] = (n, m)
        if self.band is not None and store is not None and store.missing is not None:
            key = (n, m, i)  # it holds others than a layer with as many
        if key not in self.masks:
            self.masks[key] = self._visible_mask(n, m, store)
        base = self.masks[key]
        reaches = self._cap_may_hide(n + m)
        banded = self._differs_by_head(i)
        seen = None if self.feed.seen is None or n == 0 else self._committed_mask(store)
        if present is None and window is None and seen is None and not banded and not reaches:
            return base
        mask = (
            torch.ones(1, 1, T, n + m, dtype=torch.bool, device=self.feed.tokens.device)
            if base is None
            else base
        )
        if present is not None:
            mask = mask & F.pad(present, (0, m), value=True)[:, :, None]
        if seen is not None:
            mask = mask & F.pad(seen, (0, m), value=True)
        if banded:
            mask = mask & (self._band_mask(store) | ~self._banded_heads(i, mask.device))
        if reaches:
            assert self.sinks is not None and self.sinks.cap is not None
            mask = mask & (
                (self.positions(store)[:, :, None] < self.sinks.first)
                | (self._text_distances(store) < self.sinks.cap)
            )
        if window is not None:
            mask = mask & (self._query_distances(store) < window)
        return mask

    def _committed_mask(self, store: LayerStore | None) -> Tensor:
        """bool [B or 1, H_kv or 1, T, n]: the committed entries that the feed leaves to each row."""
        seen = self.feed.seen
        assert store is not None and seen is not None
        if isinstance(seen, str):
            return store.positions()[:, :, None] < self.feed.positions[:, None, :, None]
        if seen.shape[1:] != (self.feed.length, store.n):
            raise ValueError(
                f"layer {store.layer}: {store.n} entries are held and {self.feed.length} rows fed, and what they "
                f"see has the shape {list(seen.shape[1:])}: give it for each row and entry."
            )
        return seen[:, None]

    def _has_band(self, i: int) -> bool:
        """True if a band applies to some head of layer i."""
        return self.band is not None and (self.band.heads is None or any(self.band.heads[i]))

    def _differs_by_head(self, i: int) -> bool:
        """True if a band leaves different entries to the heads of layer i."""
        return self.band is not None and self.band.heads is not None and any(self.band.heads[i])

    def _banded_heads(self, i: int, device: torch.device) -> Tensor:
        """bool [H_kv, 1, 1]: the heads of layer i for which the band holds."""
        assert self.band is not None and self.band.heads is not None
        return torch.tensor(self.band.heads[i], device=device)[:, None, None]

    def _band_mask(self, store: LayerStore | None) -> Tensor:
        """bool [B, H_kv or 1, T, S]: the entries that the band leaves to each fed row."""
        assert self.band is not None
        keys = self.positions(store)[:, :, None]
        return (keys < self.band.first) | (keys >= self.feed.positions[:, None, :, None] - self.band.newest)

    def positions(self, store: LayerStore | None) -> Tensor:
        """int64 [B, H_kv or 1, S]: the place in the text of each entry, committed and pending."""
        if store is None:
            return self.feed.positions[:, None]
        pending, committed = store.pending_positions(), store.positions()
        assert pending is not None
        return torch.cat([committed, pending[:, None].expand(-1, committed.shape[1], -1)], 2)

    def has_moved_sinks(self, store: LayerStore | None) -> bool:
        """True if sinks are at other positions than in the text for some row: queries then need a separate rotation for
        them."""
        if self.sinks is None or store is None:
            return False
        if self.sinks.cap is not None:
            return self.feed.highest >= self.sinks.cap
        return self.band is not None or not store.in_order

    def sink_query_positions(self, store: LayerStore) -> tuple[Tensor, int]:
        """The position of each fed row relative to the sinks, int64 [B, T], and an upper bound of it. The sinks are at their
        text positions; with a cap they are at 0, each row at the cap. In a band they come closer from row to row."""
        assert self.sinks is not None
        if self.sinks.cap is not None:
            return torch.full_like(self.feed.positions, self.sinks.cap), self.sinks.cap
        shift = self.feed.shift
        highest = store.n + store.m + shift  # a chain is the deepest tree
        if self.band is not None:
            return self.feed.positions.clamp(max=self.band.first + self.band.newest) + shift, highest
        pending = store.pending_positions()
        assert pending is not None
        if store.heads is not None:
            raise ValueError(
                f"layer {store.layer}: its KV heads hold different numbers of entries, and places in a cache are counted for "
                "all heads alike: let a policy keep as many in each, or count places in the text (rope = original)."
            )
        return self.feed.positions - pending[
            :, :1
        ] + store.n + shift, highest  # pending rows are right after what is held

    def segments(self, i: int, store: LayerStore, rope: RopeTable) -> list[Segment]:
        """The entries of a store that is `parted`: sinks, for queries rotated to `far`, and the others, for the text's."""
        assert self.sinks is not None
        mask = self.mask(i, store)
        count = min(self.sinks.first, store.n + store.m)
        cap = self.sinks.cap
        seen, rest = (None, None) if mask is None else (mask[..., :count], mask[..., count:])
        k, v = store.k[:, :, :count], store.v[:, :, :count]
        near = self._first_near_slot(i, store, count)  # what is older than that no row sees
        rest = None if rest is None else rest[..., near - count :]
        others = DenseSegment(store.k[:, :, near:], store.v[:, :, near:], mask=rest, first=near)
        if cap is None:
            return [DenseSegment(k, v, mask=seen, rope=self.rope), others]
        shift = self.feed.shift
        home = unrotate(k, rope, torch.arange(count, device=k.device) + shift, count + shift)
        if (
            self.feed.highest - self.feed.length + 1 >= cap + count - 1
        ):  # no row is nearer than the cap to any of them
            return [DenseSegment(home, v, mask=seen, rope=self.rope), others]
        away = self._text_distances(store)[..., :count] >= cap
        close, away = (~away, away) if seen is None else (seen & ~away, seen & away)
        return [DenseSegment(home, v, mask=away, rope=self.rope), DenseSegment(k, v, mask=close), others]

    def _first_near_slot(self, i: int, store: LayerStore, count: int) -> int:
        """The first slot after the `count` sinks that some row sees as near; also recorded in the feed's board."""
        assert self.sinks is not None
        if self.sinks.cap is None or self.band is not None or not store.in_order:
            return count
        near = max(count, self.feed.highest - self.feed.length + 2 - self.sinks.cap)
        if near > count and self.feed.board is not None and self.middle_read(i) is None:
            slots = torch.arange(store.n, device=store.kv.device)
            read = (slots < count) | (slots >= near)
            self.feed.board.chosen[i] = read.expand(*store.kv.shape[1:3], -1), 1
        return near

    def middle_read(self, i: int) -> MiddleRead | None:
        """What the rows of a pass read in layer i of the entries that are neither first nor near."""
        middle = None if self.sinks is None or self.feed.band is not None else self.sinks.middle
        return middle if middle is not None and i >= middle.layer and self.spec.window(i) is None else None

    def middle_segment(
        self, store: LayerStore, q: Tensor, rope: RopeTable, middle: MiddleRead
    ) -> Segment | None:
        """The entries of the middle that are read; q: float [B, H_kv, g, T, D], rotated to `away`. To choose them, all keys
        between are rotated to position 0. Nothing has left the store."""
        assert (
            self.sinks is not None
            and self.sinks.cap is not None
            and store.in_order
            and self.feed.seen is None
        )
        begin, last = min(self.sinks.first, store.n + store.m), self.feed.highest - self.sinks.cap + 1
        end = last if last <= store.n else store.n + store.m
        if end - begin < middle.entries:
            return None
        far = self._text_distances(store)[..., begin:end] >= self.sinks.cap  # [B, H_kv or 1, T, U]
        base = self._feed_mask(store.n, store.m)
        far = far if base is None else far & base[..., begin:end]
        far = far & (far.sum(-1, keepdim=True) >= middle.entries)
        places = self.positions(store)[0, 0, begin:end]
        shift = self.feed.shift
        home = unrotate(store.k[:, :, begin:end], rope, places + shift, self.feed.highest + shift)
        scores = (upcast_half(q) @ upcast_half(home)[:, :, None].mT).masked_fill(~far[:, :, None], -torch.inf)
        chosen = top_mask(scores, middle.entries)
        taken = gather_chosen(chosen, chosen.flatten(2, 3).any(2))
        if taken is None:
            return None
        at, mask = taken
        k = home.gather(2, at[..., None].expand(-1, -1, -1, home.shape[3]))
        return DenseSegment(
            k, store.gather_entries(at + begin)[1], mask=mask, rope="inserted", slots=at + begin
        )

    def extra_segments(self, i: int, beside: Sequence[ExtraKV], rope: RopeMode) -> list[Segment]:
        """What layer i attends to in addition to the entries of the text. All of it is visible to every row, whatever a window
        or a band hides. rope: as for `ExtraKV.segment`; with a cap it applies to rows that are at least as far away."""
        segments = [x.segment(i, len(self.feed.tokens), rope) for x in beside]
        if rope != "capped":
            return segments
        assert self.sinks is not None and self.sinks.cap is not None
        away = (self.feed.positions >= self.sinks.cap)[:, None, :, None]
        parts: list[Segment] = []
        for x, of in zip(segments, beside, strict=True):
            mask = away.expand(-1, -1, -1, of.entries)
            parts += (
                [replace(x, mask=mask), replace(x, mask=~mask, rope="original")] if x.rope == rope else [x]
            )
        return parts

    def prefix(self, i: int) -> Segment:
        """The feed's prefix in layer i, which its slots see and no other row."""
        given, (batch, T) = self.feed.prefix, self.feed.tokens.shape
        assert given is not None
        k, v = given[i][:, None].expand(-1, batch, -1, -1, -1)
        slots = torch.arange(T, device=k.device) >= T - self.feed.slots
        return UnreportedSegment(
            k=k, v=v, mask=slots[None, None, :, None].expand(1, 1, T, k.shape[2]), rope="unrotated"
        )

    def _cap_may_hide(self, entries: int) -> bool:
        """True if a cap may hide some of `entries` entries: those that are not sinks and are at least as far away as the
        cap."""
        sinks = self.sinks
        return (
            sinks is not None
            and sinks.cap is not None
            and self.band is None
            and entries > sinks.first + sinks.cap
        )

    def _text_distances(self, store: LayerStore | None) -> Tensor:
        """int64 [B, H_kv or 1, T, S]: the distance from each fed row back to each entry in the text."""
        return self.feed.positions[:, None, :, None] - self.positions(store)[:, :, None]

    def _query_distances(self, store: LayerStore | None) -> Tensor:
        """`_text_distances`, except for sinks at other positions."""
        behind = self._text_distances(store)
        if store is None or self.sinks is None or not self.has_moved_sinks(store):
            return behind
        sinks = behind[..., : self.sinks.first]
        if self.sinks.cap is not None:
            closer = sinks.clamp(max=self.sinks.cap)
        else:
            places = self.sink_query_positions(store)[0][:, None, :, None] - self.feed.shift
            closer = (places - torch.arange(sinks.shape[3], device=sinks.device)).expand_as(sinks)
        return torch.cat([closer, behind[..., self.sinks.first :]], 3)

    def _visible_mask(self, n: int, m: int, store: LayerStore | None) -> Tensor | None:
        """bool [B or 1, H_kv or 1, T, n + m] from the feed and a band that holds for all heads: committed entries, then pending
        ones. Under such a band layers that hold as many entries hold the same."""
        visible = self._feed_mask(n, m)
        if self.band is None or self.band.heads is not None:
            return visible
        return self._band_mask(store) if visible is None else visible & self._band_mask(store)

    def _feed_mask(self, n: int, m: int) -> Tensor | None:
        """bool [B or 1, 1, T, n + m] from the feed alone."""
        T = self.feed.length
        given = self.feed.visible
        device = self.feed.tokens.device
        if given is None:
            if T == 1 or not self.spec.causal:
                return None
            given = torch.ones(1, T, m, dtype=torch.bool, device=device).tril(m - T)
        if n == 0:
            return given[:, None]
        return F.pad(given, (n, 0), value=True)[:, None]
