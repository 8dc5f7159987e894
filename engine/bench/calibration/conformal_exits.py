"""Conformal exits: at which layer a single prediction may leave, so that it seldom differs from the whole model's. No torch.

A table `scores`, float [m, L], says how sure the model was of m predictions in front of each of L exits, and `agrees`, bool
[m, L], whether its best answer there was the whole model's. Predictions that were calibrated on and those that come must be
exchangeable; tokens of one text are not quite, nor are later ones that read what exits left behind, which is why a text is
calibrated as a whole (`calibrate.py`).

Source: Schuster et al. 2021, arXiv:2104.08803, sections 4.1 to 4.3; TalSchuster/CATs, src/conformal.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float64]
Agrees = npt.NDArray[np.bool_]
Procedure = Literal["naive", "static", "independent", "shared"]
PROCEDURES: tuple[Procedure, ...] = ("naive", "static", "independent", "shared")
NEVER = float("inf")


def choose_exits(
    how: Procedure,
    x: Scores,
    scores: Scores,
    agrees: Agrees,
    eps: float,
    chance: np.random.Generator | None = None,
) -> npt.NDArray[np.int64]:
    """The exit 0 to L of each prediction x, float [n, L], int64 [n]; L: no exit, the whole model answers.

    naive:       the first exit whose score is at least 1 - eps; the table is not read, and nothing is guaranteed
    static:      the first exit at which a share of 1 - eps of the table agrees, whatever x is; nothing is guaranteed of further
                 predictions
    independent: the first exit whose p-value is below eps / L (Bonferroni), (above + u equal + 1) / (m' + 1) among the m' that
                 disagreed there; u is drawn from `chance` where scores are equal, and 1 without it, which leaves no sooner
    shared:      the first exit whose score is above a threshold. For each prediction that disagreed anywhere, take the highest
                 score at which it did so, and add one infinite score. The threshold is their 1 - eps quantile, rounded up

    Under independent and shared the chance to leave where the whole model disagrees is at most eps.
    """
    layers = x.shape[1]
    if how == "independent" and chance is not None:
        passes = np.stack(
            [_p_values(x[:, i], scores[~agrees[:, i], i], chance) < eps / layers for i in range(layers)], 1
        )
    else:
        passes = x >= np.asarray(exit_thresholds(how, scores, agrees, eps))
    exits: npt.NDArray[np.int64] = np.where(passes.any(1), passes.argmax(1), layers)
    return exits


def exit_thresholds(how: Procedure, scores: Scores, agrees: Agrees, eps: float) -> tuple[float, ...]:
    """For each exit the score from which on a prediction leaves there, as `confidence_exit.thresholds` takes them.

    It is infinite where no prediction leaves, 0 where all do. Equal scores count as above. Raises ValueError for tables without
    rows.
    """
    if scores.shape != agrees.shape or not len(scores) or not 0 < eps < 1:
        raise ValueError(
            f"scores {scores.shape} and agrees {agrees.shape} must be one table with rows, and eps from 0 to 1."
        )
    layers = scores.shape[1]
    if how == "naive":
        naive: tuple[float, ...] = (1 - eps,) * layers
        return naive
    if how == "static":
        right = agrees.mean(0) >= 1 - eps
        return tuple(0.0 if x else NEVER for x in right)
    if how == "independent":
        return tuple(_least_score(scores[~agrees[:, i], i], eps / layers) for i in range(layers))
    odd = ~agrees.all(1)
    worst = np.where(agrees[odd], -np.inf, scores[odd]).max(1, initial=-np.inf)
    quantile = np.quantile(np.append(worst, np.inf), 1 - eps, method="higher")
    thresholds: tuple[float, ...] = (float(np.nextafter(quantile, np.inf)),) * layers
    return thresholds


def _p_values(x: Scores, disagreed: Scores, chance: np.random.Generator) -> Scores:
    """The p-values [n] of scores x [n] among those that disagreed [m']."""
    above = (disagreed > x[:, None]).sum(1)
    equal = (disagreed == x[:, None]).sum(1) * chance.random(len(x))
    p: Scores = (above + equal + 1) / (len(disagreed) + 1)
    return p


def _least_score(disagreed: Scores, eps: float) -> float:
    """The least score x with (as many of `disagreed` as are at least x, + 1) / (m' + 1) below eps."""
    m = len(disagreed)
    may = int(((np.arange(m + 1) + 1) / (m + 1) < eps).sum())  # so many may be at x or above, and one less
    if may == 0:
        return NEVER
    return float(np.nextafter(np.sort(disagreed)[::-1][may - 1], np.inf)) if may <= m else 0.0


def cap_thresholds(bounds: Sequence[float], high: float = 1.01) -> tuple[float, ...]:
    """Bounds as a knob takes them: a bound that is never reached becomes `high`, above every probability."""
    return tuple(min(high, x) for x in bounds)
