"""Charts of parts' notes: the data behind the marks, by kind."""

from __future__ import annotations

from typing import Any

import pytest
import toys
from toylab import HOSTILE

from decodescope.engine.trace.records.events import DraftTree
from decodescope.lab.figures import notes

from .planted import NOTES, planted, values
from .runs import known

COUNT = 20
MISSING = (6, 13)  # steps in which some kinds have no note


def drawn(name: str, **more: Any) -> Any:
    return notes.figure(planted(COUNT), name, **more)


@pytest.mark.parametrize("name", NOTES)
def test_every_note_has_its_figure(name: str) -> None:
    made = drawn(name)
    assert made.data and made.layout.xaxis.title.text == ("hours" if name == "rows" else "step")
    if NOTES[name].kind != "clock":
        assert made.layout.title.text == f"{NOTES[name].word}, {NOTES[name].what}"


def test_a_series_stands_beside_what_it_is_held_against() -> None:
    level, bar = drawn("level").data
    steps = [k for k in range(COUNT) if k not in MISSING]
    assert (
        list(level.x) == steps
        and list(level.y) == [values(k)["level"] for k in steps]
        and level.name == "level"
    )
    assert (
        list(bar.y) == [values(k)["bar"] for k in range(COUNT)]
        and bar.name == "bar"
        and bar.line.dash == "dash"
    )
    floor = drawn("bar").data[1]
    assert list(floor.y) == [1.5, 1.5] and floor.name == "floor 1.5"
    assert set(drawn("on").data[0].y) == {0, 1} and drawn("level").layout.yaxis.title.text == "points"


def test_nodes_are_dots_of_their_step() -> None:
    dots, bar = drawn("sure").data
    assert list(zip(dots.x, dots.y, strict=True)) == [(k, x) for k in range(COUNT) for x in values(k)["sure"]]
    assert bar.name == "bar" and dots.mode == "markers"


def test_spans_begin_and_end_where_they_do() -> None:
    bars = drawn("reach").data[0]
    spans = [(x, a, a + high) for x, a, high in zip(bars.x, bars.base, bars.y, strict=True)]
    assert spans[:3] == [(0, 0, 1), (0, 6, 9), (1, 1, 5)] and not {*bars.x} & {*MISSING}


def test_a_set_has_a_row_for_each_member_and_of_many_those_that_are_in_it_most() -> None:
    crew = drawn("crew").data[0]
    assert list(dict.fromkeys(crew.y)) == ["0", "1", "2", "3", "4", "7", "11"], "numbers in their order"
    assert [x for x, y in zip(crew.x, crew.y, strict=True) if y == "11"] == [
        k for k in range(COUNT) if k not in MISSING
    ]
    assert set(drawn("seen").data[0].y) == {"x", "⟨E2 96⟩"}, "tokens are text"
    many = planted(2)
    many.steps[0].draft.notes["crew"] = list(range(100, 130))  # type: ignore[union-attr, index]
    rows = notes.figure(many, "crew").data[0]
    assert len(set(rows.y)) == notes.MOST and rows.name == "17 more are not shown" and rows.showlegend


def test_clocks_are_lines_of_one_time_and_a_grid_is_shades() -> None:
    sowing, reaping = drawn("reaping").data
    assert (sowing.name, reaping.name) == ("sowing", "reaping")
    assert sowing.y[1] == pytest.approx(1.6) and set(reaping.y) == {0.5}
    beds = drawn("beds").data[0]
    assert list(beds.y) == ["left", "right"] and list(beds.z[0]) == [
        k for k in range(COUNT) if k not in MISSING
    ]


def test_what_a_file_says_is_no_markup() -> None:
    trace = planted(1)
    trace.steps[0].draft = DraftTree([8], [-1], [0.5], "iid", notes={"crew": HOSTILE})
    text = notes.figure(trace, "crew").to_json()
    assert "<script" not in text and "\\u003cscript" not in text


def test_a_name_that_nobody_tells_is_refused_with_those_that_are_told() -> None:
    with pytest.raises(
        ValueError,
        match=r"No part of this run records 'lvl'; recorded are sure \(drafter\), .*level \(drafter\)",
    ):
        drawn("lvl")
    with pytest.raises(ValueError, match="none records any signals"):
        notes.figure(known("plain"), "mu")
    both = planted(1)
    both.header.tells["sampler"] = {"level": NOTES["level"]}  # type: ignore[index]
    with pytest.raises(ValueError, match="drafter and sampler both record 'level'"):
        notes.figure(both, "level")
    assert notes.figure(both, "level", part="drafter").data


def test_mu_is_drawn_beside_tau() -> None:
    mu, tau = notes.figure(toys.decode(toys.method(sampler="mirostat")).sink, "mu").data
    assert tau.name == "target surprise 5" and list(tau.y) == [5.0, 5.0] and mu.y[0] == 10.0
