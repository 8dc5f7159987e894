"""Slots on the page: rows of a pass without a token are grey, after the rows with tokens, under the nodes that they hang on."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import toys

from decodescope.engine.trace import Step, Trace

from .drawn import Drawn, told

DRAFTERS: dict[str, dict[str, Any]] = {
    "look_ahead_tokens": {"placement": "everywhere"},
    "bita": {"nodes": 5},
    "space": {"mask_token": 12, "max_draft_tokens": 3},
    "ppd": {},
}

OPEN = """(all) => { window.view = S.mount(place, { views: ['tree', 'card'] });
all.forEach((one) => view.push(one)); }"""


@cache
def run(drafter: str) -> Trace:
    return toys.decode(toys.method(drafter=(drafter, DRAFTERS[drafter])), count=12).sink


def total(step: Step) -> int:
    return next(one.slots for one in step.passes if one.phase == "verify") or 0


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_the_wire_says_how_many_slots_hang_on_each_node(drafter: str) -> None:
    trace, hung = run(drafter), 0
    for step, message in zip(trace.steps, (x for x in told(trace) if x["kind"] == "step"), strict=True):
        if not total(step):
            assert "slots" not in message
            continue
        assert sum(message["slots"]) == total(step)
        if step.draft is not None and step.draft.notes is not None:
            each = total(step) // sum(step.draft.notes["slots"])
            assert message["slots"] == [each * count for count in step.draft.notes["slots"]]
            hung += len(step.draft.tokens) > 1
    assert hung, "the test needs slots behind nodes"


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_the_rows_of_the_pass_lie_side_by_side_and_slots_are_no_tokens(drafter: str, drawn: Drawn) -> None:
    trace = run(drafter)
    drawn.run(OPEN, told(trace))
    rows, bunches = (
        drawn.page.locator(".pass-slots .rows li:visible"),
        drawn.page.locator(".pass-slots .hung > span:visible"),
    )
    for i, step in enumerate(trace.steps):
        drawn.run("(i) => view.seek(i)", i)
        drafted = 0 if step.draft is None else len(step.draft.tokens)
        assert drawn.page.locator(".pass-slots").is_visible() == bool(total(step))
        if not total(step):
            continue
        said = drawn.text(".pass-slots p")
        rest = f"the root, {drafted} drafted, and {total(step)} slot"
        assert said.startswith(f"{1 + drafted + total(step)} rows of the pass: {rest}")
        assert rows.count() == 1 + drafted
        wide = bunches.locator("i").evaluate_all("x => x.map((y) => parseFloat(y.style.width))")
        assert sum(wide) == 10 * total(step)
        assert drawn.page.locator(".pass-slots .next:visible").count() == ("make the next draft" in said)
    drawn.run("(i) => view.seek(i)", 1)
    rows.nth(1).locator("button").click()
    drawn.settled()
    assert rows.locator("[aria-pressed=true]").count() == 1 and drawn.run("() => view.selection.node") == 1
