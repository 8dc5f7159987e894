"""Mass map: the attention that the entries of a cache have drawn, by position, for the record of a step."""

from __future__ import annotations

import numpy as np
import torch

from decodescope.engine.trace.records.thinned_mass import SHADES, ThinnedMass, thin_mass

from ..bases.lane import Lane

Mass = tuple[np.ndarray | None, ThinnedMass | None]


def record_mass(lane: Lane, room: int) -> Mass:
    """(the whole map, None) of the column that the policy shows, or (None, the thinned map) if it has more than `room` numbers;
    (None, None) without room.

    The whole map: uint8 [L, H_kv, n], by original position: 0 where evicted, else 1 + 254 sqrt(share of the layer's largest)
    """
    if not room:
        return None, None
    shares, held = column_shares(lane)
    if shares.size > room:
        return None, thin_mass(shares, held, room)
    return (1 + SHADES * np.sqrt(shares)).astype(np.uint8) * held, None


def column_shares(lane: Lane) -> tuple[np.ndarray, np.ndarray]:
    """(float64 [L, H_kv, n], bool of the same shape): what each entry has drawn as a share of its layer's largest, by original
    position, and whether it is held; of sequence 0."""
    cache = lane.cache
    shape = (len(cache.layers), lane.decoder.spec.n_kv_heads, cache.length)
    shares, held = np.zeros(shape), np.zeros(shape, bool)
    for i, store in enumerate(cache.layers):
        worth = store.column(lane.policy.column)[0].double()
        if not worth.numel():
            continue
        at = store.positions()[0].expand(len(worth), -1)
        worth = worth.masked_fill(at < 0, 0)
        share = worth / worth.max().clamp_min(1e-30)
        head, slot = (at >= 0).nonzero(as_tuple=True)
        rows, places = torch.stack([head, at[head, slot]]).cpu().numpy()
        shares[i][rows, places] = share[head, slot].cpu().numpy()
        held[i][rows, places] = True
    return shares, held
