"""Votes: how like texts are, and which of them is most like all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MEASURES: tuple[str, ...] = ("exact", "f1", "edit")  # by which texts vote


@dataclass
class VoteResult:
    """A vote of n texts.

    chosen: which of them has the most votes, from 0;  like: float64 [n, n], how like each two of them are, from 0 to 1
    votes:  of each text the mean of its row
    outcomes: of each text "chosen", "same" as that, "equal" in votes, or "fewer"
    """

    chosen: int
    like: np.ndarray
    votes: list[float]
    outcomes: list[str]


def text_similarity(a: Sequence[int], b: Sequence[int], by: str) -> float:
    """How like two texts are, from 0 to 1; the same whichever comes first."""
    if a == b or by == "exact":
        return float(a == b)
    if by == "f1":
        return 2 * (Counter(a) & Counter(b)).total() / (len(a) + len(b))
    return 1 - edit_distance(a, b) / max(len(a), len(b))


def edit_distance(a: Sequence[int], b: Sequence[int]) -> int:
    """Tokens that must be put in, taken out or replaced to make b of a: one column of the table of distances at a time, its
    differences as bits of two words (Myers 1999, in the form of Hyyrö 2003)."""
    at: dict[int, int] = {}
    for i, token in enumerate(a):
        at[token] = at.get(token, 0) | 1 << i
    every = (1 << len(a)) - 1
    last = 1 << len(a) >> 1
    total = len(a)
    up, down = every, 0
    for token in b:
        equal = at.get(token, 0)
        zero = (((equal & up) + up) ^ up) | equal | down
        right, left = down | (every & ~(zero | up)), up & zero
        total += bool(right & last) - bool(left & last)
        right, left = (right << 1 | 1) & every, left << 1 & every
        up, down = left | (every & ~(zero | right)), right & zero
    return total


def hold_vote(texts: Sequence[Sequence[int]], logp: Sequence[float], by: str) -> VoteResult:
    """The vote of all texts of a run, by a measure. Of texts with equal votes, the one that the model finds likelier wins; then
    the one with the lower ids. Sums are exact, so the order of the texts decides nothing."""
    n = len(texts)
    keys = [tuple(x) for x in texts]
    like = np.ones((n, n))
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}
    for i, one in enumerate(keys):
        for j, other in enumerate(keys[:i]):
            if (one, other) not in known:
                known[one, other] = known[other, one] = text_similarity(one, other, by)
            like[i, j] = like[j, i] = known[one, other]
    votes = [math.fsum(row) / n for row in like.tolist()]
    best: dict[tuple[int, ...], float] = {}
    for key, value in zip(keys, logp, strict=True):
        best[key] = max(best.get(key, value), value)
    chosen = min(range(n), key=lambda i: (-votes[i], -best[keys[i]], keys[i], i))
    outcomes = ["equal" if vote >= votes[chosen] else "fewer" for vote in votes]
    for i, key in enumerate(keys):
        if key == keys[chosen]:
            outcomes[i] = "same"
    outcomes[chosen] = "chosen"
    return VoteResult(chosen, like, votes, outcomes)
