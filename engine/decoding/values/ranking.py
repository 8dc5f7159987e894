"""The scores of a layer's entries when a policy evicted some of them, if they are recorded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.model.stores.cache import KVCache, LayerStore
from decodescope.engine.trace.records.entry_scores import Scores

ENTRIES = 1 << 19  # numbers of a map of scores; a larger one is left out


class EntryRanking(NamedTuple):
    """A layer right before its cut, by slot: positions int64 [B, H_kv, n], -1 where a head has none; scores float [B, H_kv, n],
    inf: protected; mass: float [B, H_kv, n], the column that the policy shows, or None."""

    positions: Tensor
    scores: Tensor
    mass: Tensor | None


def save_ranking(store: LayerStore, scores: Tensor, column: str) -> None:
    """Leave with `store` what its entries are worth (float [B, H_kv, n], inf: protected), right before some of them go;
    column: the one that the policy shows, or "". Of several cuts the last is kept. For stores with a list `ranked`."""
    assert store.ranked is not None, "nobody asked"
    at = store.positions().expand(scores.shape)
    store.ranked[:] = [EntryRanking(at, scores, store.column(column).clone() if column else None)]


def take_scores(cache: KVCache) -> Scores | None:
    """The scores that judged the entries of the one sequence since the last call. None: no score, not requested, or several
    sequences: hypotheses are reordered, so sequence 0 may hold entries that another one kept."""
    left = [None if not store.ranked else store.ranked.pop() for store in cache.layers]
    ranked = next((x for x in left if x is not None), None)
    if ranked is None or len(ranked.positions) > 1 or cache.layers[0].batch > 1:
        return None
    shape = len(left), ranked.positions.shape[1]
    whole = len(left) * ranked.positions.shape[1] * cache.length <= ENTRIES
    entries = np.full((*shape, cache.length), np.nan, np.float32) if whole else None
    cut = np.full(shape, np.nan, np.float32)
    lost = None if ranked.mass is None else np.full(shape, np.nan, np.float32)
    for i, (layer, store) in enumerate(zip(left, cache.layers, strict=True)):
        if layer is None:
            continue
        there = layer.positions[0] >= 0
        at = layer.positions[0].clamp(min=0)
        scores = layer.scores[0].float()
        now = torch.zeros(shape[1], cache.length + 1, dtype=torch.bool, device=at.device)
        held = store.positions()[0].expand(shape[1], -1)
        # [H_kv, n]
        stays = now.scatter_(1, held.masked_fill(held < 0, cache.length), True).gather(1, at) & there
        cut[i] = scores.masked_fill(~stays, torch.inf).amin(1).cpu().numpy()
        if entries is not None:
            head, slot = there.nonzero(as_tuple=True)
            entries[i][head.cpu().numpy(), at[head, slot].cpu().numpy()] = scores[head, slot].cpu().numpy()
        if lost is not None and layer.mass is not None:
            mass = layer.mass[0].double().masked_fill(~there, 0)
            lost[i] = ((mass * ~stays).sum(1) / mass.sum(1).clamp(min=1e-30)).cpu().numpy()
    return Scores(cut, entries, lost)
