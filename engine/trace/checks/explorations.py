"""Explorations derived again: which place a pass had to explore, and which of the canvases that it tried had to win."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from ..details.explored import open_question, surest, weighed
from ..details.filled import Fill, chosen
from ..values.limits import TraceError


def consistent_explored(fill: Fill) -> None:
    """What must agree inside the exploration of one fill: lengths and places. Raises TraceError."""
    tried = fill.explored
    if tried is None:
        return
    k, others = len(tried.tokens), fill.open[fill.open != tried.place].astype(np.int64)
    if len(others) + 1 != len(fill.open) or not np.array_equal(tried.open, others):
        raise TraceError(
            f"fill.explored tells of other open places than the fill, or {tried.place} is none of them"
        )
    shapes = (
        (tried.chance, (k,), "f"),
        (tried.candidate, (k, len(others)), "iu"),
        (tried.confidence, (k, len(others)), "f"),
    )
    for column, shape, kinds in (*shapes, (tried.scores, (k,), "f")):
        if column.shape != shape or column.dtype.kind not in kinds:
            raise TraceError(
                f"fill.explored has a column of shape {list(column.shape)}, and {list(shape)} is due"
            )
    if not k or len(tried.sure) != k or not 0 <= tried.won < k or len(set(tried.tokens)) < k:
        raise TraceError(
            "fill.explored does not name different tokens, a number of sure places for each, and a winner"
        )
    for column in (tried.chance, tried.confidence):
        if not (column >= 0).all() or not (column <= 1 + 1e-6).all():
            raise TraceError("fill.explored has an entry that is no probability")


def explorations(
    knobs: Mapping[str, Any], fill: Fill, last: Fill | None, ends: Collection[int]
) -> Iterator[str]:
    """What is wrong with what a pass explored, or with its not exploring; last: the pass before it in the same block."""
    tried, due = fill.explored, None
    if fill.entropy is None:
        yield "it says nothing of the entropy by which its selector explores"
    if last is not None and last.bars is not None and last.entropy is not None:
        taken = chosen(last.count, last.confidence, last.bars, last.order)
        sure = last.confidence >= last.bars
        if last.explored is not None:
            sure &= last.open != last.explored.place
        due = open_question(last.open, last.entropy, taken, sure, last.edge or last.block[1], knobs["least"])
    if due != (None if tried is None else tried.place):
        yield f"it explores the place {None if tried is None else tried.place}, and by the pass before {due} is due"
    if tried is None or last is None:
        return
    if len(tried.tokens) > knobs["tries"] or (np.diff(tried.chance) > 0).any():
        yield f"it tries {len(tried.tokens)} tokens, and the {knobs['tries']} likeliest are due, the likeliest first"
    bars = fill.bars if fill.bars is not None else np.zeros(len(fill.open), np.float32)
    counts = surest(tried.candidate, tried.confidence, bars[fill.open != tried.place], ends)
    if counts != tried.sure:
        yield f"it counts {tried.sure} sure places, and bars and confidences give {counts}"
    scores = weighed(tried.chance, tried.sure, knobs["gain"])
    if not np.allclose(scores, tried.scores, rtol=0, atol=1e-9) or tried.won != int(np.argmax(tried.scores)):
        yield f"the canvas {tried.won} won with {tried.scores.tolist()}, and the scores are {scores.tolist()}"
    at = int(np.flatnonzero(fill.open == tried.place)[0])
    if (int(fill.candidate[at]), float(fill.confidence[at])) != (
        tried.tokens[tried.won],
        float(tried.chance[tried.won]),
    ):
        yield "the token at the place that it explored is not the one that won, or has not its probability"
