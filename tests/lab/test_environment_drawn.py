"""The time lane marks where threads were timed after a step, and describes it at the mark and at that step."""

from __future__ import annotations

import pytest
import toys

from decodescope.engine.trace import Trace
from decodescope.engine.trace.records.events import Environment

from .drawn import Drawn, told

OPEN = """(all) => { window.view = S.mount(place, { views: ['text', 'time'] });
all.forEach((one) => view.push(one)); view.seek(0); }"""
TIMED = {"1": [900.0, 2500.0], "2": [4000.0, 8000.0]}


def run() -> Trace:
    trace = toys.decode(toys.method(), count=12).sink
    trace.header.pass_us = {}  # another test may have timed this model
    trace.steps[5].environment = Environment(2, 1, TIMED, 61.5, 4.1, 1)
    trace.steps[9].environment = Environment(1, 1, TIMED)
    return trace


def test_the_wire_says_what_was_done_and_why() -> None:
    steps = [x for x in told(run()) if x["kind"] == "step"]
    assert {x["i"]: x["environment"] for x in steps if "environment" in x} == {
        5: {"before": 2, "after": 1, "slower": 4.1},
        9: {"before": 1, "after": 1, "slower": None},
    }


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_the_time_lane_marks_it_and_says_it(drawn: Drawn) -> None:
    drawn.run(OPEN, told(run()))
    words = {}
    for step in range(12):
        drawn.run("(i) => view.seek(i)", step)
        words[step] = drawn.text(".time-pane .quiet").partition(f"step {step} of 11")[2]
    assert {i: x for i, x in words.items() if x} == {
        5: "; 2 → 1 thread: a pass took 4.10× as long",
        9: "; still 1 thread: all numbers were timed again, and no other number is better",
    }
    box = drawn.page.locator(".lane-box")
    size = box.bounding_box()
    for share, due in ((6 / 12, words[5]), (3 / 12, "")):
        drawn.page.mouse.move(size["x"] + share * size["width"], size["y"] + 26)
        assert (box.get_attribute("title") or "") == due.removeprefix("; ")


COSTED = "(all) => { window.view = S.mount(place); all.forEach((one) => view.push(one)); view.seek(0); }"


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_time_lane_and_roofline_say_what_a_step_cost_in_plain_passes(drawn: Drawn) -> None:
    trace = toys.decode(toys.method(drafter="draft_model"), count=12).sink
    step = trace.steps[0]
    step.wall_us, (check,) = 1500.0, [x for x in step.passes if x.phase == "verify"]
    trace.header.pass_us = {"target": {"1": 500.0, str(check.tokens): 1050.0}}
    drawn.run(COSTED, told(trace))
    made = len(step.emitted)
    due = f"; {made} token{'s' * (made > 1)} in the time of 3.00 plain passes"
    assert drawn.text(".time-pane .quiet").endswith(due)
    assert f"{check.tokens} rows (cost of 2.10 rows): " in drawn.text(".roof-pane .reading")
    assert not drawn.troubles
