"""Merging: entries leave a cache, and what they held becomes part of others."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..layers.column import MERGED
from .cache import LayerStore


class MergeResult(NamedTuple):
    """The result of one call of `merge_entries`, by position in the text: `source` went into `target`, both int [B, H_kv, e],
    -1 where it was dropped; similarity and weight: float32 [B, H_kv, e], those of the source there."""

    source: Tensor
    target: Tensor
    similarity: Tensor
    weight: Tensor


def merge_entries(
    store: LayerStore,
    source: Tensor,
    target: Tensor,
    weights: Tensor,
    own: Tensor,
    similarity: Tensor | None = None,
) -> None:
    """Drop the committed slots `source` (int64 [B, H_kv, e], e different ones per head); those with a weight become part of the
    slots `target` (int64 [B, H_kv, e]), none of which may be a source that leaves: in each head

        K[t] = own[t] K[t] + sum of weights[i] K[source[i]] over the i with target[i] = t,     and V likewise

    weights: float [B, H_kv, e], 0: the source is only dropped;  own: float [B, H_kv, n], 1 where nothing comes in. Sums are
    made in float32 at least. Of the columns, `weight` adds up and `kind` becomes MERGED, where the store has them; the others
    are the target's. Keys are merged as they are stored: rotated ones at different places, which is no rotation of one key.
    similarity: what `store.merged` records of each source in addition to its weight.
    """
    taken = weights != 0
    for which, x in enumerate((store.k, store.v)):
        wide = x if x.dtype == torch.float64 else x.float()
        part = wide.gather(2, _expand_slots(source, x)) * weights[..., None].to(wide.dtype)
        store.write(
            which, (wide * own[..., None].to(wide.dtype)).scatter_add(2, _expand_slots(target, x), part)
        )
    if "weight" in store.columns:
        stands = store.column("weight")
        stands.scatter_add_(2, target, stands.gather(2, source) * taken)
    if "kind" in store.columns:
        kind = store.column("kind")
        kind.copy_(
            kind.masked_fill(
                torch.zeros_like(kind, dtype=torch.int32).scatter_add(2, target, taken.int()) > 0, MERGED
            )
        )
    if store.merged is not None:
        positions = store.positions().expand(*source.shape[:2], -1)
        gone, into = positions.gather(2, source), positions.gather(2, target).masked_fill(~taken, -1)
        store.merged.append(
            MergeResult(gone, into, (weights if similarity is None else similarity).float(), weights.float())
        )
    store.evict(source)


def _expand_slots(slots: Tensor, table: Tensor) -> Tensor:
    """slots int64 [B, H_kv, e] for every number of the entries of `table` [B, H_kv, n, D]."""
    return slots[..., None].expand(*slots.shape, table.shape[3])
