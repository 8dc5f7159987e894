"""Sight: what the fed rows of a pass may see in each layer, and where the entries stand that they see."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec

from .cache import LayerStore
from .feed import Feed
from .rope import RopeTable, rotate_


class Sight:
    """Masks and places of one pass over `feed`. Layers whose stores hold as many entries share a mask.

    band: the feed's, None as long as it hides nothing
    """

    def __init__(self, spec: ModelSpec, feed: Feed):
        self.spec, self.feed = spec, feed
        self.masks: dict[tuple[int, int], Tensor | None] = {}
        band = feed.band
        self.band = None if band is None or feed.highest <= band.first + band.newest else band

    def square(self, i: int, store: LayerStore | None) -> bool:
        """Whether layer i sees a causal square of several rows: nothing before it, nothing hidden."""
        if self.feed.length == 1:
            return False
        alone = store is None or (store.n == 0 and store.m == self.feed.length)
        window = self.spec.window(i)
        whole = self.feed.visible is None and self.band is None
        return whole and alone and (window is None or window >= self.feed.length)

    def mask(self, i: int, store: LayerStore | None) -> Tensor | None:
        """bool [B or 1, H_kv or 1, T, S]: what each fed row may see in layer i; None: everything."""
        T, window = self.feed.length, self.spec.window(i)
        n, m = (0, T) if store is None else (store.n, store.m)
        alive = None if store is None else store.alive
        if window is not None and n + m <= window and (store is None or store.in_order or store.raw_keys):
            window = None  # nothing is out of reach yet
        key = (n, m)
        if key not in self.masks:
            self.masks[key] = self._visible(n, m)
        base = self.masks[key]
        if alive is None and window is None and self.band is None:
            return base
        mask = torch.ones(1, 1, T, n + m, dtype=torch.bool, device=self.feed.tokens.device) if base is None else base
        if alive is not None:
            mask = mask & alive[:, :, None]
        if self.band is not None:
            keys = self.positions(store)[:, :, None]
            mask = mask & ((keys < self.band.first) | (keys >= self.feed.positions[:, None, :, None] - self.band.newest))
        if window is not None:
            mask = mask & (self._distances(store) < window)
        return mask

    def positions(self, store: LayerStore | None) -> Tensor:
        """int64 [B, H_kv or 1, S]: the place in the text of each entry, committed and pending."""
        if store is None:
            return self.feed.positions[:, None]
        pending, committed = store.pending_positions(), store.positions()
        assert pending is not None
        return torch.cat([committed, pending[:, None].expand(-1, committed.shape[1], -1)], 2)

    def places(self, store: LayerStore) -> Tensor:
        """int64 [B, H_kv or 1, S]: the place in the cache of each entry; pending ones stand behind the committed."""
        pending, n = store.pending_positions(), store.n
        assert pending is not None
        place = pending - pending[:, :1] + n  # [B, m]
        if store.in_order:
            ranks = torch.arange(n, device=place.device).expand(len(place), 1, n)
        else:
            ranks = store.positions().argsort(dim=2).argsort(dim=2)
        return torch.cat([ranks, place[:, None].expand(-1, ranks.shape[1], -1)], 2)

    def rotated_in_cache(self, rope: RopeTable, q: Tensor, k: Tensor, v: Tensor, store: LayerStore) -> tuple[Tensor, ...]:
        """Queries, keys and values, the queries and stored raw keys rotated by their place in the cache instead of their place
        in the text.

        In a band the first entries come closer from row to row, as others leave between them and the row, and the newest stay
        where they are. One rotation of a query cannot do both: so it has two, side by side, of which each key meets one.
        """
        highest, T = store.n + store.m, self.feed.length  # a chain is the deepest tree
        places = self.places(store)
        k = _turned(k, rope, places, highest)
        near = _turned(q, rope, places[:, :1, None, -T:], highest)
        if self.band is None:
            return near, k, v
        far = _turned(q, rope, self._nearest()[:, None, None], highest)
        first = (self.positions(store) < self.band.first)[..., None]  # [B, H_kv or 1, S, 1]
        k = torch.cat([k.masked_fill(first, 0), k.masked_fill(~first, 0)], -1)
        return torch.cat([near, far], -1), k, F.pad(v, (0, v.shape[-1]))  # the kernel wants values as wide as keys

    def _distances(self, store: LayerStore | None) -> Tensor:
        """int64 [B, H_kv or 1, T, S]: how far behind each fed row each entry stands, in the text, or in the cache where places
        are counted there."""
        if store is None or not store.raw_keys:
            return self.feed.positions[:, None, :, None] - self.positions(store)[:, :, None]
        places = self.places(store)
        distances = places[:, :1, -self.feed.length :, None] - places[:, :, None]
        if self.band is None:
            return distances
        first = self.positions(store)[:, :, None] < self.band.first
        return torch.where(first, self._nearest()[:, None, :, None] - places[:, :, None], distances)

    def _nearest(self) -> Tensor:
        """int64 [B, T]: the place of each fed row in a cache that holds no more than the band when the row comes."""
        assert self.band is not None
        return self.feed.positions.clamp(max=self.band.first + self.band.newest)

    def _visible(self, n: int, m: int) -> Tensor | None:
        """bool [B or 1, 1, T, n + m] from the feed: committed entries, then pending ones."""
        T, given, device = self.feed.length, self.feed.visible, self.feed.tokens.device
        if given is None:
            if T == 1:
                return None
            given = torch.ones(1, T, m, dtype=torch.bool, device=device).tril(m - T)
        if n == 0:
            return given[:, None]
        return F.pad(given, (n, 0), value=True)[:, None]


def _turned(x: Tensor, rope: RopeTable, places: Tensor, highest: int) -> Tensor:
    """x [..., S, D], copied and rotated to `places` (int64 [..., S])."""
    x = x.clone(memory_format=torch.contiguous_format)
    cos, sin = rope.at(places, highest)
    rotate_(x, cos.squeeze(-2), sin.squeeze(-2))
    return x
