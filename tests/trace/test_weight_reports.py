"""Findings of weight transforms: a trace's header holds them, a reader gets them back, and what fits no model is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from decodescope.engine.core.note import ROUNDS, Finding, downsample
from decodescope.engine.trace import Header, check
from decodescope.engine.trace.checks.record_consistency import validate_header
from decodescope.engine.trace.file.trace import open_trace
from decodescope.engine.trace.records.weight_reports import MOST, Made
from decodescope.engine.trace.values.limits import TraceError

HEADS = Finding("grid", "Score", "nats", "of a head", over="head", values=[[0.5, None], [0.25, 2.0]])
BITS = Finding("grid", "Error", over="matrix", values=[[0.1] * 4, [None] * 4, [None]])
BLOCKS = Finding("grid", "Out since", over="sublayer", values=[[None, 2], [0, None]])
PLAN = Finding("set", "Best list", over="round", values=["a0", "a0,f1"])
ONE = Finding("series", "Threshold", values=[0.4])
ALL = {"score": HEADS, "error": BITS, "since": BLOCKS, "plan": PLAN, "threshold": ONE}


def headed(toy: SimpleNamespace, made: dict[str, list[Made]]) -> Header:
    head: Header = toy.header(reports=made)
    head.model["n_heads"] = 2
    return head


def test_findings_are_read_back(toy: SimpleNamespace, tmp_path: Path) -> None:
    made = {"target": [Made("head_sensitivity cut_share=0.5", True, ALL), Made("int8")]}
    trace = open_trace(toy.write(tmp_path / "a.dstrace", toy.steps("pd"), head=headed(toy, made)))
    assert trace.header.reports == made and check(trace).ok


def test_runs_of_one_model_have_one_hash(toy: SimpleNamespace, tmp_path: Path) -> None:
    """The model is the same, whether a search ran or its kept result was loaded."""
    rows = [[Made("int8", kept)] for kept in (False, True)]
    paths = [
        toy.write(tmp_path / f"{i}.dstrace", toy.steps("pd"), head=headed(toy, {"target": x}))
        for i, x in enumerate(rows)
    ]
    one, other = (open_trace(path).end for path in paths)
    assert one is not None and other is not None and one.content_hash == other.content_hash


@pytest.mark.parametrize(
    ("finding", "why"),
    [
        (replace(HEADS, values=[[0.5, 0.5]]), "has 1 rows, where 2 are due"),
        (replace(HEADS, values=[[0.5] * 3, [0.5]]), "has a row that is not one of values by head"),
        (replace(HEADS, values=[[0.5, []], [0.5]]), "must have rows of numbers"),
        (replace(BITS, values=[[0.1] * 4] * 3), "has a row that is not one of values by matrix"),
        (replace(BLOCKS, values=[[1], [1]]), "has a row that is not one of values by sublayer"),
        (replace(PLAN, values=["a0"] * (ROUNDS + 1)), "must have at most 512 values"),
        (replace(ONE, values=[1, 2]), "must have at most 1 values"),
        (replace(ONE, kind="grid"), "is a grid, and its values are in a series"),
        (replace(HEADS, kind="series"), "is a series, and its values are in a grid"),
    ],
)
def test_what_fits_no_model_is_refused(toy: SimpleNamespace, finding: Finding, why: str) -> None:
    with pytest.raises(TraceError, match=rf"reports\.target\.0\.findings\.x {why}"):
        validate_header(headed(toy, {"target": [Made("int8", findings={"x": finding})]}))


def test_what_is_too_much_is_refused(toy: SimpleNamespace) -> None:
    for made, why in (
        ({"draft": [Made("int8")]}, "reports.draft is of no model of this run"),
        ({"target": [Made("int8")] * (MOST + 1)}, "has 17 transforms"),
        (
            {"target": [Made("int8", findings=dict.fromkeys(map(str, range(MOST + 1)), ONE))]},
            "has 17 findings",
        ),
    ):
        with pytest.raises(TraceError, match=why):
            validate_header(headed(toy, made))


def test_a_long_series_is_told_in_stretches() -> None:
    assert downsample([1.0, 3.0, 5.0, 7.0], 2) == [2.0, 6.0] and downsample(["a", "b", "c", "d"], 2) == [
        "b",
        "d",
    ]
    assert len(downsample(range(ROUNDS + 1))) == ROUNDS and downsample([1, 2]) == [1, 2]
