"""Survey: the message fields on the matrices of a step, each by its declaration. No strategy is known here by name."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from decodescope.engine.trace.detail_checks.details import find_tally, matrix_reading
from decodescope.engine.trace.details.declarations import Sentence
from decodescope.engine.trace.details.matrix import MatrixReading
from decodescope.engine.trace.details.scope import FormulaScope
from decodescope.engine.trace.details.tally import TallyReading
from decodescope.engine.trace.records.events import Header, Piece, Step
from decodescope.engine.trace.records.pieces import join
from decodescope.engine.trace.values.formula import (
    Formula,
    evaluate_formula,
    formula,
    names_in,
    relation,
    sentence,
)
from decodescope.lab.decision.details import card_rows

MOST = 1 << 16  # numbers of a map; a larger one stays in the trace
LONGEST = 96  # characters of a text
Told = dict[str, Any]


def encode_survey(header: Header, step: Step, text: Callable[[int], Piece], whole: bool) -> Told:
    """survey: the matrices of a step, or nothing. Unless `whole`, only their names, and "few" says so. A matrix with more than
    MOST numbers, or without numbers in the trace, is never more than its name.

    Of each {"name", "size": rows and columns, "numbers": float32 row by row, base64, NaN where there is none, "judged" and
    "reach": formulas, "strong": an end of the scale, "scale": its two ends or [], "cell": sentences, "side" and "head": texts
    at the rows and above the columns or null, "labels": name -> [1 if of rows, texts], "marks": [[row, column, word, status]]
    from 0, "words": of all marks that there may be, "label": the map in words, "key": what is said below it, "listed": [[row of
    the card, row, column]] from 0}.

    If its rows are those of a tally, also "rows": [[text, number, whether it holds, what became of it, row of the card or null,
    sentences]], "order": their display order, "first": the one where a reader looks first or null, "square": whether the
    columns are the same rows.

    A sentence is [words and [formula, form], relation or null]. A formula is a number, a name, or a list: an operation and its
    operands. Names in it are those of a cell.
    """
    read_all = (matrix_reading(header, step, x, _text_joiner(text)) for x in step.details or ())
    matrices = [*filter(None, read_all)]
    if not matrices:
        return {}
    drawn = [read.detail.numbers is not None and read.detail.numbers.size <= MOST for read in matrices]
    if whole:
        surveys = [
            _encode_matrix(header, step, read, text) if has else {"name": read.detail.name}
            for read, has in zip(matrices, drawn, strict=True)
        ]
        return {"survey": surveys}
    few = {"few": True} if any(drawn) else {}
    return {"survey": [{"name": read.detail.name} for read in matrices]} | few


def _encode_matrix(header: Header, step: Step, read: MatrixReading, text: Callable[[int], Piece]) -> Told:
    detail, form = read.detail, read.form
    numbers = np.ascontiguousarray(detail.numbers, dtype="<f4")
    labels = {
        one.name: [of_rows, [_format_label(x, one.type, text) for x in held[one.name]]]
        for declared, held, of_rows in ((form.rows, detail.rows, 1), (form.columns, detail.columns, 0))
        for one in declared
        if one.name in held
    }
    message = {
        "name": detail.name,
        "size": list(numbers.shape),
        "numbers": base64.b64encode(numbers.tobytes()).decode(),
        "judged": _bind_formula(formula(form.judged), read.whole_scope, read.cell_names),
        "reach": _bind_formula(formula(form.reach), read.whole_scope, read.cell_names),
        "strong": form.strong,
        "scale": form.scale,
        "cell": _bind_sentences(form.cell, read.whole_scope, read.cell_names),
        "side": labels[form.side][1] if form.side in labels else None,
        "head": labels[form.head][1] if form.head in labels else None,
        "labels": labels,
        "marks": [[row, column, word, form.marks[word].status] for row, column, word in detail.marks],
        "words": [*form.marks],
        "label": form.label or form.title,
        "key": " ".join(read.whole_scope.say_all(form.lines)),
    }
    places = card_rows(header, step)
    if form.cells_of and (tally := find_tally(header, step, form.cells_of)) is not None:
        message["listed"] = [*_cell_positions(read, tally, places.get(form.cells_of, {}))]
    if form.rows_of and (tally := find_tally(header, step, form.rows_of, _text_joiner(text))) is not None:
        message |= _encode_tally_rows(read, tally, places.get(form.rows_of, {}))
    return message


def _format_label(entry: Any, kind: str, text: Callable[[int], Piece]) -> Piece:
    """A label as it is displayed."""
    if entry is None:
        return ""
    if kind == "tokens":
        return _text_joiner(text)(entry)
    return text(entry) if kind == "token" else str(entry)


def _text_joiner(text: Callable[[int], Piece]) -> Callable[[Sequence[int]], str]:
    return lambda ids: join(ids, {x: text(x) for x in ids})


def _cell_positions(read: MatrixReading, tally: TallyReading, places: dict[int, int]) -> Iterable[list[int]]:
    """[row of the card, row, column] for each row of a tally that is a cell."""
    for index, place in places.items():
        at = [tally.rows[index].value(x) for x in read.form.at]
        if all(
            x is not None and 1 <= x <= n and x == int(x) for x, n in zip(at, read.detail.size, strict=True)
        ):
            yield [place, *(int(x) - 1 for x in at if x is not None)]


def _encode_tally_rows(read: MatrixReading, tally: TallyReading, places: dict[int, int]) -> Told:
    """The rows of a tally that belong to a matrix."""
    rows = []
    for i, (scope, outcome) in enumerate(zip(tally.rows, tally.outcomes, strict=True)):
        said = [one for one in read.form.row if scope.say(one) is not None][:1]
        word, place = scope.say_first(outcome.words), places.get(i)
        text = scope.say_first(tally.form.row)[:LONGEST]
        rows.append(
            [
                text,
                tally.number(i),
                int(outcome.holds),
                word,
                place,
                _bind_sentences(said, scope, frozenset()),
            ]
        )
    return {
        "rows": rows,
        "order": row_order(read, tally),
        "first": tally.focus_row,
        "square": read.form.square,
    }


def row_order(read: MatrixReading, tally: TallyReading) -> list[int]:
    """The rows of a tally in the display order of their matrix."""
    keys = [scope.value(read.form.sort) if read.form.sort else 0.0 for scope in tally.rows]
    worth = [-math.inf if x is None else x for x in keys]
    return sorted(range(len(worth)), key=lambda i: (-worth[i], i != tally.focus_row, i))


def _bind_formula(what: Formula, whole: FormulaScope, free: frozenset[str]) -> Formula | None:
    """A formula in which every name that is not `free` is a number; None where one is missing."""
    if isinstance(what, str) and what in free:
        return what
    if free.isdisjoint(names_in(what)):
        return evaluate_formula(what, whole.number)
    if not isinstance(what, list):
        return what
    parts = [_bind_formula(part, whole, free) for part in what[1:]]
    return None if None in parts else [what[0], *parts]


def _bind_sentences(
    sentences: Sequence[Sentence], whole: FormulaScope, free: frozenset[str]
) -> list[list[Any]]:
    """The sentences that apply, in parts; a name that is not `free` is replaced by its number or text."""
    said = []
    for one in sentences:
        parts = (
            [_bind_part(part, whole, free) for part in sentence(one.text)]
            if whole.values_match(one)
            else [None]
        )
        where = None
        if one.where:
            left, sign, right = relation(one.where)
            where = [_bind_formula(left, whole, free), sign, _bind_formula(right, whole, free)]
        if None not in parts and (where is None or None not in where):
            said.append([parts, where])
    return said


def _bind_part(part: Any, whole: FormulaScope, free: frozenset[str]) -> Any:
    """A part of a sentence: words, or [formula, form]; None where something is missing."""
    if isinstance(part, str):
        return part
    what, form = part
    if isinstance(what, str) and what not in free and whole.is_text(what):
        return whole.write(what, form)
    bound = _bind_formula(what, whole, free)
    return None if bound is None else [bound, form]
