"""Eviction scores: the score of an entry when it left, and the cut below which it fell, where a step records them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from decodescope.engine.trace.records.entry_scores import Scores
from decodescope.engine.trace.records.events import Prefill, Step

# row, score, lowest score that stayed: None if nothing stayed for its score
Below = tuple[int, float, float | None]


def eviction_scores(
    record: Callable[[int], Prefill | Step | None],
    position: int,
    rows: Sequence[tuple[int | None, str]],
    heads: int,
) -> list[Below]:
    """The score of a position in each row in which it left and the step records it.
    record(i): of a step; a negative i is the prefill;  rows: for each layer and KV head, layer by layer, when it left, as
    `EntryLifetimes.lifetime` gives it."""
    scored: list[Below] = []
    for i in sorted({left for left, _ in rows if left is not None}):
        change = next((x for x in getattr(record(i), "cache", ()) if x.lane == "target"), None)
        if change is not None and change.scores is not None:
            scored += _scores_below_cut(
                change.scores, position, [row for row, (left, _) in enumerate(rows) if left == i], heads
            )
    return scored


def _scores_below_cut(scores: Scores, position: int, rows: Sequence[int], heads: int) -> list[Below]:
    if scores.entries is None or position >= scores.entries.shape[2]:
        return []
    known: list[Below] = []
    for row in rows:
        layer, head = divmod(row, heads)
        if layer >= scores.cut.shape[0] or head >= scores.cut.shape[1]:
            continue
        score, cut = float(scores.entries[layer, head, position]), float(scores.cut[layer, head])
        if np.isfinite(score) and not np.isnan(cut):
            known.append((row, score, cut if np.isfinite(cut) else None))
    return known
