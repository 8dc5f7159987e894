"""Chapter 9, choosing words: truncated distributions, and min-p as a rule."""

from __future__ import annotations

from collections.abc import Sequence

from ..exercise import Exercise, same_function

_CASES = (
    ([0.5, 0.25, 0.15, 0.06, 0.04], 0.2),
    ([0.15, 0.06, 0.5, 0.04, 0.25], 0.2),
    ([0.05, 0.04, 0.04, 0.03], 0.7),
    ([0.9, 0.1], 0.05),
)


def _min_p(p: Sequence[float], share: float) -> list[int]:
    return [i for i, x in enumerate(p) if x >= share * max(p)]


def _absolute_threshold(p: Sequence[float], share: float) -> list[int]:
    return [i for i, x in enumerate(p) if x >= share]


def _removed_ids(p: Sequence[float], share: float) -> list[int]:
    return [i for i, x in enumerate(p) if x < share * max(p)]


def _top_p(p: Sequence[float], share: float) -> list[int]:
    order = sorted(range(len(p)), key=lambda i: -p[i])
    return sorted(i for k, i in enumerate(order) if sum(p[j] for j in order[:k]) < 1 - share)


def _kept_values(p: Sequence[float], share: float) -> list[float]:
    return [x for x in p if x >= share * max(p)]


min_p = Exercise(
    "Which tokens does keep(p, share) keep?",
    _min_p,
    [
        (
            _absolute_threshold,
            "That compares with the share itself. Min-p compares with a share of the likeliest token's probability.",
        ),
        (_removed_ids, "Those are the tokens that are cut; keep the others."),
        (
            _top_p,
            "That is top-p with the rest of the mass. Min-p looks at no sum, only at each token compared with the likeliest.",
        ),
        (
            _kept_values,
            "Those are the probabilities; give the places of the tokens that stay, counted from 0.",
        ),
    ],
    same=same_function(*_CASES),
    because="A token stays if it is at least `share` times as likely as the likeliest one.",
    otherwise="Try it on [0.5, 0.25, 0.15, 0.06, 0.04] with share = 0.2: at least 0.1 is asked, so it gives [0, 1, 2].",
)
scaled = Exercise(
    "How likely is the first token after the cut?",
    0.5 / 0.9,
    [
        (0.5, "That is its probability before the cut. What is kept has to sum to 1 again."),
        (0.5 / 0.75, "The token that crosses the line stays: two hold 0.75, which is less than 0.8."),
        (0.5 / 0.8, "Divide by the mass that was kept, not by the mass that was asked for."),
    ],
    because="Three tokens stay; they hold 0.9, so each of them becomes 1 / 0.9 times as likely.",
    otherwise="Which tokens stay, and what is the sum of their probabilities? Divide by it.",
)
