"""Matrix: the cells of a matrix with what its declaration makes of them, for checks and views alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from .declarations import MatrixForm
from .scope import FormulaScope, Text, types_of
from .shapes import MatrixDetail

ROUNDING = 1e-9  # by which a number may leave its scale


class MatrixReading:
    """A matrix with its declaration.

    knobs:   of the part that recorded it;  emitted: ids that the step added to the text
    text:    ids -> text, needed for sentences alone
    """

    def __init__(
        self,
        detail: MatrixDetail,
        form: MatrixForm,
        knobs: Mapping[str, Any],
        emitted: Sequence[int],
        text: Text | None = None,
    ):
        self.detail = detail
        self.form = form
        self._knobs = knobs
        self._emitted = len(emitted)
        self._text = text

    @cached_property
    def whole_scope(self) -> FormulaScope:
        """Names for the whole matrix."""
        rows, columns = self.detail.size
        numbers = self.detail.numbers
        own = {
            "rows": rows,
            "columns": columns,
            "cells": 0 if numbers is None else int(np.count_nonzero(np.isfinite(numbers))),
            "emitted": self._emitted,
        }
        marked = {f"{word}_at": row * columns + column for row, column, word in reversed(self.detail.marks)}
        return FormulaScope(
            {**self._knobs, **own, **marked, **self.detail.values},
            types_of(self.form.values),
            None,
            self._text,
        )

    @cached_property
    def cell_names(self) -> frozenset[str]:
        """Names that differ from cell to cell."""
        labels = (x.name for x in (*self.form.rows, *self.form.columns))
        return frozenset(["value", "judged", "row", "column", "rank", *self.form.marks, *labels])


def matrix_problems(reading: MatrixReading) -> Iterator[str]:
    """Problems of a matrix by its own declaration, a phrase each."""
    numbers, scale = reading.detail.numbers, reading.form.scale
    if numbers is None or not scale:
        return
    low, high = scale
    # false for none
    outside = (numbers < low - ROUNDING) | (numbers > high + ROUNDING)
    if outside.any():
        row, column = np.argwhere(outside)[0].tolist()
        yield (
            f"row {row + 1}, column {column + 1} of {reading.detail.name} is {numbers[row, column]:.6g}, outside of "
            f"{low:g} to {high:g}"
        )
