"""Filled: the arithmetic of what one pass over a canvas settles, for who makes it and for who checks it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from ..values.limits import TraceError
from .shapes import CanvasDetail


def scheduled_count(places: int, steps: int, passes: int) -> int:
    """How many of a block's `places` the pass after `passes` others commits, where `steps` passes fill it: all the same, the
    first `places % steps` one more. No pass is without a commit: more steps than places are as many as places."""
    steps = min(steps, places)
    return places // steps + (passes < places % steps)


def rank_places(confidence: np.ndarray, order: np.ndarray | None = None) -> np.ndarray:
    """int64 [O]: the open places by rank, as indices: by `order`, else the most confident first, of equal ones the first."""
    return np.argsort(-confidence if order is None else order, kind="stable")


def committed_mask(
    count: int, confidence: np.ndarray, bars: np.ndarray | None, order: np.ndarray | None
) -> np.ndarray:
    """bool [O]: which open places are committed: the `count` that rank first, and those that reach their bar."""
    taken = np.zeros(len(confidence), bool) if bars is None else confidence >= bars
    taken[rank_places(confidence, order)[:count]] = True
    return taken


def confidence_of(canvas: CanvasDetail) -> np.ndarray:
    """float [O]: the confidence of each candidate. Raises TraceError if it was not recorded."""
    if canvas.confidence is None:
        raise TraceError(f"details.{canvas.name[:20]} records no confidences, from which its choice follows")
    return canvas.confidence


def recorded_mask(canvas: CanvasDetail) -> np.ndarray:
    """bool [O]: which open places of a canvas rank among the first, or reach their bar."""
    bars, order = canvas.columns.get("bars"), canvas.columns.get("order")
    return committed_mask(canvas.count, confidence_of(canvas), bars, order)


def factor_count(confidence: np.ndarray, factor: float) -> int:
    """The largest n for which (n + 1) (1 - c) < factor, c being the n-th largest confidence; at least 1."""
    c = np.sort(confidence.astype(np.float64))[::-1]
    fits = np.flatnonzero((np.arange(1, len(c) + 1) + 1) * (1 - c) < factor)
    return int(fits[-1]) + 1 if len(fits) else 1


def leap_bars(
    open: np.ndarray, confidence: np.ndarray, tau: float, relaxed: float, radius: int
) -> tuple[np.ndarray, np.ndarray]:
    """(int32 [A] anchors, float32 [O] bars): the open places with a confidence of at least tau, and the bar of each open place:
    `relaxed` within `radius` of an anchor, else tau."""
    anchors = open[confidence >= np.float32(tau)]
    near = (abs(open[:, None] - anchors) <= radius).any(1)
    return anchors, np.where(near, np.float32(relaxed), np.float32(tau)).astype(np.float32)


def remask_count(places: int, steps: int, passes: int) -> int:
    """How many of a block's `places` are masked again after the pass that follows `passes` others, where `steps` passes fill
    it: floor(places (1 - t / steps)) for the pass t to come, at least 1; none after the last."""
    steps, coming = min(steps, places), passes + 1
    return max(1, places * (steps - coming) // steps) if coming < steps else 0


def least_confident_places(confidence: Mapping[int, float], count: int) -> list[int]:
    """The `count` places with the lowest confidence, ascending; of equal ones the first."""
    return sorted(sorted(confidence, key=lambda place: (confidence[place], place))[:count])


def filter_bars(final: np.ndarray, accept: float) -> np.ndarray:
    """float32 [O]: the bars of places that a filter finds final: 0 where it is surer than `accept`, else 2."""
    return np.where(final > np.float32(accept), np.float32(0), np.float32(2))


def find_cut(
    open: np.ndarray, candidate: np.ndarray, confidence: np.ndarray, bars: np.ndarray, ends: Collection[int]
) -> int | None:
    """The position after the place where the text is to end; None: no candidate ends the text. The place is the first open one
    with a candidate in `ends` and bar 0; else the most confident one with such a candidate, of equal ones the first."""
    at = np.flatnonzero(np.isin(candidate, [*ends]))
    if not len(at):
        return None
    sure = at[bars[at] == 0]
    return int(open[sure[0] if len(sure) else at[confidence[at].argmax()]]) + 1
