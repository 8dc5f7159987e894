"""A picture that fills in: its cells, the pass of each cell, live rows, stand-ins and groups, refused tokens, and keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import toys
from sizes import first_of
from toylab import Words

from decodescope.engine import Session
from decodescope.engine.core.spec import PictureSpec
from decodescope.engine.trace import Step, Trace
from decodescope.lab.wire.messages import build_wire
from decodescope.lab.wire.picture_shape import encode_picture_shape

from .drawn import Drawn, told

PROMPT = [3, 1, 4, 0, 2]  # two cells are already given
METHODS: dict[str, dict[str, Any]] = {
    "zipar": dict(strategy=("zipar", {"window": 3}), sampler="temperature"),
    "randar": dict(strategy=("randar", {"steps": 9}), sampler="temperature"),
    "plain": dict(sampler="temperature"),
    "sjd": dict(drafter=("sjd", {"window": 6}), sampler="temperature"),
}


def run(name: str) -> Trace:
    """A finished picture, with letters as the texts of its tokens."""
    method = toys.method(**METHODS[name])
    target = (
        toys.raster_target() if method.strategy.writes == "text" else toys.strategy_target(method.strategy)
    )
    words = Words([f" {chr(97 + x % 26)}" for x in range(target.spec.vocab)])
    target = replace(target, tokenizer=words)
    session = Session(target, method, PROMPT, max_new_tokens=62, stop_tokens=[], seed=1)
    session.sink = Trace()
    for _ in session.stream():
        pass
    return session.sink


def standins(step: Step) -> list[list[int]]:
    """Position and token of the stand-ins that a step fed instead of future cells."""
    canvas = step.detail_of("canvas")
    return [] if canvas is None else canvas.standins or []


def cells(trace: Trace) -> list[tuple[int, int]]:
    """(token, step) of each cell; step -1 for the cells that the prompt gives."""
    came: dict[int, tuple[int, int]] = {0: (0, -1), 1: (2, -1)}
    for step in trace.steps:
        if (canvas := step.detail_of("canvas")) is not None:
            came |= {p - 3: (x, step.step) for p, x in zip(canvas.places, canvas.tokens, strict=True)}
        else:
            came |= {step.n - 3 + k: (x, step.step) for k, x in enumerate(step.emitted)}
    return [came[cell] for cell in range(64)]


# ---- on the wire


def test_the_head_says_where_the_picture_begins_and_what_is_there() -> None:
    trace = run("zipar")
    assert build_wire(trace).head()["picture"] == {
        "height": 8, "width": 8, "levels": list(toys.LEVELS), "begin": 3, "known": [0, 2],
    }  # fmt: skip
    text = toys.decode(count=4).sink
    assert "picture" not in build_wire(text).head()
    model = trace.header.model | {"picture": trace.header.model["picture"] | {"height": 256, "width": 256}}
    assert encode_picture_shape(replace(trace.header, model=model)) == {}, (
        "a picture of 65,536 cells is not drawn"
    )
    for wrong in ({"width": "8"}, {"levels": "ab"}, {"height": 0}):
        model = trace.header.model | {"picture": trace.header.model["picture"] | wrong}
        assert encode_picture_shape(replace(trace.header, model=model)) == {}
    assert PictureSpec(8, 8, toys.LEVELS).size == 64


def test_a_step_tells_its_stand_ins_and_the_rows_that_it_fed() -> None:
    trace = run("zipar")
    sent = [x["canvas"] for x in told(trace)[1:-1]]
    assert [[row[:2] for row in x.get("standins", [])] for x in sent] == [standins(s) for s in trace.steps]
    assert [x["fed"] for x in sent] == [s.passes[-1].tokens for s in trace.steps] and any(
        "standins" in x for x in sent
    )


# ---- drawn


def drawing(test: Any) -> Any:
    return pytest.mark.browser(pytest.mark.xdist_group("drawn")(test))


def opened(drawn: Drawn, name: str) -> Trace:
    trace = run(name)
    drawn.run(
        "(all) => { window.view = S.mount(place, {}); all.forEach((one) => view.push(one)); }", told(trace)
    )
    return trace


def board(drawn: Drawn, which: int) -> list[tuple[str, str, str, str]]:
    """(classes, share, text, words) of each cell."""
    rows = (
        drawn.page.locator(".picture-pane .cells")
        .nth(which)
        .locator("button")
        .evaluate_all(
            "x => x.map((y) => [y.className, y.style.getPropertyValue('--p'), y.textContent, y.ariaLabel])"
        )
    )
    return [tuple(row) for row in rows]


@drawing
@pytest.mark.parametrize("name", first_of(*METHODS))
def test_each_cell_has_its_level_its_pass_and_its_marks(name: str, drawn: Drawn) -> None:
    trace = opened(drawn, name)
    final, last = cells(trace), len(trace.steps) - 1
    for i in sorted({0, len(trace.steps) // 3, len(trace.steps) // 2, last}):
        drawn.run("(i) => view.seek(i)", i)
        waiting = {
            p - 3 for s in trace.steps[: i + 1] for p, _ in standins(s)
            if final[p - 3][1] > i
        }  # fmt: skip
        for cell, (grey, heat) in enumerate(zip(board(drawn, 0), board(drawn, 1), strict=True)):
            token, step = final[cell]
            there, now = step <= i, step == i
            assert (
                ("open" in grey[0]) == (not there)
                and ("now" in grey[0]) == now
                and ("given" in grey[0]) == (cell < 2)
            )
            assert ("standin" in grey[0]) == (cell in waiting)
            if there and token in toys.LEVELS:
                level = toys.LEVELS.index(token)
                assert abs(float(grey[1][:-1]) - 100 * level / 7) < 1 and f"level {level} of 7" in grey[3]
            assert ("odd" in grey[0]) == (there and token not in toys.LEVELS)
            assert grey[3].startswith(f"row {cell // 8 + 1}, column {cell % 8 + 1}, ")
            if there and step >= 0 and "refused" not in heat[0]:
                assert heat[2] == str(step) and abs(float(heat[1][:-1]) - 100 * step / last) < 1
    assert f"{last + 1} of {last + 1} passes" in drawn.text(".picture-pane .figures")


@pytest.mark.nightly
@drawing
def test_live_rows_groups_and_refusals_are_said(drawn: Drawn) -> None:
    trace = opened(drawn, "zipar")
    at = next(
        s.step
        for s in trace.steps
        if s.detail_of("canvas").standins and len(s.detail_of("canvas").places) > 1
    )
    fill = trace.steps[at].detail_of("canvas")
    drawn.run("(i) => view.seek(i)", at)
    rows = [(p - 3) // 8 + 1 for p in fill.places]
    said = f"Pass {at}: {len(rows)} cells, {len(rows)} live rows ({', '.join(map(str, rows))}); a stand-in for the last of row "
    assert drawn.text(".picture-pane .took") == f"{said}{(fill.standins[0][0] - 3) // 8 + 1}."
    assert "another token was fed for this cell" in drawn.text(".picture-pane > p:last-child")
    drawn.run("() => { view.destroy(); place.replaceChildren(); }")
    opened(drawn, "randar")
    drawn.run("(i) => view.seek(i)", 6)
    assert drawn.text(".picture-pane .took").endswith("cells, a group.")
    drawn.run("() => { view.destroy(); place.replaceChildren(); }")
    trace = opened(drawn, "sjd")
    at = next(s.step for s in trace.steps if s.trials is not None and not all(s.trials.ok))
    drawn.run("(i) => view.seek(i)", at)
    refused = [cell for cell, one in enumerate(board(drawn, 0)) if "refused" in one[0]]
    step = trace.steps[at]
    assert refused == [step.n - 3 + step.accepted] and "refused: " in board(drawn, 0)[refused[0]][3]
    assert board(drawn, 0)[refused[0]][2] == "×"


@pytest.mark.nightly
@drawing
def test_a_cell_leads_to_its_pass_and_arrows_go_from_cell_to_cell(drawn: Drawn) -> None:
    trace = opened(drawn, "zipar")
    final = cells(trace)
    drawn.run("() => view.seek(99)")
    heat = drawn.page.locator(".picture-pane .cells").nth(1)
    heat.locator("button").nth(20).click()
    drawn.settled()
    assert drawn.run("() => [view.at, view.selection]") == [final[20][1], {"step": final[20][1], "node": 19}]
    assert drawn.page.locator(".picture-pane [tabindex='0']").count() == 2, "one stop for the tab key in each"
    heat.locator("button").nth(20).focus()
    for key, cell in (("ArrowRight", 21), ("ArrowDown", 29), ("ArrowLeft", 28), ("ArrowUp", 20)):
        drawn.page.keyboard.press(key)
        assert drawn.run("() => Number(document.activeElement.dataset.cell)") == cell
    assert drawn.run("() => view.at") == final[20][1], "arrows on a cell do not go through the steps"
    drawn.run("() => view.seek(99)")
    heat.locator("button").nth(20).focus()
    drawn.page.keyboard.press("ArrowDown")
    drawn.page.keyboard.press("Enter")
    drawn.settled()
    assert drawn.run("() => view.at") == final[28][1] != final[20][1]


@drawing
@pytest.mark.parametrize("width", first_of(390, 1280))
def test_it_fits_in_a_small_window_and_a_run_of_text_has_none(width: int, driver: Any) -> None:
    page = Drawn(driver, width)
    opened(page, "zipar")
    assert page.run("() => document.documentElement.scrollWidth <= innerWidth")
    page.run("() => { view.destroy(); place.replaceChildren(); }")
    text = toys.decode(count=4).sink
    page.run(
        "(all) => { window.view = S.mount(place, {}); all.forEach((one) => view.push(one)); }", told(text)
    )
    assert not page.page.locator(".picture-pane").is_visible()
    page.close()
