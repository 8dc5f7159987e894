"""UnevenStore: a SharedStore with sequences that have read different numbers of tokens after their shared prefix."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec

from ..attention.segments import DenseSegment, Segment
from ..layers.commit_plan import CommitPlan
from ..layers.memory import Memory
from .cache import KVCache
from .shared_prefix import PrefixSegment, SharedStore
from .store import LayerStore
from .two_part import slice_mask


class UnevenStore(SharedStore):
    """There are as many slots after the prefix as the longest sequence needs; position -1 marks an unused slot of a shorter
    one, which no row sees. `n` counts slots."""

    def __init__(self, prefix: LayerStore, spec: ModelSpec, batch: int, memory: Memory):
        super().__init__(prefix, spec, batch, memory)
        self._places = torch.empty(batch, 0, dtype=torch.int64, device=prefix.kv.device)  # [B, n - before]

    @property
    def is_segmented(self) -> bool:
        """Always: slots that a sequence has not are hidden."""
        return True

    def positions(self) -> Tensor:
        """int64 [B, 1, n]: the position of each slot, -1 where a sequence has none."""
        first = torch.arange(self.older_entries, device=self._places.device).expand(self.batch, -1)
        return torch.cat([first, self._places], 1)[:, None]

    def segments(self, mask: Tensor | None) -> list[Segment]:
        """As of any SharedStore, without the slots that a sequence has not."""
        before, end = self.older_entries, self.n + self.m
        pending = self.pending_positions()
        places = self._places if pending is None else torch.cat([self._places, pending], 1)
        there = (places >= 0)[:, None, None]  # [B, 1, 1, S]
        own = slice_mask(mask, before, end)
        k, v = self.kv[:, :, :, : end - before]
        tails = DenseSegment(k=k, v=v, mask=there if own is None else there & own, first=before)
        if not before:
            return [tails]
        return [PrefixSegment(k=self.prefix.k, v=self.prefix.v, mask=slice_mask(mask, 0, before)), tails]

    def keep(self, rows: Sequence[int], moving: CommitPlan | None) -> None:
        pending = self.pending_positions()
        assert pending is not None
        self._set_places(torch.cat([self._places, pending[:, list(rows)]], 1))
        super().keep(rows, moving)

    def truncate(self, length: int) -> None:
        """Nothing to be forgotten but what is pending."""
        assert length >= self.n, "sequences of different lengths only grow"
        self.rollback()

    def reorder(self, order: Tensor) -> None:
        super().reorder(order)
        self._set_places(self._places.index_select(0, order))

    def _set_places(self, places: Tensor) -> None:
        self.memory.take(places)
        self.memory.give(self._places)
        self._places = places


def continue_prefix(prefix: KVCache, tails: Sequence[Sequence[Tensor]]) -> KVCache:
    """A cache of sequences that go on after the entries of `prefix`, which it reads: sequence b has read those of tails[b], by
    layer float [2, 1, H_kv, t, D], as well."""
    cache = copy.copy(prefix)  # its memory is the prefix's too
    cache.layers = [UnevenStore(x, prefix.spec, len(tails), prefix.memory) for x in prefix.layers]
    cache.shared = prefix.fullest_length
    longest = max(tail[0].shape[3] for tail in tails)
    for i, store in enumerate(cache.layers):
        if not longest:
            break
        kv = torch.cat(
            [torch.nn.functional.pad(tail[i], (0, 0, 0, longest - tail[i].shape[3])) for tail in tails], 1
        )
        at = torch.arange(longest, device=kv.device)
        counts = torch.tensor([tail[i].shape[3] for tail in tails], device=kv.device)[:, None]
        store.append(kv, torch.where(at < counts, at + store.n, -1))
        store.commit(range(longest))
    return cache
