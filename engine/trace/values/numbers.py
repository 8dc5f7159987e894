"""Checks of numbers in a record: their shapes, ranges and lengths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from .limits import TraceError

EPS = 1e-6  # a probability may miss [0, 1] by the rounding of its sum


def validate_array(array: np.ndarray, where: str, axes: int, kinds: str) -> None:
    """Refuse an array of other axes or another sort of number."""
    if array.ndim != axes or array.dtype.kind not in kinds:
        raise TraceError(
            f"{where} is {array.dtype} with {array.ndim} axes, where {axes} of kind '{kinds}' are due"
        )


def validate_range(array: np.ndarray, low: float, high: float, where: str) -> None:
    """Refuse numbers outside of [low, high], and those that are none."""
    if array.size and not bool(((array >= low) & (array <= high)).all()):  # false for nan too
        raise TraceError(f"{where} leaves the interval [{low:g}, {high:g}]")


def validate_probabilities(values: Iterable[float | None], where: str) -> None:
    """Refuse numbers that are not probabilities; None is one that is not recorded."""
    for i, value in enumerate(values):
        if value is not None and not -EPS <= value <= 1 + EPS:
            raise TraceError(f"{where}.{i} is {value}, which is no probability")


def validate_ids(tokens: Sequence[int], vocab: int, where: str) -> None:
    """Refuse ids outside the vocabulary."""
    if tokens and not (min(tokens) >= 0 and max(tokens) < vocab):
        raise TraceError(f"{where} holds an id outside the vocabulary of {vocab:,}")


def validate_counts(values: Sequence[int], where: str) -> None:
    """Refuse a count below 0."""
    if values and min(values) < 0:
        raise TraceError(f"{where} holds the negative count {min(values)}")


def validate_lengths(n: int, where: str, /, **columns: Sequence[object] | None) -> None:
    """Refuse columns of another length than n."""
    for name, column in columns.items():
        if column is not None and len(column) != n:
            raise TraceError(f"{where}.{name[:40]} has {len(column)} entries, where {n} are due")
