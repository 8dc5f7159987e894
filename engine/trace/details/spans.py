"""Spans: which spans of a passage are the best answers, by what each of them costs."""

from __future__ import annotations

import numpy as np

MOST = 1 << 18  # numbers of a map; a larger one is not kept
BEST = 8  # spans that are listed, besides the greedy one


def span_costs(losses: np.ndarray, normal: bool) -> np.ndarray:
    """float [n, T]: what is minimised, infinite where there is no span."""
    per = np.arange(2, losses.shape[1] + 2) if normal else 1
    return np.where(np.isnan(losses), np.inf, losses / per)


def rank_spans(losses: np.ndarray, normal: bool, most: int) -> list[tuple[int, int]]:
    """(first, tokens) of the best spans, the best first, of equal ones the first; at most `most`."""
    values = span_costs(losses, normal).ravel()
    order = np.argsort(values, kind="stable")[:most]
    return [
        (int(at) // losses.shape[1], int(at) % losses.shape[1] + 1) for at in order if np.isfinite(values[at])
    ]
