"""Skipped KV: what the cache of a layer gets for rows with skipped attention there."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from ..layers.column import COPIED, PROPAGATED
from ..layers.deferred import DeferredTokens
from ..layers.partial_pass import ExecutedLayers
from .attention_block import AttentionBlock


def fill_skipped_kv(
    block: AttentionBlock, layers: Iterable[int], x: Tensor, gap: str, ran: ExecutedLayers
) -> None:
    """Fill the cache of `layers`, ascending, with skipped attention, as `gap` defines, for the rows of `block` with the state
    x [B, T, d_model]."""
    cache, feed = block.cache, block.feed
    ran.gap = gap
    for i in layers:
        if gap == "propagate":
            store = None if cache is None else cache.layers[i]
            if store is not None:
                store.append(block.keys_values(i, x), feed.positions)
            ran.filled.append(i)
        elif gap == "copy" and cache is not None:
            if i == 0:
                raise ValueError(
                    "below layer 0 there is nothing to copy: let layer 0 run, or choose another gap."
                )
            store = cache.layers[i]
            store.append(cache.layers[i - 1].newest_rows(feed.length), feed.positions)
            ran.copied.append(i)
        else:
            ran.pending[i] = []
            if gap == "defer" and ran.left is None:
                ran.left = DeferredTokens(i, x, feed.tokens, feed.positions)
            continue
        if store is not None and "origin" in store.columns:
            store.mark_origin(PROPAGATED if gap == "propagate" else COPIED, feed.length)
