"""References: the arithmetic of labelled answers that vote, which the router and the check of a trace share."""

from __future__ import annotations

from collections.abc import Sequence


def vote_share(weights: Sequence[float]) -> float:
    """The result of the references' votes, from 0, all against the answer, to 1, all for it."""
    most = sum(map(abs, weights))
    return 0.5 + 0.5 * sum(weights) / most if most else 0.5


def compare_to_reference(logp: float, reference: float, tie: float) -> int:
    """Compare an answer with a reference by their mean log-probabilities: 1 likelier, 0 alike, -1 less likely."""
    if abs(logp - reference) <= tie:
        return 0
    return 1 if logp > reference else -1


def vote_weight(weights: Sequence[float], right: bool, judged: int) -> float:
    """The weight of a reference's vote. weights: for an answer above, at and below a right reference, then a wrong one"""
    return weights[3 * (not right) + 1 - judged]
