"""Followers: the shares of the tokens that follow a context in a body of text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .suffix_array import SuffixArray


def follower_shares(store: SuffixArray, context: Sequence[int], tokens: np.ndarray) -> np.ndarray | None:
    """float64 [n]: of the places where a token follows `context`, the share where each of `tokens` (int [n], none twice) does.

    None if the context occurs nowhere, or only at the ends of documents.
    """
    low, high = store.find(context)
    if low == high:
        return None
    behind = store.windows(store.order[low:high], len(context), 1)[:, 0]
    behind = behind[behind >= 0]
    return (behind[:, None] == tokens).sum(0) / len(behind) if len(behind) else None


def interpolate_shares(
    store: SuffixArray, text: Sequence[int], tokens: np.ndarray, weights: Sequence[float]
) -> np.ndarray:
    """float64 [n]: sum over i of weights[i - 1] times the share of each of `tokens` behind the last i ids of `text`.

    A context that occurs nowhere adds nothing.
    """
    q = np.zeros(len(tokens))
    for n, weight in enumerate(weights[: len(text)], 1):
        share = follower_shares(store, text[-n:], tokens)
        if share is None:
            break  # a longer context does not occur either
        q += weight * share
    return q


def unigram_shares(store: SuffixArray, vocab: int) -> np.ndarray:
    """float64 [vocab]: the share of each id of all tokens of the store; all 0 where it holds none."""
    counts = np.bincount(store.ids[store.ids >= 0], minlength=vocab)[:vocab]
    shares: np.ndarray = counts / max(1, counts.sum())
    return shares


def follower_lift(store: SuffixArray, context: Sequence[int], alone: np.ndarray) -> np.ndarray | None:
    """float64 [V]: the share of each id behind `context`, divided by its share `alone` [V] of all tokens; 0 where it never
    follows.

    None if the context occurs nowhere, or only at the ends of documents.
    """
    low, high = store.find(context)
    behind = store.windows(store.order[low:high], len(context), 1)[:, 0]
    counts = np.bincount(behind[behind >= 0], minlength=len(alone))[: len(alone)]
    if not counts.any():
        return None
    lifts: np.ndarray = np.divide(counts / counts.sum(), alone, out=np.zeros(len(alone)), where=alone > 0)
    return lifts
