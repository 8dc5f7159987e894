"""Levels: what of a detail is kept at a recording level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from .declarations import CanvasForm, DetailColumn, DetailLevel, Form, ThreadsForm
from .shapes import CanvasDetail, Detail, MatrixDetail, ThreadsDetail

ORDER = get_args(DetailLevel)


def kept_at(level: str, details: Sequence[Detail], forms: Mapping[str, Form]) -> list[Detail]:
    """The details with the columns and values that `level` keeps; a detail of which no column is kept is left out.

    Raises KeyError for a detail that the method does not declare.
    """
    kept = []
    for detail in details:
        form = forms[detail.name]
        if isinstance(form, ThreadsForm | CanvasForm) and not keeps(level, form.level):
            continue
        if all(_keeps(level, one) for one in (*form.columns, *form.values)):
            kept.append(detail)
            continue
        if isinstance(detail, MatrixDetail | ThreadsDetail):
            continue
        columns = {one.name for one in form.columns if _keeps(level, one)}
        values = {one.name for one in form.values if _keeps(level, one)}
        left: dict[str, Any] = {
            "columns": {name: x for name, x in detail.columns.items() if name in columns},
            "values": {name: x for name, x in detail.values.items() if name in values},
        }
        if columns or isinstance(detail, CanvasDetail):
            kept.append(replace(detail, **left))
    return kept


def keeps(level: str, needed: str) -> bool:
    """Whether what is recorded from level `needed` on is recorded at `level`."""
    return ORDER.index(needed) <= ORDER.index(level)


def _keeps(level: str, one: DetailColumn) -> bool:
    return keeps(level, one.level)
