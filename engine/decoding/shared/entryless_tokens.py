"""Tokens that a lane has behind it without entries: those that it never read, and those whose entries all went."""

from __future__ import annotations

import torch

from ..bases.lane import Lane


def skip_tokens(lane: Lane, tokens: list[int]) -> None:
    """Let a lane that is empty stand behind `tokens`, of which no layer gets an entry."""
    assert not lane.tokens, "what was read has entries"
    lane.tokens, lane.cache.length = list(tokens), len(tokens)
    if tokens:
        for store in lane.cache.layers:
            store.mark_missing(0)
        lane.lacks = [len(tokens)] * len(lane.cache.layers)


def evict_all(lane: Lane) -> None:
    """Evict every entry; the lane stands where it stood."""
    for store in lane.cache.layers:
        slots = torch.arange(store.n, device=store.kv.device)
        store.evict(slots.expand(*store.kv.shape[1:3], -1))
    lane.cache.shrink()
