"""Zooming in on time: wheel, drag, pinch, keys and buttons on the steps of one run and on the clocks of several."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from .drawn import Drawn, told
from .runs import run
from .test_pair import LONG, open_pair

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("drawn")]
ONE = """(told) => {
  window.view = S.mount(place, { views: ["text", "time"] });
  told.forEach((one) => view.push(one));
  place.append(Object.assign(document.createElement("div"), { style: "height: 3000px" }));
}"""


class Hands:
    """A user of the lanes of a page."""

    def __init__(self, drawn: Drawn, box: str):
        self.drawn, self.page, self.box = drawn, drawn.page, drawn.page.locator(box)

    def at(self, share: float) -> tuple[float, float]:
        box = self.box.bounding_box()
        return box["x"] + share * box["width"], box["y"] + 26

    def wheel(self, share: float, down: float, key: str = "") -> None:
        """Turn the wheel there, with a key held."""
        self.page.mouse.move(*self.at(share))
        if key:
            self.page.keyboard.down(key)
        self.page.mouse.wheel(0, down)
        if key:
            self.page.keyboard.up(key)
        self.drawn.settled()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
        self.drawn.settled()

    def drag(self, start: float, end: float) -> None:
        self.page.mouse.move(*self.at(start))
        self.page.mouse.down()
        self.page.mouse.move(*self.at((start + end) / 2))
        self.page.mouse.move(*self.at(end))
        self.page.mouse.up()
        self.drawn.settled()

    def near(self) -> bool:
        return bool(self.box.evaluate("(box) => box.classList.contains('zoomed')"))


@pytest.fixture
def alone(drawn: Drawn) -> Iterator[Hands]:
    """One run, on a page higher than the window."""
    drawn.run(ONE, told(run("plain greedy")))
    drawn.run("() => view.seek(30)")
    yield Hands(drawn, ".lane-box")


@pytest.fixture
def beside(drawn: Drawn) -> Iterator[Hands]:
    """Two runs, joined by the clock."""
    open_pair(drawn, run("plain greedy"), run("greedy"), align="clock")
    drawn.run("() => { both.align('clock'); both.seek({ seconds: 0 }); }")
    yield Hands(drawn, ".lane-of-two")


def seen(hands: Hands) -> tuple[int, int] | None:
    """The visible steps of one run; None: all."""
    words = re.search(r"steps (\d+) to (\d+) are seen", hands.drawn.text(".time-pane .quiet"))
    return (int(words[1]), int(words[2])) if words else None


def clock(hands: Hands) -> tuple[float, float] | None:
    """The visible milliseconds of several runs; None: all."""
    words = re.search(
        r", ([\d.]+) to ([\d.]+) ms seen", hands.drawn.page.locator(".lanes").get_attribute("aria-label")
    )
    return (float(words[1]), float(words[2])) if words else None


def test_keys_and_buttons_zoom_one_run_and_all_brings_it_back(alone: Hands) -> None:
    whole = alone.page.get_by_role("button", name="all", exact=True)
    assert seen(alone) is None and whole.get_attribute("aria-disabled") == "true" and whole.is_visible()
    alone.box.focus()
    alone.press("+")
    first = seen(alone)
    assert first and first[0] <= 30 <= first[1] and first[1] - first[0] in (29, 30, 31)
    alone.press("ArrowRight")
    assert seen(alone)[0] > first[0] and alone.drawn.run("() => view.at") == 30, (
        "arrows go along, the step stays"
    )
    alone.press("ArrowLeft", "+", "+", "+", "+", "+")
    least = seen(alone)
    assert 7 <= least[1] - least[0] <= 9, "eight steps at least"
    alone.press("-")
    assert seen(alone)[1] - seen(alone)[0] > 12
    alone.press("0")
    assert seen(alone) is None
    alone.page.get_by_role("button", name="zoom in").click()
    alone.drawn.settled()
    assert seen(alone)
    whole.click()
    alone.drawn.settled()
    assert seen(alone) is None and not alone.near()


def test_a_step_out_of_sight_is_brought_into_it(alone: Hands) -> None:
    alone.box.focus()
    alone.press("+", "+", "+")
    for step in (0, 59, 58, 12):
        alone.drawn.run("(i) => view.seek(i)", step)
        first, last = seen(alone)
        assert first <= step <= last
    alone.press("ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight")
    assert not seen(alone)[0] <= 12 <= seen(alone)[1], "who goes along is not brought back"
    alone.drawn.run("() => view.root.dispatchEvent(new Event('nothing'))")
    alone.drawn.run("() => view.seek(13)")
    assert seen(alone)[0] <= 13 <= seen(alone)[1]


@pytest.mark.nightly
def test_the_wheel_zooms_with_ctrl_or_focus_and_else_the_page_scrolls(alone: Hands) -> None:
    alone.wheel(0.5, 100)
    alone.page.wait_for_function("() => window.scrollY > 0")
    assert seen(alone) is None
    alone.page.evaluate("() => window.scrollTo(0, 0)")
    alone.wheel(0.25, -60, "Control")
    first, last = seen(alone)
    assert first < 15 < last and abs((15 - first) / (last - first) - 0.25) < 0.05, (
        "what is under the pointer stays there"
    )
    alone.press("Control+0")
    alone.box.focus()
    alone.wheel(0.5, 60)
    alone.wheel(0.5, 60)
    assert seen(alone) is None
    alone.page.evaluate("() => window.scrollTo(0, 0)")
    alone.wheel(0.75, -60)
    assert seen(alone) and alone.page.evaluate("() => window.scrollY") == 0
    before = seen(alone)
    alone.wheel(0.75, -80, "Shift")
    assert seen(alone)[0] < before[0] and seen(alone)[1] - seen(alone)[0] == pytest.approx(
        before[1] - before[0], abs=1
    )


@pytest.mark.nightly
def test_a_drag_goes_along_and_a_click_goes_to_the_step(alone: Hands) -> None:
    alone.box.focus()
    alone.press("+")
    first, _ = seen(alone)
    alone.drag(0.8, 0.3)
    assert seen(alone)[0] == pytest.approx(first + 15, abs=1) and alone.drawn.run("() => view.at") == 30
    start = seen(alone)[0]
    alone.page.mouse.click(*alone.at(0.5))
    alone.drawn.settled()
    assert alone.drawn.run("() => view.at") == pytest.approx(start + 15, abs=1)
    assert alone.page.input_value(".scrub") == str(alone.drawn.run("() => view.at")), (
        "the scrubber goes with it"
    )


@pytest.mark.nightly
def test_two_fingers_zoom(alone: Hands) -> None:
    alone.box.evaluate(
        """(box) => {
          const { left, top, width } = box.getBoundingClientRect();
          const say = (name, pointerId, share) => box.querySelector("canvas").dispatchEvent(new PointerEvent(name,
            { pointerId, clientX: left + share * width, clientY: top + 20, bubbles: true }));
          box.setPointerCapture = null;
          say("pointerdown", 11, 0.4), say("pointerdown", 12, 0.6);
          for (const x of [0.7, 0.8]) say("pointermove", 12, x);
          say("pointerup", 11, 0.4), say("pointerup", 12, 0.8);
        }"""
    )
    alone.drawn.settled()
    first, last = seen(alone)
    assert last - first == pytest.approx(30, abs=1), "twice as far apart, half as much"


@pytest.mark.nightly
def test_clocks_of_two_runs_are_seen_closer_on_one_axis(beside: Hands) -> None:
    assert clock(beside) is None
    beside.wheel(0.3, -60, "Control")
    beside.wheel(0.3, -60, "Control")
    first, last = clock(beside)
    spent = beside.page.evaluate(
        "() => Math.max(...both.views.map((v) => v.store.steps.at(-1).sum.decode)) * 1000"
    )
    assert 0 < first < last < spent and last - first == pytest.approx(spent / 1.01**120, rel=0.05)
    # a click moves both runs to that moment
    beside.page.mouse.click(*beside.at(0.5))
    beside.drawn.settled()
    here = beside.drawn.run("() => both.at")
    assert first < here["seconds"] * 1000 < last and beside.drawn.run("() => both.way") == "clock"
    due = beside.drawn.run(
        """(seconds) => both.views.map(({ store }) => {
          const at = store.steps.findIndex((x) => x.sum.decode > seconds);
          return at < 0 ? store.count - 1 : at;
        })""",
        here["seconds"],
    )
    assert here["steps"] == due
    # arrow keys move the visible range, and the position stays; the slider brings the other end into view
    beside.box.focus()
    beside.press("ArrowRight", "ArrowRight")
    assert clock(beside)[0] > first and beside.drawn.run("() => both.at") == here
    beside.drawn.run("() => both.seek({ seconds: 0 })")
    assert clock(beside)[0] == 0
    beside.press("0")
    assert clock(beside) is None
    beside.press("ArrowRight")
    assert beside.drawn.run("() => both.at.seconds") > 0, "while all is seen arrows go by steps"


@pytest.mark.nightly
def test_the_table_of_the_clocks_lists_all_steps_however_near_one_is(beside: Hands) -> None:
    beside.box.focus()
    beside.press("+", "+", "+")
    beside.page.locator(".clocks button", has_text="Show as table").click()
    beside.drawn.settled()
    stores: Any = beside.drawn.run("() => both.views.map((v) => v.store.count)")
    assert len(beside.drawn.cells(".clocks .twin tbody tr")) == sum(stores)
    assert beside.page.locator(".clocks .zoom").is_hidden()


@pytest.mark.nightly
def test_ten_thousand_steps_are_seen_down_to_a_millisecond(drawn: Drawn) -> None:
    drawn.run(LONG, told(run("plain greedy"))[0], 10_000)
    hands = Hands(drawn, ".lane-of-two")
    hands.box.focus()
    drawn.run("() => { both.align('clock'); both.seek({ seconds: 50.005 }); }")
    hands.press(*"+" * 40)
    first, last = clock(hands)
    assert last - first == pytest.approx(1, abs=0.11) and first <= 50_005 <= last
