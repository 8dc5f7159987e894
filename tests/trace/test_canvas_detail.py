"""Canvases: their declaration gives what a pass settles, and a record that makes no sense is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decodescope.engine.trace.detail_checks.details import details_problems
from decodescope.engine.trace.details.canvas import CanvasReading
from decodescope.engine.trace.details.consistency import validate_details, validate_forms
from decodescope.engine.trace.details.declarations import (
    CanvasForm,
    CanvasWord,
    DetailColumn,
    Sentence,
    merge_forms,
    with_words,
)
from decodescope.engine.trace.details.exploration import Explored
from decodescope.engine.trace.details.levels import filter_details
from decodescope.engine.trace.details.shapes import CanvasDetail
from decodescope.engine.trace.details.veto import Veto
from decodescope.engine.trace.values.limits import TraceError

from .conftest import VOCAB, header, plain_step

FORM = CanvasForm(
    "Places",
    says=[Sentence("{settled} of {open}", where="open >= 2")],
    rank=["order", "-confidence"],
    settles=["rank <= count", "confidence >= bars"],
    words={"sure": CanvasWord("s", "sure"), "best": CanvasWord("b", "best")},
    columns=[DetailColumn("bars", "number"), DetailColumn("order", "number", "full"), DetailColumn("guess", "token")],
    values=[DetailColumn("note", "text")],
)  # fmt: skip
FORMS = {"places": FORM}


def canvas(**changes: Any) -> CanvasDetail:
    """Four places from 7 on, three of them open: rank settles the surest, and another is settled by its bar."""
    made = CanvasDetail(
        "places", 7, 4, [7, 11], np.array([7, 9, 10], "<i4"), np.array([3, 4, 5], "<i4"),
        [9, 10], [4, 5], ["best", "sure"], np.array([0.25, 0.75, 0.5], "<f4"),
        {"bars": np.array([0.5, 0.8, 0.5], "<f4")}, count=1,
    )  # fmt: skip
    return replace(made, **changes)


def reading(detail: CanvasDetail, form: CanvasForm = FORM) -> CanvasReading:
    return CanvasReading(detail, form, {}, 7, 0)


def test_ranks_and_bars_of_the_declaration_give_what_is_settled() -> None:
    read = reading(canvas())
    assert read.due_places == [1, 2] and read.follows_declaration and read.clause == "2 of 3"
    assert [row.entry("rank") for row in read.rows] == [3, 1, 2]
    drawn = canvas(columns={"bars": np.full(3, 2, "<f4"), "order": np.array([0, 2, 1], "<i4")})
    assert reading(drawn).due_places == [0] and not reading(drawn).follows_declaration, (
        "an order comes before confidences"
    )
    apart = canvas(vetoes=[Veto(10, 5, True), Veto(9, 3)])
    assert reading(apart).due_places == [1], "what was refused beside others stays open"


def test_a_row_is_settled_as_long_as_its_relation_holds() -> None:
    form = replace(FORM, rank=[], settles=[], run="guess == candidate", drawn="chain")
    for guesses, due, held in (([3, 4, 5], 3, 3), ([3, 9, 5], 2, 1), ([9, 4, 5], 1, 0)):
        read = reading(canvas(columns={"guess": np.array(guesses, "<i4")}), form)
        assert read.due_places == [*range(due)] and read.run_length == held
    assert reading(canvas(columns={}), form).due_places == [0], "without guesses the first alone follows"


LIES = [
    (dict(places=[9], tokens=[4], rules=["best"]), "settles [9], and its declaration gives [9, 10]"),
    (dict(tokens=[4, 6]), "but the candidates are others"),
    (dict(count=2, places=[9], tokens=[4], rules=["best"]), "gives [9, 10]"),
    (dict(confidence=np.array([0.75, 0.25, 0.5], "<f4")), "gives [7, 10]"),
]


@pytest.mark.parametrize(("change", "found"), LIES)
def test_a_canvas_without_a_check_of_its_own_is_held_against_its_declaration(change: Any, found: str) -> None:
    head, step = header(details=FORMS), plain_step(0, 7)
    for detail, wrong in ((canvas(), False), (canvas(**change), True)):
        step.details = [detail]
        problems = [*details_problems(head, step, Counter())]
        assert any(found in x for x in problems) is wrong and bool(problems) is wrong, problems


HOSTILE: list[tuple[dict[str, Any], str]] = [
    (dict(block=[7]), "block is [7], which is no part of the 4 places"),
    (dict(block=[7, 12]), "which is no part of the 4 places"),
    (dict(start=-1), "which is no part of"),
    (dict(open=np.array([9, 7, 10], "<i4")), "does not rise within the block"),
    (dict(open=np.array([7, 9, 11], "<i4")), "does not rise within the block"),
    (dict(open=np.array([7.0, 9.0, 10.0])), "1 of kind 'iu' are due"),
    (dict(candidate=np.array([3, 4], "<i4")), "candidate has 2 entries, where 3 are due"),
    (dict(candidate=np.array([3, 4, VOCAB], "<i4")), "outside the vocabulary"),
    (dict(candidate=np.array([3, 4, 1 << 40], "<i8")), "outside the vocabulary"),
    (dict(tokens=[4, -1]), "outside the vocabulary"),
    (dict(confidence=np.array([0.25, 0.75, np.nan], "<f4")), "leaves the interval"),
    (dict(confidence=np.array([0.25, 0.75, 1.5], "<f4")), "leaves the interval"),
    (dict(confidence=np.array([[0.25, 0.75, 0.5]], "<f4")), "where 1 of kind 'f' are due"),
    (dict(columns={"bars": np.zeros(2, "<f4")}), "bars has 2 entries"),
    (dict(columns={"bars": np.zeros(3, "|b1")}), "of kind 'iuf' are due"),
    (dict(columns={"guess": np.array([3, 4, VOCAB], "<i4")}), "outside the vocabulary"),
    (dict(columns={"guess": np.array([0.5, 1, 2])}), "must hold entries of the type token"),
    (dict(columns={"where": np.zeros(3, "<f4")}), "which its declaration lacks"),
    (dict(values={"note": 3}), "must hold entries of the type text"),
    (dict(values={"other": "x"}), "which its declaration lacks"),
    (dict(rules=["best"]), "not one token and one rule for each place"),
    (dict(rules=["best", "lucky"]), "settles by 'lucky', which its declaration lacks"),
    (dict(count=-1), "the negative count -1"),
    (dict(stale=-2), "the negative count -2"),
    (dict(edge=7), "edge is 7, which is no place within those"),
    (dict(cut=9), "cut is 9, which is behind no open place"),
    (dict(standins=[[7]]), "no position and id"),
    (dict(standins=[[7, VOCAB]]), "and one of them is none"),
    (dict(vetoes=[Veto(7, 1 << 40)]), "outside the vocabulary"),
    (dict(witness=[-3]), "outside the vocabulary"),
    (
        dict(explored=Explored(8, [1], np.ones(1), np.zeros(0, int), np.zeros((1, 0)), np.zeros((1, 0)), [0], np.zeros(1), 0)),
        "explored records other open places",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "found"), HOSTILE)
def test_a_canvas_that_makes_no_sense_is_refused(change: dict[str, Any], found: str) -> None:
    validate_details([canvas()], FORMS, VOCAB)
    with pytest.raises(TraceError) as refused:
        validate_details([canvas(**change)], FORMS, VOCAB)
    assert found in str(refused.value)


@pytest.mark.parametrize(("change", "found"), [
    (dict(drawn="sphere"), "is drawn as 'sphere'"),
    (dict(level="all"), "kept at level 'all'"),
    (dict(rank=["confidence ** ("]), "is no formula"),
    (dict(settles=["rank <"]), "details.places"),
    (dict(run="a = b"), "details.places"),
    (dict(columns=[DetailColumn("bars", "numbers")]), "neither numbers nor tokens"),
    (dict(words={str(x): CanvasWord("x", "x") for x in range(400)}), "more than 128 columns, words"),
    (dict(says=[Sentence("{settled:x}")]), "details.places"),
])  # fmt: skip
def test_a_declaration_that_cannot_be_read_is_refused(change: dict[str, Any], found: str) -> None:
    validate_forms(FORMS)
    with pytest.raises(TraceError) as refused:
        validate_forms({"places": replace(FORM, **change)})
    assert found in str(refused.value)


def test_a_level_keeps_what_its_columns_say() -> None:
    detail = canvas(columns={"bars": np.zeros(3, "<f4"), "order": np.arange(3)})
    assert filter_details("summary", [detail], FORMS) == []
    (kept,) = filter_details("decisions", [detail], FORMS)
    assert [*kept.columns] == ["bars"] and kept.places == detail.places
    assert filter_details("full", [detail], FORMS) == [detail]


def test_methods_that_write_one_after_another_have_the_words_of_all() -> None:
    first = {"places": with_words(FORM, {"row": CanvasWord("r", "row")})}
    both = merge_forms([first, FORMS, {"other": FORM}])
    assert [*both] == ["places", "other"]
    assert {*both["places"].words} == {"sure", "best", "row"} and both["other"] == FORM  # type: ignore[union-attr]
