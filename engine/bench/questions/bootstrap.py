"""Bootstrap: the confidence interval of a figure, from resampled values. No torch."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import numpy as np

SURE = 0.9  # of the interval


def bootstrap_interval(
    values: Sequence[float],
    draws: int = 400,
    sure: float = SURE,
    of: Callable[[Sequence[float]], float] = statistics.median,
) -> list[float]:
    """The percentile bootstrap of a figure: the middle share `sure` of its values over resampled data.

    The figure is the median, or what `of` computes. Each draw takes as many values as there are, with replacement. The draws
    are those of `random.Random(0).choices`, all made at once.
    """
    there = np.empty(len(values), object)  # whole numbers stay whole
    there[:] = values
    places = (np.random.RandomState([0]).random_sample((draws, len(values))) * len(values)).astype(int)
    means = sorted(of(drawn) for drawn in there[places].tolist())
    cut = round((1 - sure) / 2 * draws)
    return [means[cut], means[draws - 1 - cut]]
