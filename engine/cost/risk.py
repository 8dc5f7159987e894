"""Risk: p-values of "the expected loss is above delta", and how far a walk from the safe end of a grid may go."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def hoeffding(losses: Sequence[float], delta: float) -> float:
    """exp(-2 n (delta - mean)^2) if the mean is below delta, else 1; losses are in [0, 1].

    Source: Schuster et al. 2022, arXiv:2207.07061, section 4.1.
    """
    return math.exp(-2 * len(losses) * max(0.0, delta - _mean(losses)) ** 2)


def binomial(losses: Sequence[float], delta: float) -> float:
    """The chance of at most as many ones as `losses` has, among n draws of a coin with the chance delta; losses are 0 or 1.

    Source: Angelopoulos et al. 2021, arXiv:2110.01052, section 2.2.
    """
    return _binomial_cdf(round(sum(losses)), len(losses), delta)


def hoeffding_bentkus(losses: Sequence[float], delta: float) -> float:
    """The p-value of Hoeffding and Bentkus: the smaller of two bounds, at most 1; losses are in [0, 1].

    The first is exp(-n h(min(mean, delta), delta)), with h the relative entropy of two coins. The second is e times the chance
    of at most ceil(n mean) ones among n draws of a coin delta.

    Source: Angelopoulos et al. 2021, arXiv:2110.01052, section 2.2; Bates et al. 2021, arXiv:2101.02703, section 3.1.
    """
    n, mean = len(losses), _mean(losses)
    tight = math.exp(-n * _relative_entropy(min(mean, delta), delta))
    ones = math.ceil(math.fsum(losses) - 1e-9)  # a sum of doubles that should be whole is not the next number
    return min(1.0, tight, math.e * _binomial_cdf(ones, n, delta))


def fixed_sequence_test(ps: Iterable[float], eps: float) -> int:
    """How many hypotheses, tested each at eps in an order that was fixed beforehand, are rejected before one is not.

    The chance that a true one is among them is at most eps.

    Source: Angelopoulos et al. 2021, arXiv:2110.01052, section 2.3; Schuster et al. 2022, section 4.1.
    """
    count = 0
    for p in ps:
        if p > eps:
            break
        count += 1
    return count


def _mean(losses: Sequence[float]) -> float:
    return math.fsum(losses) / len(losses)


def _relative_entropy(a: float, b: float) -> float:
    """a log(a / b) + (1 - a) log((1 - a) / (1 - b)), of a <= b."""
    if b >= 1.0:
        return 0.0 if a >= 1.0 else math.inf
    left = a * math.log(a / b) if a > 0 else 0.0
    right = (1 - a) * math.log((1 - a) / (1 - b)) if a < 1 else 0.0
    return left + right


def _binomial_cdf(k: int, n: int, p: float) -> float:
    """P(Bin(n, p) <= k)."""
    if k >= n or p <= 0.0:
        return 1.0
    if p >= 1.0:
        return 0.0
    logs = [
        math.lgamma(n + 1)
        - math.lgamma(i + 1)
        - math.lgamma(n - i + 1)
        + i * math.log(p)
        + (n - i) * math.log1p(-p)
        for i in range(k + 1)
    ]
    top = max(logs)
    return min(1.0, math.exp(top) * math.fsum(math.exp(x - top) for x in logs))
