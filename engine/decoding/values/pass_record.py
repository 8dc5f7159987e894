"""Fill in the trace record of one forward pass."""

from __future__ import annotations

from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import ExecutedLayers, Skip
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.trace.records.events import Pass
from decodescope.engine.trace.records.phases import READS


def pass_record(
    lane: str, phase: str, feed: Feed, cache: KVCache, held: int | list[int] | list[list[int]], us: float
) -> Pass:
    """The record of a pass over `feed` that ran the whole model; held: entries before it."""
    record = Pass(lane, phase, feed.length, held, us, batch=feed.tokens.shape[0])
    record.slots = feed.slots or None
    record.shared = cache.shared or None
    record.distinct = cache.distinct_entries
    record.aside = feed.shift or None
    record.logits = len(feed.logits) if isinstance(feed.logits, list) else None
    if feed.logits == "last" and feed.length > 1 and phase not in READS:  # a block that is caught up on
        record.logits = 1
    note_read(record, feed, cache)
    return record


def note_read(record: Pass, feed: Feed, cache: KVCache) -> None:
    """Record what a pass has read of the cache, if it did not read all."""
    if feed.board is not None and feed.board.chosen:
        record.read = feed.board.read_entries(cache.layers)
        record.bounds = (
            [feed.board.bounds.get(i, 0) for i in range(len(cache.layers))] if feed.board.bounds else None
        )


def note_pending(record: Pass, cache: KVCache) -> None:
    """Record the rows pending before a pass that it read in addition to the committed entries."""
    for store in cache.layers:
        if store.m > record.tokens:
            break
    else:
        return
    own = [record.tokens + record.joined_tokens(i) for i in range(len(cache.layers))]
    each = [max(store.m - n, 0) for store, n in zip(cache.layers, own, strict=True)]
    if any(each):
        record.pending = each[0] if min(each) == max(each) else each


def record_layers_run(record: Pass, ran: ExecutedLayers, layers: int) -> None:
    """Record the sub-layers that a pass ran of a model with `layers` layers, and how the skipped ones were filled."""
    record.record_layers_run(ran.attn, ran.ffn, ran.filled, ran.copied, layers)
    record.gap, record.rows = ran.gap, ran.by_layer(record.tokens, layers)
    record.routed = ran.row_routes(layers)
    record.joined = [[i, n] for i, n in ran.joined.items()] or None


def check_monotone_layers(cache: KVCache, skip: Skip) -> None:
    """Raise ValueError if a pass with skipped_kv "monotone" runs a layer that an earlier pass left out."""
    again = [i for i, store in enumerate(cache.layers) if store.missing is not None and i not in skip.attn]
    if again:
        raise ValueError(
            f"layer {again[0]} got no entry at position {cache.layers[again[0]].missing} and would run again: under the gap "
            "monotone a pass runs no layer that one before it left out; let the layers shrink, or choose the gap absent."
        )
