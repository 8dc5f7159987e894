"""Explorations derived again: which place a pass had to explore, and which of the canvases that it tried had to win."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from ..details.canvas_fill import confidence_of, recorded_mask
from ..details.exploration import canvas_scores, count_sure_places, place_to_explore
from ..details.shapes import CanvasDetail


def exploration_problems(
    knobs: Mapping[str, Any], fill: CanvasDetail, last: CanvasDetail | None, ends: Collection[int]
) -> Iterator[str]:
    """Problems of what a pass explored, or failed to explore; last: the pass before it in the same block."""
    tried, due = fill.explored, None
    if "entropy" not in fill.columns:
        yield "it says nothing of the entropy by which its selector explores"
    if last is not None and {"bars", "entropy"} <= last.columns.keys():
        taken, sure = recorded_mask(last), confidence_of(last) >= last.columns["bars"]
        if last.explored is not None:
            sure &= last.open != last.explored.place
        edge, entropy = last.edge or last.block[1], last.columns["entropy"]
        due = place_to_explore(last.open, entropy, taken, sure, edge, knobs["min_sure_places"])
    if due != (None if tried is None else tried.place):
        yield f"it explores the place {None if tried is None else tried.place}, and by the pass before {due} is due"
    if tried is None or last is None:
        return
    if len(tried.tokens) > knobs["candidates"] or (np.diff(tried.chance) > 0).any():
        yield f"it tries {len(tried.tokens)} tokens, and the {knobs['candidates']} likeliest are due, the likeliest first"
    bars = fill.columns.get("bars", np.zeros(len(fill.open), np.float32))
    counts = count_sure_places(tried.candidate, tried.confidence, bars[fill.open != tried.place], ends)
    if counts != tried.sure:
        yield f"it counts {tried.sure} sure places, and bars and confidences give {counts}"
    scores = canvas_scores(tried.chance, tried.sure, knobs["gain"])
    if not np.allclose(scores, tried.scores, rtol=0, atol=1e-9) or tried.won != int(np.argmax(tried.scores)):
        yield f"the canvas {tried.won} won with {tried.scores.tolist()}, and the scores are {scores.tolist()}"
    at = int(np.flatnonzero(fill.open == tried.place)[0])
    if (int(fill.candidate[at]), float(confidence_of(fill)[at])) != (
        tried.tokens[tried.won],
        float(tried.chance[tried.won]),
    ):
        yield "the token at the place that it explored is not the one that won, or has not its probability"
