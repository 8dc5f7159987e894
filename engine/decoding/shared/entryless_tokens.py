"""Tokens of a lane's text that have no entries: tokens that it never read, and tokens that lost all their entries."""

from __future__ import annotations

import torch

from ..bases.lane import Lane


def skip_tokens(lane: Lane, tokens: list[int]) -> None:
    """Put an empty lane right after `tokens`; no layer gets an entry of them."""
    assert not lane.tokens, "what was read has entries"
    lane.tokens, lane.cache.length = list(tokens), len(tokens)
    if tokens:
        for store in lane.cache.layers:
            store.mark_missing(0)
        lane.lacks = [len(tokens)] * len(lane.cache.layers)
        lane.cache.absent = [(i, at) for i in range(len(lane.lacks)) for at in range(len(tokens))]


def evict_all(lane: Lane) -> None:
    """Evict every entry; the lane's position in the text stays."""
    for store in lane.cache.layers:
        slots = torch.arange(store.n, device=store.kv.device)
        store.evict(slots.expand(*store.kv.shape[1:3], -1))
    lane.cache.shrink()
