"""Levels: what of a detail is kept at a recording level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from .declarations import (
    CanvasForm,
    DetailColumn,
    DetailLevel,
    Form,
    MatrixForm,
    NodeOutcome,
    ThreadsForm,
    TreeForm,
)
from .shapes import CanvasDetail, Detail, MatrixDetail, ThreadsDetail, TreeDetail

ORDER = get_args(DetailLevel)


def filter_details(level: str, details: Sequence[Detail], forms: Mapping[str, Form]) -> list[Detail]:
    """The details with the columns and values that `level` keeps; a detail that keeps no column is left out.

    Raises KeyError for a detail that the method does not declare.
    """
    kept = []
    for detail in details:
        form = forms[detail.name]
        if isinstance(form, MatrixForm):
            kept += [detail] * _is_kept(level, form)
            continue
        if isinstance(detail, TreeDetail) and isinstance(form, TreeForm):
            detail = _filter_nodes(level, detail, form)
        if isinstance(form, ThreadsForm | CanvasForm) and not level_includes(level, form.level):
            continue
        if all(_is_kept(level, one) for one in (*form.columns, *form.values)):
            kept.append(detail)
            continue
        if isinstance(detail, ThreadsDetail | MatrixDetail):
            continue
        columns = {one.name for one in form.columns if _is_kept(level, one)}
        values = {one.name for one in form.values if _is_kept(level, one)}
        left: dict[str, Any] = {
            "columns": {name: x for name, x in detail.columns.items() if name in columns},
            "values": {name: x for name, x in detail.values.items() if name in values},
        }
        if columns or isinstance(detail, CanvasDetail):
            kept.append(replace(detail, **left))
    return kept


def _filter_nodes(level: str, detail: TreeDetail, form: TreeForm) -> TreeDetail:
    """The tree with the nodes that have outcomes kept at `level`. No kept node follows a dropped one."""
    words = detail.columns.get("outcome", ())
    kept = [node for node, word in enumerate(words) if _is_kept(level, form.outcomes[word])]
    if len(kept) == len(words):
        return detail
    return replace(
        detail,
        parents=[detail.parents[node] for node in kept],
        columns={name: [column[node] for node in kept] for name, column in detail.columns.items()},
    )


def level_includes(level: str, needed: str) -> bool:
    """True if what is recorded from level `needed` on is recorded at `level`."""
    return ORDER.index(needed) <= ORDER.index(level)


def _is_kept(level: str, one: DetailColumn | MatrixForm | NodeOutcome) -> bool:
    return level_includes(level, one.level)
