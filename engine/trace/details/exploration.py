"""Explored: what a pass over several canvases tried, and the arithmetic of it, for who makes it and for who checks it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np


@dataclass
class Explored:
    """A pass that read K canvases in parallel, each with another token at `place` and otherwise equal. The rest of the fill
    describes the canvas that won.

    place:  an open place, which the pass settles
    tokens: K ids, the likeliest there in the pass before;  chance: float32 [K], their probability in it, falling
    open:   int32 [O], the other open places, ascending
    candidate: int32 [K, O], the likeliest token at each of them;  confidence: float32 [K, O], its probability
    sure:   of each canvas, how many of these reach their bar with a token that does not end the text
    scores: float64 [K];  won: which canvas has the highest, of equal ones the first
    """

    place: int
    tokens: list[int]
    chance: np.ndarray
    open: np.ndarray
    candidate: np.ndarray
    confidence: np.ndarray
    sure: list[int]
    scores: np.ndarray
    won: int

    @property
    def ids(self) -> list[int]:
        """All tokens that it names."""
        return [*self.tokens, *self.candidate.ravel().tolist()]


def place_bars(open: np.ndarray, edge: int, tau: float, beyond: float) -> np.ndarray:
    """float32 [O]: the bar of each open place: tau before the position `edge`, that much more after it."""
    return np.where(open < edge, np.float32(tau), np.float32(tau + beyond)).astype(np.float32)


def entropy_bits(laws: np.ndarray) -> np.ndarray:
    """float32 [O]: the entropy of each distribution, float64 [O, V], in bits."""
    bits: np.ndarray = (
        -np.where(laws > 0, laws * np.log2(np.where(laws > 0, laws, 1)), 0).sum(-1).astype(np.float32)
    )
    return bits


def place_to_explore(
    open: np.ndarray, entropy: np.ndarray, taken: np.ndarray, sure: np.ndarray, edge: int, least: int
) -> int | None:
    """The open place that the next pass explores: the most uncertain that stays open before `edge`, of equal ones the first.
    None if this pass committed `least` places that are sure, or where no other place stays open that could become so.

    open: int [O];  entropy: float [O];  taken, sure: bool [O], what is committed, and what reaches its bar
    """
    rest = np.flatnonzero(~taken & (open < edge))
    if int((taken & sure).sum()) >= least or not len(rest) or int((~taken).sum()) < 2:
        return None
    return int(open[rest[np.argmax(entropy[rest])]])


def count_sure_places(
    candidate: np.ndarray, confidence: np.ndarray, bars: np.ndarray, ends: Collection[int]
) -> list[int]:
    """Of each canvas, how many places reach their bar with a token that is none of `ends`: an end makes nothing else sure.
    candidate, confidence: [K, O];  bars: [O]"""
    counts: list[int] = (
        ((confidence >= bars) & ~np.isin(candidate, np.array(sorted(ends), np.int64))).sum(1).tolist()
    )
    return counts


def canvas_scores(chance: np.ndarray, sure: list[int], gain: float) -> np.ndarray:
    """float64 [K]: log of the token's probability, plus `gain` for each other place that is sure."""
    return np.log(np.maximum(chance.astype(np.float64), 1e-300)) + gain * np.array(sure, np.float64)


def settled_bits(confidence: np.ndarray) -> float:
    """Bits that tokens of this probability settle: the sum of -log2 p."""
    return float(-np.log2(np.maximum(confidence.astype(np.float64), 1e-300)).sum())
