"""What must agree inside details and their declarations, checked while a trace is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from ..values.formula import FormulaError, formula, relation, sentence
from ..values.limits import TraceError
from ..values.numbers import counts, known, lengths, shaped
from .canvas_consistency import consistent_canvas
from .declarations import (
    CanvasForm,
    ColumnType,
    DetailColumn,
    DetailLevel,
    Form,
    MatrixForm,
    TallyForm,
    ThreadsForm,
)
from .shapes import CanvasDetail, Detail, MatrixDetail, TallyDetail, ThreadsDetail, TreeDetail

MOST_FORMS = 64  # declarations of a header
MOST_DETAILS = 64  # of a step
MOST_NAMES = 32  # columns, values, outcomes or sentences of a declaration
NAME = 64  # characters of a name
_TYPES: dict[str, frozenset[type]] = {
    "text": frozenset([str]),
    "token": frozenset([int]),
    "tokens": frozenset([int]),
}  # of the entries of a column; all others hold numbers


def consistent_forms(forms: Mapping[str, Form]) -> None:
    """Whether the declarations of a header can be read. Raises TraceError."""
    if len(forms) > MOST_FORMS:
        raise TraceError(f"details declares {len(forms)} names, above the limit of {MOST_FORMS}")
    for name, form in forms.items():
        where = f"details.{name[:20]}"
        if not 0 < len(name) <= NAME:
            raise TraceError(f"{where} has a name of {len(name)} characters, where 1 to {NAME} are due")
        for column in (*getattr(form, "rows", ()), *form.columns, *form.values):
            _column(column, where)
        try:
            for text in form.formulas():
                formula(text)
            for text in form.all_relations():
                relation(text)
            for one in form.sentences():
                sentence(one.text)
        except FormulaError as error:
            raise TraceError(f"{where}: {str(error).rstrip('.')}") from None
        if isinstance(form, TallyForm):
            _tally_form(form, where)
        if isinstance(form, ThreadsForm):
            _threads_form(form, where)
        if isinstance(form, CanvasForm):
            _canvas_form(form, where)


def _column(column: DetailColumn, where: str) -> None:
    if column.type not in get_args(ColumnType) or column.level not in get_args(DetailLevel):
        raise TraceError(
            f"{where} has a column of the type {column.type[:20]!r} at level {column.level[:20]!r}"
        )
    if not 0 < len(column.name) <= NAME:
        raise TraceError(f"{where} has a column whose name has {len(column.name)} characters")


def _tally_form(form: TallyForm, where: str) -> None:
    parts = form.columns, form.values, form.outcomes, form.order, [*form.all_relations()], [*form.sentences()]
    if any(len(part) > 4 * MOST_NAMES for part in parts):
        raise TraceError(f"{where} has more than {4 * MOST_NAMES} columns, outcomes or sentences")
    types = {x.name: x.type for x in form.columns}
    if form.emits and types.get(form.emits) not in ("token", "tokens"):
        raise TraceError(f"{where} emits {form.emits[:20]!r}, which is no column of tokens")
    if form.outcomes and types.get("outcome") != "text":
        raise TraceError(f"{where} has outcomes, and no text column 'outcome'")
    for part in form.order:
        if not part or not set(part.rstrip("*?").split("|")) <= form.outcomes.keys():
            raise TraceError(f"{where} orders {part[:20]!r}, which is no outcome")


def _threads_form(form: ThreadsForm, where: str) -> None:
    if max(len(form.ends), len([*form.sentences()])) > 4 * MOST_NAMES:
        raise TraceError(f"{where} has more than {4 * MOST_NAMES} sentences or reasons to end")
    if form.level not in get_args(DetailLevel):
        raise TraceError(f"{where} is kept at level {form.level[:20]!r}, which is none")


def _canvas_form(form: CanvasForm, where: str) -> None:
    parts = form.columns, form.values, form.words, form.rank, [*form.all_relations()], [*form.sentences()]
    if any(len(part) > 4 * MOST_NAMES for part in parts):
        raise TraceError(f"{where} has more than {4 * MOST_NAMES} columns, words or sentences")
    if form.level not in get_args(DetailLevel) or form.drawn not in ("canvas", "chain"):
        raise TraceError(f"{where} is drawn as {form.drawn[:20]!r}, or kept at level {form.level[:20]!r}")
    if {x.type for x in form.columns} - {"number", "token"}:
        raise TraceError(f"{where} has a column by open place that holds neither numbers nor tokens")


def consistent_details(details: Sequence[Detail], forms: Mapping[str, Form], vocab: int) -> None:
    """Lengths, types and ids of the details of a step. Raises TraceError."""
    if len(details) > MOST_DETAILS:
        raise TraceError(f"details has {len(details)} entries, above the limit of {MOST_DETAILS}")
    for detail in details:
        form = forms.get(detail.name)
        if form is not None and form.shape != detail.shape:
            raise TraceError(f"details.{detail.name[:20]} is a {detail.shape}, declared as a {form.shape}")
        where = f"details.{detail.name[:20]}"
        if isinstance(detail, MatrixDetail):
            _matrix(detail, form, where, vocab)
            continue
        if isinstance(detail, ThreadsDetail):
            _threads(detail, form, where, vocab)
            continue
        if isinstance(detail, CanvasDetail):
            consistent_canvas(detail, where, vocab)
            if form is not None:
                columns = {name: column.tolist() for name, column in detail.columns.items()}
                typed(columns, form.columns, where, vocab)
                typed({name: [value] for name, value in detail.values.items()}, form.values, where, vocab)
            if isinstance(form, CanvasForm) and (unknown := {*detail.rules} - form.words.keys()):
                raise TraceError(f"{where} settles by {min(unknown)[:20]!r}, which its declaration lacks")
            continue
        if isinstance(detail, TreeDetail):
            _tree(detail, where)
        else:
            _tally(detail, form, where)
        if form is not None:
            typed(detail.columns, form.columns, where, vocab)
            typed({name: [value] for name, value in detail.values.items()}, form.values, where, vocab)


def _tally(detail: TallyDetail, form: Form | None, where: str) -> None:
    lengths(len(detail), where, **{name[:20]: column for name, column in detail.columns.items()})
    if isinstance(form, TallyForm) and form.outcomes and len(detail):
        words = detail.columns.get("outcome")
        if words is None or not set(words) <= form.outcomes.keys():
            raise TraceError(f"{where} has a row without an outcome that its declaration knows")


def _tree(detail: TreeDetail, where: str) -> None:
    lengths(len(detail), where, **{name[:20]: column for name, column in detail.columns.items()})
    for node, parent in enumerate(detail.parents):
        if not parent >= -1 or not (detail.earlier or parent < node):
            raise TraceError(
                f"{where} has the node {node} behind {parent}: a parent comes before its children"
            )


def _threads(detail: ThreadsDetail, form: Form | None, where: str, vocab: int) -> None:
    lengths(len(detail), where, tokens=detail.tokens)
    known(detail.ids, vocab, where)
    named = [*detail.alive, *(x.thread for x in detail.begun), *(x.thread for x in detail.ended)]
    counts([*named, *(n for x in detail.begun for n in (x.at, x.parent + 1))], where)
    if isinstance(form, ThreadsForm) and (unknown := {x.why for x in detail.ended} - form.ends.keys()):
        raise TraceError(
            f"{where} has a thread that ended by {min(unknown)[:20]!r}, which its declaration lacks"
        )


def _matrix(detail: MatrixDetail, form: Form | None, where: str, vocab: int) -> None:
    shape = None
    if detail.numbers is not None:
        shaped(detail.numbers, f"{where}.numbers", 2, "f")
        shape = detail.numbers.shape
    for axis, labels in enumerate((detail.rows, detail.columns)):
        n = shape[axis] if shape else max(map(len, labels.values()), default=0)
        lengths(n, where, **{name[:20]: column for name, column in labels.items()})
    for mark in detail.marks:
        if len(mark) != 3 or type(mark[0]) is not int or type(mark[1]) is not int or type(mark[2]) is not str:
            raise TraceError(f"{where} has a mark that is not a row, a column and a word")
        if min(mark[:2]) < 0 or (shape is not None and not (mark[0] < shape[0] and mark[1] < shape[1])):
            raise TraceError(f"{where} marks row {mark[0]}, column {mark[1]}, which it lacks")
    if isinstance(form, MatrixForm):
        if unknown := {mark[2] for mark in detail.marks} - form.marks.keys():
            raise TraceError(f"{where} has the mark {min(unknown)[:20]!r}, which its declaration lacks")
        typed(detail.rows, form.rows, where, vocab)
        typed(detail.columns, form.columns, where, vocab)
        typed({name: [value] for name, value in detail.values.items()}, form.values, where, vocab)


def typed(columns: Mapping[str, list[Any]], declared: Sequence[DetailColumn], where: str, vocab: int) -> None:
    """Whether every column is declared and its entries have the type. Raises TraceError."""
    types = {x.name: x.type for x in declared}
    for name, column in columns.items():
        kind = types.get(name)
        if kind is None:
            raise TraceError(f"{where} has the column {name[:20]!r}, which its declaration lacks")
        entries = [x for x in column if x is not None]
        if kind in ("tokens", "numbers"):
            if any(type(x) is not list for x in entries):
                raise TraceError(f"{where}.{name[:20]} must have a list in each row")
            entries = [x for entry in entries for x in entry if x is not None]
        wanted = _TYPES.get(kind, frozenset([int, float, bool]))
        if not wanted.issuperset(map(type, entries)):
            raise TraceError(f"{where}.{name[:20]} must hold entries of the type {kind}")
        if kind in ("token", "tokens"):
            known(entries, vocab, f"{where}.{name[:20]}")


def token_ids(details: Sequence[Detail], forms: Mapping[str, Form]) -> list[int]:
    """All ids that the details name, so that a trace can show their texts; of one that is not declared those of its shape."""
    ids: list[int] = []
    for detail in details:
        if isinstance(detail, ThreadsDetail):
            ids += detail.ids
            continue
        if isinstance(detail, CanvasDetail):
            ids += detail.ids
        if (form := forms.get(detail.name)) is None:
            continue
        labels = (
            [(form.rows, detail.rows)] if isinstance(form, MatrixForm) and detail.shape == "matrix" else []
        )
        for declared, held in (*labels, (form.columns, detail.columns), (form.values, detail.values)):
            for one in declared:
                if one.type in ("token", "tokens") and one.name in held:
                    entries = held[one.name]
                    entries = entries.tolist() if isinstance(entries, np.ndarray) else entries
                    for entry in entries if isinstance(entries, list) else [entries]:
                        ids += entry if isinstance(entry, list) else [] if entry is None else [entry]
    return ids
