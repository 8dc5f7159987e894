"""A matrix has one home too: a matrix that a strategy outside the package declares is checked and drawn."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest
import toys

from decodescope.engine import Method, Session
from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.plain_move import plain_move
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.details.declarations import (
    DetailColumn,
    MatrixForm,
    MatrixMark,
    Outcome,
    Sentence,
    TallyForm,
)
from decodescope.engine.trace.details.shapes import MatrixDetail, TallyDetail
from decodescope.lab import figure
from decodescope.lab.wire.messages import messages

from .test_card import Scope

COINS = TallyForm(
    title="A purse of coins",
    number="p",
    value="p",
    row=[Sentence("{token}")],
    outcomes={
        "heads": Outcome(True, "", [Sentence("heads")]),
        "tails": Outcome(False, "", [Sentence("tails")]),
    },
    columns=[DetailColumn("token", "token"), DetailColumn("p", "number"), DetailColumn("outcome", "text")],
    emits="token",
)
TOSSES = MatrixForm(
    title="Tosses of coins",
    number="faces",
    columns=[DetailColumn("day", "text")],
    scale=[-1.0, 1.0],
    head="day",
    row=[Sentence("Coin {k} shows {p:2}.")],
    cell=[Sentence("On {day} coin {row} fell {value:1} deep.")],
    lines=[Sentence("A column a day, {rows} coins.")],
    rows_of="coins",
    sort="p",
)
FIELD = MatrixForm(
    title="A field of numbers",
    number="depth",
    label="depth of a field",
    down="north",
    across="east",
    rows=[DetailColumn("name", "text")],
    side="name",
    judged="value ** 2 / stretch",
    cell=[
        Sentence("{name}, {column} east: {judged:2}"),
        Sentence(", the deepest of {cells}", where="rank == 1"),
        Sentence(", a well", where="well == 1"),
    ],
    lines=[Sentence("One well.", where="well_at == 1"), Sentence("No well.", given={"well_at": None})],
    hover="{name} at {column}: {value:1}",
    marks={"well": MatrixMark("reject", "a well")},
)


@component
class BorrowedMatrix(Strategy):
    """One pass gives the next token; the strategy also records two coins and a field of numbers."""

    title = "Coins"
    source = "made up for a test"
    lossless = False
    changes = "nothing that anybody saw"
    details: ClassVar = {"coins": COINS, "tosses": TOSSES, "field": FIELD}

    stretch: float = param(2.0, low=1.0, high=9.0, help="by which depths are divided")

    def step(self, s: State) -> Move:
        clock = s.target.executor
        started = clock.mark()
        fresh = s.tokens[len(s.target.tokens) :]
        feed = Feed.causal_chain(fresh, len(s.target.tokens), s.target.decoder.device, logits="last")
        token = int(s.target.forward(feed)[0][-1].argmax())
        s.target.commit([*range(len(fresh))])
        verified = clock.mark()
        _, end = s.cut([token])
        s.tokens.append(token)
        coins = TallyDetail("coins", {"token": [token, 3], "p": [0.25, 0.75], "outcome": ["heads", "tails"]})
        faces = np.array([[1.0, -1.0, np.nan], [0.5, 0.25, 0.0]])
        tosses = MatrixDetail("tosses", faces, {}, {"day": ["Monday", "Tuesday", "Friday"]})
        names = {"name": ["lake", "hill"]}
        field = MatrixDetail(
            "field", np.array([[1.0, 3.0], [2.0, np.nan]], "f4"), names, {}, [[0, 1, "well"]]
        )
        return plain_move(s, [token], end, started, verified, details=[coins, tosses, field])


@cache
def recorded(level: str = "decisions") -> Trace:
    run = Session(
        toys.target(), Method(strategy=BorrowedMatrix()), toys.PROMPT, max_new_tokens=3, level=level
    )
    run.sink = Trace()
    for _ in run.stream():
        pass
    return run.sink


def alone(detail: str) -> Trace:
    """The same run with one changed detail in each step."""
    trace = copy.deepcopy(recorded())
    for step in trace.steps:
        step.details = [step.detail(detail)]
    return trace


def test_it_is_checked_and_kept_at_its_level() -> None:
    assert check(recorded()).ok and len(recorded().steps) == 3
    assert all(step.details is None for step in recorded("summary").steps)


LIES = {
    "a number outside": (
        1,
        lambda x: replace(x, numbers=x.numbers + 1),
        "row 1, column 1 of tosses is 2, outside",
    ),
    "a row too many": (1, lambda x: replace(x, numbers=np.ones((3, 3))), "has 3 rows, where 2 are due"),
    "no tally": (0, lambda x: replace(x, name="other"), "tosses is there without 'coins'"),
    "a label too few": (
        1,
        lambda x: replace(x, columns={"day": ["Monday"]}),
        "has 1 entries, where 3 are due",
    ),
    "a label of none": (2, lambda x: replace(x, rows={"name": [1, 2]}), "must hold entries of the type text"),
    "too many marks": (2, lambda x: replace(x, marks=x.marks * 2000), "above the limit of 1024"),
    "a mark outside": (2, lambda x: replace(x, marks=[[0, 2**52, "well"]]), "which it lacks"),
    "a mark of none": (2, lambda x: replace(x, marks=[[0, 0, "hill"]]), "the mark 'hill'"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_it_is_found(lie: str) -> None:
    place, tell, says = LIES[lie]
    trace = copy.deepcopy(recorded())
    details = trace.steps[1].details or []
    details[place] = tell(details[place])
    assert any(says in one for one in check(trace).problems), check(trace)


FORGED = {
    "a scale that falls": (dict(scale=[1.0, -1.0]), "the lower one first"),
    "a scale of one": (dict(scale=[1.0]), "the lower one first"),
    "a scale without end": (dict(scale=[0.0, float("inf")]), "the lower one first"),
    "a side that it lacks": (dict(side="x"), "shows the label 'x'"),
    "an end of none": (dict(strong="left"), "is strong at 'left'"),
    "a level of none": (dict(level="all"), "kept from 'all'"),
    "a tally of none": (dict(rows_of="field"), "which is no tally"),
    "cells without a place": (dict(cells_of="coins"), "finds its cells by 0 formulas"),
    "what comes of it": (dict(judged="rank"), "by what comes of it"),
    "a sum where a reader points": (dict(hover="{value + 1}"), "more than names of a cell"),
    "a name of none": (dict(hover="{depth}"), "more than names of a cell"),
    "no formula": (dict(judged="value["), "is no formula"),
    "no relation": (dict(cell=[Sentence("x", where="1")]), "is no relation"),
    "too many sentences": (dict(lines=[Sentence("x")] * 200), "more than 128"),
    "a status of none": (dict(marks={"well": MatrixMark("wet", "")}), "the status 'wet'"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("lie", FORGED)
def test_a_declaration_that_cannot_be_read_is_refused(lie: str) -> None:
    change, says = FORGED[lie]
    trace = copy.deepcopy(recorded())
    trace.header.details["field"] = replace(FIELD, **change)  # type: ignore[arg-type]
    assert any(says in one for one in check(trace).problems), check(trace)


def test_it_is_drawn_as_a_figure() -> None:
    tosses = figure(recorded(), "matrix")
    assert tosses.layout.title.text == "Tosses of coins" and tosses.data[0].zmin == -1
    assert [list(row) for row in tosses.data[0].z] == [[0.5, 0.25, 0.0], [1.0, -1.0, None]], "by their p"
    assert [text.split()[-1] for text in tosses.layout.yaxis.ticktext] == ["0.750", "0.250"]
    field = figure(alone("field"), "matrix", step=2)
    shades, well = field.data
    assert [list(row) for row in shades.z] == [[1.0, 3.0], [2.0, None]] and shades.colorscale is not None
    assert shades.hovertemplate == "%{customdata[0]} at %{x}: %{z:.1f}<extra></extra>"
    assert (well.name, [*well.x], [*well.y]) == ("a well", [2], [1])
    assert [*field.layout.yaxis.ticktext] == ["lake", "hill"] and field.layout.xaxis.title.text == "east"


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_both_of_its_maps_are_drawn_and_say_what_is_chosen(driver: Any) -> None:
    scope = Scope(driver)
    scope.show(list(messages(recorded())), 1)
    rows, field = scope.page.locator(".survey").all()
    said = lambda panel: panel.locator(".took").inner_text()  # noqa: E731
    assert rows.locator("li:visible .rate").all_inner_texts() == ["0.750", "0.250"]
    assert rows.locator("li:visible .why").all_inner_texts() == ["tails", "heads"]
    assert said(rows) == "Coin 1 shows 0.25." and "A column a day, 2 coins." in rows.inner_text()
    shades = rows.locator(".matrix-rows canvas")
    size = shades.bounding_box()["width"] / 3
    shades.click(position={"x": 1.5 * size, "y": 1.5 * 26})
    scope.page.wait_for_function("document.querySelector('.survey .took').innerText.startsWith('On')")
    assert said(rows) == "On Tuesday coin 1 fell −1.0 deep."
    assert said(field) == "lake, 2 east: 4.50, the deepest of 3, a well" and "One well." in field.inner_text()
    box = field.locator(".matrix-map")
    assert box.get_attribute("aria-label") == "depth of a field"
    for key, due in (
        ("ArrowDown", "lake, 2 east: 4.50"),
        ("ArrowLeft", "lake, 1 east: 0.50"),
        ("ArrowDown", "hill, 1 east: 2.00"),
        ("ArrowRight", "hill, 1 east: 2.00"),
    ):
        box.focus()
        scope.page.keyboard.press(key)
        scope.settled()
        assert said(field).startswith(due), "a cell without a number is passed over"
    assert not scope.troubles, scope.troubles


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.nightly
def test_a_matrix_without_a_tally_is_drawn_too(driver: Any) -> None:
    scope = Scope(driver)
    trace = alone("field")
    for step in trace.steps:
        step.details = [replace(step.details[0], marks=[])]
    scope.show(list(messages(trace)), 2)
    assert "lake, 2 east: 4.50, the deepest of 3" in scope.text(".survey .took")
    assert "No well." in scope.text(".survey .quiet") and not scope.troubles, scope.troubles
