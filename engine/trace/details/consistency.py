"""Checks inside details and their declarations, made while a trace is read."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from ..values.formula import FormulaError, formula, names_in, relation, sentence
from ..values.limits import TraceError
from ..values.numbers import validate_array, validate_counts, validate_ids, validate_lengths
from .canvas_consistency import validate_canvas
from .declarations import (
    CanvasForm,
    ColumnType,
    DetailColumn,
    DetailLevel,
    Fate,
    Form,
    Growth,
    MarkStatus,
    MatrixForm,
    ScaleEnd,
    TallyForm,
    ThreadsForm,
    TreeForm,
)
from .shapes import CanvasDetail, Detail, MatrixDetail, TallyDetail, ThreadsDetail, TreeDetail

MOST_FORMS = 64  # declarations of a header
MOST_DETAILS = 64  # of a step
MOST_NAMES = 32  # columns, values, outcomes or sentences of a declaration
MOST_MARKS = 1024  # of a matrix
NAME = 64  # characters of a name
MOST_LANES = 8  # that are drawn next to each other
_TYPES: dict[str, frozenset[type]] = {
    "text": frozenset([str]),
    "token": frozenset([int]),
    "tokens": frozenset([int]),
}  # of the entries of a column; all others hold numbers


def validate_forms(forms: Mapping[str, Form]) -> None:
    """Check that the declarations of a header can be read. Raises TraceError."""
    if len(forms) > MOST_FORMS:
        raise TraceError(f"details declares {len(forms)} names, above the limit of {MOST_FORMS}")
    for name, form in forms.items():
        where = f"details.{name[:20]}"
        if not 0 < len(name) <= NAME:
            raise TraceError(f"{where} has a name of {len(name)} characters, where 1 to {NAME} are due")
        for column in (*getattr(form, "rows", ()), *form.columns, *form.values):
            _validate_column(column, where)
        try:
            for text in form.formulas():
                formula(text)
            for text in form.all_relations():
                relation(text)
            for one in form.sentences():
                sentence(one.text)
        except FormulaError as error:
            raise TraceError(f"{where}: {str(error).rstrip('.')}") from None
        _validate_form(form, where, forms)


def _validate_form(form: Form, where: str, forms: Mapping[str, Form]) -> None:
    """Check the rules that are particular to each shape."""
    if isinstance(form, TallyForm):
        _validate_tally_form(form, where)
    elif isinstance(form, MatrixForm):
        _validate_matrix_form(form, where, forms)
    elif isinstance(form, TreeForm):
        _validate_tree_form(form, where)
        _validate_judged(form, where, forms.get(form.judged))
    elif isinstance(form, ThreadsForm):
        _validate_threads_form(form, where)
    else:
        _validate_canvas_form(form, where)


def _validate_judged(form: TreeForm, where: str, judged: Form | None) -> None:
    """Check that a tree that names a tally of texts has one."""
    texts = [x.name for x in judged.columns if x.type == "tokens"] if isinstance(judged, TallyForm) else []
    if form.judged and form.text not in texts:
        raise TraceError(f"{where} names {form.judged[:20]!r}, which is no tally of texts")


def _validate_column(column: DetailColumn, where: str) -> None:
    if column.type not in get_args(ColumnType) or column.level not in get_args(DetailLevel):
        raise TraceError(
            f"{where} has a column of the type {column.type[:20]!r} at level {column.level[:20]!r}"
        )
    if not 0 < len(column.name) <= NAME:
        raise TraceError(f"{where} has a column whose name has {len(column.name)} characters")


def _validate_drawings(form: TallyForm, types: Mapping[str, str], where: str) -> None:
    """Check that lanes and scale name existing columns. Raises TraceError."""
    if (lanes := form.lanes) is not None:
        if types.get(lanes.column) != "text" or types.get(lanes.token) != "token":
            raise TraceError(f"{where} draws lanes without a text column of lanes and one of tokens")
        if not 0 < len(lanes.lanes) <= MOST_LANES:
            raise TraceError(f"{where} draws {len(lanes.lanes)} lanes, where 1 to {MOST_LANES} are due")
    if (scale := form.scale) is not None:
        if scale.tokens and types.get(scale.tokens) != "tokens":
            raise TraceError(
                f"{where} draws the texts of {scale.tokens[:20]!r}, which is no column of tokens"
            )
        if scale.prices is not None and not 0 < len(scale.prices.lanes) <= MOST_LANES:
            raise TraceError(f"{where} has the prices of {len(scale.prices.lanes)} lanes")


def _validate_tally_form(form: TallyForm, where: str) -> None:
    parts = (
        form.columns,
        form.values,
        form.outcomes,
        form.order,
        [*form.all_relations()],
        [*form.sentences()],
        form.looks,
    )
    if any(len(part) > 4 * MOST_NAMES for part in parts):
        raise TraceError(f"{where} has more than {4 * MOST_NAMES} columns, outcomes or sentences")
    types = {x.name: x.type for x in form.columns}
    if form.emits and types.get(form.emits) not in ("token", "tokens"):
        raise TraceError(f"{where} emits {form.emits[:20]!r}, which is no column of tokens")
    if not set(form.emitting) <= form.outcomes.keys():
        raise TraceError(f"{where} emits rows of an outcome that it lacks")
    if form.closes and form.closes not in {x.name for x in form.values if x.type == "token"}:
        raise TraceError(f"{where} closes with {form.closes[:20]!r}, which is no value of a token")
    if form.outcomes and types.get("outcome") != "text":
        raise TraceError(f"{where} has outcomes, and no text column 'outcome'")
    for part in form.order:
        if not part or not set(part.rstrip("*?").split("|")) <= form.outcomes.keys():
            raise TraceError(f"{where} orders {part[:20]!r}, which is no outcome")
    _validate_drawings(form, types, where)


def _validate_matrix_form(form: MatrixForm, where: str, forms: Mapping[str, Form]) -> None:
    parts = form.rows, form.columns, form.values, form.marks, [*form.sentences()]
    if any(len(part) > 4 * MOST_NAMES for part in parts):
        raise TraceError(f"{where} has more than {4 * MOST_NAMES} labels, marks or sentences")
    if form.strong not in get_args(ScaleEnd) or form.level not in get_args(DetailLevel):
        raise TraceError(f"{where} is strong at {form.strong[:20]!r} and kept from {form.level[:20]!r}")
    if wrong := [x.status for x in form.marks.values() if x.status not in get_args(MarkStatus)]:
        raise TraceError(f"{where} has a mark of the status {wrong[0][:20]!r}")
    if form.scale and not (
        len(form.scale) == 2 and all(map(math.isfinite, form.scale)) and form.scale[0] < form.scale[1]
    ):
        raise TraceError(f"{where} has a scale that is not two numbers, the lower one first")
    for label, labels in ((form.side, form.rows), (form.head, form.columns)):
        if label and label not in {x.name for x in labels}:
            raise TraceError(f"{where} shows the label {label[:20]!r}, which it lacks")
    for name in filter(None, (form.rows_of, form.cells_of)):
        if not isinstance(forms.get(name), TallyForm):
            raise TraceError(f"{where} belongs to {name[:20]!r}, which is no tally of the header")
    if not {"judged", "rank"}.isdisjoint(names_in(formula(form.judged))):
        raise TraceError(f"{where} judges its cells by what comes of it")
    if len(form.at) != (2 if form.cells_of else 0):
        raise TraceError(f"{where} finds its cells by {len(form.at)} formulas")
    points = {
        "row",
        "column",
        "value",
        "row_text",
        "column_text",
        *(x.name for x in (*form.rows, *form.columns)),
    }
    if any(
        not isinstance(part, str) and not (isinstance(part[0], str) and part[0] in points)
        for part in sentence(form.hover)
    ):
        raise TraceError(f"{where} writes more than names of a cell where a reader points")


def _validate_tree_form(form: TreeForm, where: str) -> None:
    growth = form.growth
    parts = (
        form.columns,
        form.values,
        form.outcomes,
        form.figures,
        [*form.all_relations()],
        [*form.sentences()],
    )
    if any(len(part) > 4 * MOST_NAMES for part in parts) or (
        growth is not None and len(growth.terms) > MOST_NAMES
    ):
        raise TraceError(f"{where} has more than {4 * MOST_NAMES} columns, outcomes or sentences")
    due = [(form.token, "token")]
    due += [(form.group, "number")] if form.group else []
    due += [("outcome", "text")] if form.outcomes else []
    due += [] if growth is None else [*growth.columns().items()]
    types = {x.name: x.type for x in form.columns}
    for name, kind in due:
        if types.get(name) != kind:
            raise TraceError(f"{where} has no column {name[:20]!r} of the type {kind}")
    for word, outcome in form.outcomes.items():
        if outcome.fate not in get_args(Fate) or outcome.level not in get_args(DetailLevel):
            raise TraceError(f"{where} has the outcome {word[:20]!r} of the fate {outcome.fate[:20]!r}")
    if growth is not None and (growth.closed not in form.outcomes or len(growth.scale) != 2):
        raise TraceError(
            f"{where} closes nodes as {growth.closed[:20]!r}, which is no outcome, or lacks a scale"
        )


def _validate_threads_form(form: ThreadsForm, where: str) -> None:
    if max(len(form.ends), len([*form.sentences()])) > 4 * MOST_NAMES:
        raise TraceError(f"{where} has more than {4 * MOST_NAMES} sentences or reasons to end")
    if form.level not in get_args(DetailLevel):
        raise TraceError(f"{where} is kept at level {form.level[:20]!r}, which is none")


def _validate_canvas_form(form: CanvasForm, where: str) -> None:
    parts = form.columns, form.values, form.words, form.rank, [*form.all_relations()], [*form.sentences()]
    if any(len(part) > 4 * MOST_NAMES for part in parts):
        raise TraceError(f"{where} has more than {4 * MOST_NAMES} columns, words or sentences")
    if form.level not in get_args(DetailLevel) or form.drawn not in ("canvas", "chain"):
        raise TraceError(f"{where} is drawn as {form.drawn[:20]!r}, or kept at level {form.level[:20]!r}")
    if {x.type for x in form.columns} - {"number", "token"}:
        raise TraceError(f"{where} has a column by open place that holds neither numbers nor tokens")


def validate_details(details: Sequence[Detail], forms: Mapping[str, Form], vocab: int) -> None:
    """Lengths, types and ids of the details of a step. Raises TraceError."""
    if len(details) > MOST_DETAILS:
        raise TraceError(f"details has {len(details)} entries, above the limit of {MOST_DETAILS}")
    for detail in details:
        form = forms.get(detail.name)
        if form is not None and form.shape != detail.shape:
            raise TraceError(f"details.{detail.name[:20]} is a {detail.shape}, declared as a {form.shape}")
        where = f"details.{detail.name[:20]}"
        if isinstance(detail, MatrixDetail):
            _validate_matrix(detail, form, where, vocab)
            continue
        if isinstance(detail, ThreadsDetail):
            _validate_threads(detail, form, where, vocab)
            continue
        if isinstance(detail, CanvasDetail):
            _validate_canvas(detail, form, where, vocab)
            continue
        if form is not None:
            validate_columns(detail.columns, form.columns, where, vocab)
            validate_columns(
                {name: [value] for name, value in detail.values.items()}, form.values, where, vocab
            )
        if isinstance(detail, TreeDetail):
            _validate_tree(detail, form, details, where)
        else:
            _validate_tally(detail, form, where)
    for detail in details:
        if isinstance(detail, MatrixDetail):
            _validate_matrix_tally(detail, forms.get(detail.name), details)


def _validate_canvas(detail: CanvasDetail, form: Form | None, where: str, vocab: int) -> None:
    validate_canvas(detail, where, vocab)
    if not isinstance(form, CanvasForm):
        return
    columns = {name: column.tolist() for name, column in detail.columns.items()}
    validate_columns(columns, form.columns, where, vocab)
    validate_columns({name: [value] for name, value in detail.values.items()}, form.values, where, vocab)
    if unknown := {*detail.rules} - form.words.keys():
        raise TraceError(f"{where} settles by {min(unknown)[:20]!r}, which its declaration lacks")


def _validate_matrix_tally(detail: MatrixDetail, form: Form | None, details: Sequence[Detail]) -> None:
    """Check that the tally that a matrix belongs to is there."""
    if not isinstance(form, MatrixForm):
        return
    where = f"details.{detail.name[:20]}"
    tallies = {x.name: len(x) for x in reversed(details) if isinstance(x, TallyDetail)}
    for name in filter(None, (form.rows_of, form.cells_of)):
        if name not in tallies:
            raise TraceError(f"{where} is there without {name[:20]!r}, which it belongs to")
    rows, columns = detail.size
    if form.rows_of and rows != (n := tallies[form.rows_of]):
        raise TraceError(f"{where} has {rows} rows, where {n} are due")
    if form.square and rows != columns:
        raise TraceError(f"{where} has {columns} columns, where {rows} are due")


def _validate_tally(detail: TallyDetail, form: Form | None, where: str) -> None:
    validate_lengths(len(detail), where, **detail.columns)
    if not isinstance(form, TallyForm) or not len(detail):
        return
    if form.outcomes and not _all_among(detail.columns.get("outcome"), form.outcomes):
        raise TraceError(f"{where} has a row without an outcome that its declaration knows")
    if form.lanes is not None and not _all_among(detail.columns.get(form.lanes.column), form.lanes.lanes):
        raise TraceError(f"{where} has a row without a lane that its declaration knows")


def _all_among(column: Sequence[Any] | None, words: Container[str]) -> bool:
    """True if a column is there and all of its entries are among these words."""
    return column is not None and all(type(x) is str and x in words for x in column)


def _validate_tree(detail: TreeDetail, form: Form | None, details: Sequence[Detail], where: str) -> None:
    validate_lengths(len(detail), where, **detail.columns)
    for node, parent in enumerate(detail.parents):
        if not parent >= -1 or not (detail.earlier or parent < node):
            raise TraceError(
                f"{where} has the node {node} behind {parent}: a parent comes before its children"
            )
    if not isinstance(form, TreeForm):
        return
    words = detail.columns.get("outcome")
    if (
        form.outcomes
        and len(detail)
        and (words is None or not all(type(x) is str and x in form.outcomes for x in words))
    ):
        raise TraceError(f"{where} has a node without an outcome that its declaration knows")
    fates = [form.outcomes[word].fate == "open" for word in words or ()]
    if detail.earlier and fates != sorted(fates, reverse=True):
        raise TraceError(f"{where} has a node that goes on behind one that does not")
    if form.growth is not None:
        _validate_candidates(detail, form.growth, where)
    if form.judged:
        rows = [x for x in details if x.name == form.judged and isinstance(x, TallyDetail)]
        if len(rows) != 1 or len(rows[0]) != len(detail) - 1:
            raise TraceError(f"{where} has not one row of {form.judged[:20]} for each node behind the first")


def _validate_candidates(detail: TreeDetail, growth: Growth, where: str) -> None:
    """Of a tree that can be made again each node after the first has a token and a parent, and a number of each candidate."""
    if missing := {*growth.columns(), "outcome"} - detail.columns.keys():
        raise TraceError(f"{where} lacks the column {min(missing)[:20]!r}")
    if not len(detail) or detail.parents[0] != -1 or any(parent < 0 for parent in detail.parents[1:]):
        raise TraceError(f"{where} has a node that is not behind the first")
    numbers = (x for name in (growth.visits, growth.values) for x in detail.columns[name])
    if any(x is None for x in numbers):
        raise TraceError(f"{where} has a node without its visits or value")
    for tokens, priors in zip(detail.columns[growth.candidates], detail.columns[growth.priors], strict=True):
        if type(tokens) is not list or type(priors) is not list or len(tokens) != len(priors):
            raise TraceError(f"{where} has candidates without a number each")
        if any(x is None for x in (*tokens, *priors)):
            raise TraceError(f"{where} has a candidate without a token or a number")


def _validate_threads(detail: ThreadsDetail, form: Form | None, where: str, vocab: int) -> None:
    validate_lengths(len(detail), where, tokens=detail.tokens)
    validate_ids(detail.ids, vocab, where)
    named = [*detail.alive, *(x.thread for x in detail.begun), *(x.thread for x in detail.ended)]
    validate_counts([*named, *(n for x in detail.begun for n in (x.at, x.parent + 1))], where)
    if isinstance(form, ThreadsForm) and (unknown := {x.why for x in detail.ended} - form.ends.keys()):
        raise TraceError(
            f"{where} has a thread that ended by {min(unknown)[:20]!r}, which its declaration lacks"
        )


def _validate_matrix(detail: MatrixDetail, form: Form | None, where: str, vocab: int) -> None:
    shape = None
    if detail.numbers is not None:
        validate_array(detail.numbers, f"{where}.numbers", 2, "f")
        shape = detail.numbers.shape
    for axis, labels in enumerate((detail.rows, detail.columns)):
        n = shape[axis] if shape else max(map(len, labels.values()), default=0)
        validate_lengths(n, where, **labels)
    if len(detail.marks) > MOST_MARKS:
        raise TraceError(f"{where} has {len(detail.marks)} marks, above the limit of {MOST_MARKS}")
    for mark in detail.marks:
        if len(mark) != 3 or type(mark[0]) is not int or type(mark[1]) is not int or type(mark[2]) is not str:
            raise TraceError(f"{where} has a mark that is not a row, a column and a word")
        if min(mark[:2]) < 0 or (shape is not None and not (mark[0] < shape[0] and mark[1] < shape[1])):
            raise TraceError(f"{where} marks row {mark[0]}, column {mark[1]}, which it lacks")
    if isinstance(form, MatrixForm):
        if unknown := {mark[2] for mark in detail.marks} - form.marks.keys():
            raise TraceError(f"{where} has the mark {min(unknown)[:20]!r}, which its declaration lacks")
        validate_columns(detail.rows, form.rows, where, vocab)
        validate_columns(detail.columns, form.columns, where, vocab)
        validate_columns({name: [value] for name, value in detail.values.items()}, form.values, where, vocab)


def validate_columns(
    columns: Mapping[str, list[Any]], declared: Sequence[DetailColumn], where: str, vocab: int
) -> None:
    """Check that every column is declared and its entries have the type. Raises TraceError."""
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
            validate_ids(entries, vocab, f"{where}.{name[:20]}")


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
                        if isinstance(entry, list):
                            ids += entry
                        elif entry is not None:
                            ids.append(entry)
    return ids
