"""H2O: keep the heavy hitters and the most recent entries."""

from __future__ import annotations

import torch
from torch import Tensor

from ..cache import KVCache, LayerStore
from ..component import component, param
from ..probe import Needs
from ..spec import ModelSpec
from .base import MOST, CachePolicy, entries, share


@component
class H2O(CachePolicy):
    """Evict the entries with the least accumulated attention, once more than `heavy + recent` are held.

    Each KV head keeps its own set. The mass of an entry is the attention that it received from all committed queries so
    far, each over the entries that were then still held (online H2O), summed over the query heads of its group, in
    float32. The `recent` newest entries are never evicted; of entries with equal mass the lower position stays. Under tree
    verification only the rows of accepted nodes count, and eviction follows the commit.

    With a `share` the budget is that share of the prompt's length, and `heavy` to `recent` is only how it is divided.
    """

    title = "H2O (heavy-hitter oracle)"
    source = "Zhang et al. 2023, arXiv:2306.14048, section 4; FMInference/H2O, h2o_hf/utils_real_drop; shares: utils_hh"
    needs = Needs(attention="columns")
    columns = {"mass": 0.0}  # noqa: RUF012 # a constant of the class

    heavy: int = param(64, low=0, high=MOST, unit="entries", help="entries kept for their attention mass")
    recent: int = param(64, low=1, high=MOST, unit="entries", help="newest entries, kept in any case")
    share: float = share()

    def begin(self, spec: ModelSpec, prompt: int) -> None:
        if self.share:
            budget = entries(self, self.share, prompt)
            self.heavy = budget * self.heavy // (self.heavy + self.recent)
            self.recent = budget - self.heavy  # at least 1, as it was before

    def observe_columns(self, layer: int, store: LayerStore, columns: Tensor) -> None:
        store.column("mass").add_(columns)

    def observe(self, layer: int, store: LayerStore, rows: Tensor) -> None:
        store.column("mass").add_(rows.sum((2, 3)))

    def compress(self, cache: KVCache) -> None:
        gone = cache.layers[0].n - self.heavy - self.recent  # every layer and head holds as many
        if gone <= 0:
            return
        mass = torch.stack([store.column("mass") for store in cache.layers])
        positions = torch.stack([store.positions().expand_as(store.column("mass")) for store in cache.layers])
        for store, slots in zip(cache.layers, self.victims(mass, positions, cache.length, gone), strict=True):
            store.evict(slots)

    def victims(self, mass: Tensor, positions: Tensor, length: int, gone: int) -> Tensor:
        """int64 [..., gone]: the slots with the least mass that are older than the recent ones; of equal ones the highest
        position. mass float32, positions int64 [..., n]; length: tokens of text so far."""
        mass = mass.masked_fill(positions >= length - self.recent, torch.inf)
        if gone == 1:
            least = mass == mass.amin(-1, keepdim=True)
            return positions.masked_fill(~least, -1).argmax(-1, keepdim=True)
        newest = positions.argsort(dim=-1, descending=True)
        order = mass.gather(-1, newest).argsort(dim=-1, stable=True)
        return newest.gather(-1, order[..., :gone])
