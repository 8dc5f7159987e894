"""Matrices of hostile files: a header's declarations and a step's data are refused in one sentence, or read without harm."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decodescope.engine.trace import UPLOADED, TraceError, check, open_trace
from decodescope.engine.trace.detail_checks.copies import emitted_sources
from decodescope.engine.trace.details.declarations import (
    DetailColumn,
    MatrixForm,
    MatrixMark,
    Outcome,
    Sentence,
    TallyForm,
)
from decodescope.engine.trace.details.shapes import MatrixDetail, TallyDetail
from decodescope.lab.wire.messages import messages

NUMBERS = np.array([[0.5, 0.25], [1.0, np.nan]], "<f4")
ROWS = TallyForm(
    title="Rows",
    value="x",
    outcomes={"in": Outcome(True)},
    columns=[
        DetailColumn("x", "number"),
        DetailColumn("ids", "tokens"),
        DetailColumn("outcome", "text"),
    ],
    values=[DetailColumn("first", "number"), DetailColumn("end", "token")],
    emits="ids",
    emitting=["in"],
    closes="end",
    source="first",
    at="first",
)
FIELD = MatrixForm(
    title="A field",
    rows=[DetailColumn("token", "token")],
    side="token",
    judged="value / (row - 1)",
    reach="value * 1e300",
    cell=[Sentence("{token} {nothing}"), Sentence("{value:2}", where="missing == 1")],
    marks={"best": MatrixMark("accept", "best")},
    rows_of="rows",
    sort="x / 0",
)
TALLY = TallyDetail("rows", {"x": [1.0, None], "ids": [[8], [20]], "outcome": ["in", "in"]}, {"first": 1})
MATRIX = MatrixDetail("field", NUMBERS, {"token": [8, 20]}, {}, [[0, 1, "best"]])


def written(
    toy: Any, folder: Path, form: Any = FIELD, rows: Any = ROWS, details: Any = (TALLY, MATRIX)
) -> Path:
    step = toy.plain_step(0, toy.prompt)
    step.details = list(details)
    return toy.write(folder / "x.dstrace", [step], head=toy.header(details={"rows": rows, "field": form}))


def test_odd_formulas_are_read_without_harm(toy: Any, tmp_path: Path) -> None:
    """Covers divisions by zero, unknown names and numbers beyond all bounds."""
    path = written(toy, tmp_path)
    with closing(open_trace(path, UPLOADED)) as trace:
        (survey,) = next(one for one in messages(trace) if one["kind"] == "step")["survey"]
        assert survey["order"] == [0, 1] and survey["side"] == ["<#8>", "<#20>"]
        assert survey["cell"] == [], "what names nothing is not said"
        assert check(trace).problems, "it emitted something else"
        for first in (2**52, -1, 0.5, None):
            trace.steps[0].details[0].values["first"] = first
            assert len(emitted_sources(trace.header, trace.steps[0])) in (0, len(trace.steps[0].emitted))
            assert any("the prompt has" in x for x in check(trace).problems)


BAD: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "numbers of words": (
        lambda: {"details": (TALLY, replace(MATRIX, numbers=np.ones((2, 2), "<i4")))},
        "of kind 'f'",
    ),
    "numbers in a line": (
        lambda: {"details": (TALLY, replace(MATRIX, numbers=NUMBERS[0]))},
        "where 2 of kind",
    ),
    "a label too many": (
        lambda: {"details": (TALLY, replace(MATRIX, rows={"token": [8] * 3}))},
        "where 2 are due",
    ),
    "a label outside": (
        lambda: {"details": (TALLY, replace(MATRIX, rows={"token": [8, 50]}))},
        "the vocabulary of 50",
    ),
    "a label below": (
        lambda: {"details": (TALLY, replace(MATRIX, rows={"token": [8, -1]}))},
        "the vocabulary of 50",
    ),
    "a label of words": (
        lambda: {"details": (TALLY, replace(MATRIX, rows={"token": ["a", "b"]}))},
        "of the type token",
    ),
    "a label of none": (
        lambda: {"details": (TALLY, replace(MATRIX, columns={"x": [1, 2]}))},
        "the column 'x'",
    ),
    "a mark outside": (
        lambda: {"details": (TALLY, replace(MATRIX, marks=[[2, 0, "best"]]))},
        "marks row 2, column 0",
    ),
    "a mark below": (lambda: {"details": (TALLY, replace(MATRIX, marks=[[-1, 0, "best"]]))}, "marks row -1"),
    "a mark of a share": (
        lambda: {"details": (TALLY, replace(MATRIX, marks=[[0.5, 0, "best"]]))},
        "is not a row",
    ),
    "a mark too short": (lambda: {"details": (TALLY, replace(MATRIX, marks=[[0, 0]]))}, "is not a row"),
    "a mark of none": (
        lambda: {"details": (TALLY, replace(MATRIX, marks=[[0, 0, "x"]]))},
        "has the mark 'x'",
    ),
    "many marks": (
        lambda: {"details": (TALLY, replace(MATRIX, marks=[[0, 0, "best"]] * 1025))},
        "the limit of 1024",
    ),
    "without its tally": (lambda: {"details": (MATRIX,)}, "is there without 'rows'"),
    "a matrix that is a tally": (lambda: {"form": replace(ROWS, at="")}, "is a matrix, declared as a tally"),
    "a tally that is none": (lambda: {"form": replace(FIELD, rows_of="field")}, "which is no tally"),
    "a row too few": (
        lambda: {"details": (replace(TALLY, columns={k: x[:1] for k, x in TALLY.columns.items()}), MATRIX)},
        "has 2 rows, where 1 are due",
    ),
    "a square that is none": (
        lambda: {
            "form": replace(FIELD, square=True),
            "details": (TALLY, replace(MATRIX, numbers=NUMBERS[:, :1], marks=[])),
        },
        "has 1 columns, where 2 are due",
    ),
    "a name that is too long": (
        lambda: {"form": replace(FIELD, rows=[DetailColumn("x" * 65, "text")], side="")},
        "65",
    ),
    "emits what it lacks": (lambda: {"rows": replace(ROWS, emitting=["out"])}, "an outcome that it lacks"),
    "closes with a number": (lambda: {"rows": replace(ROWS, closes="first")}, "no value of a token"),
    "copies by no formula": (lambda: {"rows": replace(ROWS, source="first[")}, "is no formula"),
    "counts a sum": (lambda: {"form": replace(FIELD, judged="count(1)")}, "is no formula"),
}


@pytest.mark.parametrize("lie", BAD)
def test_a_matrix_that_is_none_is_refused(lie: str, toy: Any, tmp_path: Path) -> None:
    change, says = BAD[lie]
    path = written(toy, tmp_path, **change())
    with pytest.raises(TraceError) as caught, closing(open_trace(path, UPLOADED)) as trace:
        assert list(trace.steps), "the steps are read one by one"
    assert says in str(caught.value) and "\n" not in str(caught.value), caught.value
