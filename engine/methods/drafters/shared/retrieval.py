"""Retrieval: the windows of a long prompt that match the question at its end, by BM25 over token ids."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np


def retrieve_positions(prompt: Sequence[int], budget: int, window: int, query: int) -> list[int]:
    """Positions, ascending, of at most `budget` tokens of `prompt`: all of them if the prompt is not longer.

    Otherwise they are its first token, the question (its last `query` tokens), and the best windows between. The text between
    is cut into windows of `window` tokens. Windows are taken by BM25 score for the question's tokens, best first, as long as
    each fits. Of windows with the same score, the earlier comes first.
    """
    return list(_retrieve_positions(tuple(prompt), budget, window, query))


@lru_cache(maxsize=4)
def _retrieve_positions(prompt: tuple[int, ...], budget: int, window: int, query: int) -> tuple[int, ...]:
    n = len(prompt)
    if n <= budget:
        return tuple(range(n))
    end = n - min(query, budget - 1)
    spans = [range(at, min(at + window, end)) for at in range(1, end, window)]
    scores = bm25_scores([prompt[x.start : x.stop] for x in spans], prompt[end:])
    kept, room = [0, *range(end, n)], budget - 1 - (n - end)
    for i in np.argsort(-scores, kind="stable").tolist():
        if len(spans[i]) <= room:
            kept += spans[i]
            room -= len(spans[i])
    return tuple(sorted(kept))


def bm25_scores(windows: Sequence[Sequence[int]], query: Sequence[int]) -> np.ndarray:
    """float32 [len(windows)]: the BM25 score of each window for the tokens of `query` (k1 = 1.5, b = 0.75)."""
    if not windows:
        return np.zeros(0, np.float32)
    from bm25s import BM25

    index = BM25()
    index.index([[str(x) for x in window] for window in windows], show_progress=False)
    scores: np.ndarray = index.get_scores([str(x) for x in query])
    return scores
