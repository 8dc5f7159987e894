"""The depth map: each pass with the outcome of its layers, and the tests of the chosen pass."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Any

import pytest
import torch
import toys

from decodescope.engine.trace import Trace

from .drawn import Drawn, told

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("drawn")]

LAYERS = 6
DEEP = toys.model(toys.decoder(toys.toy_spec(n_layers=LAYERS), 3, torch.float64))
OPEN = """(all) => { place.replaceChildren(); window.view = S.mount(place, { views: ['tree', 'depth', 'time'] });
all.forEach((one) => view.push(one)); view.seek(0); }"""
TABLE = ".depth-pane .twin tbody tr"


def run(**parts: Any) -> Trace:
    return toys.decode(toys.method(**parts), count=16, pair=(DEEP, DEEP)).sink


def shown(drawn: Drawn, messages: list[dict[str, Any]]) -> list[list[str]]:
    """The rows of the map as a table."""
    drawn.run(OPEN, messages)
    drawn.page.get_by_role("button", name="Show as table").last.click()
    drawn.settled()
    return drawn.cells(TABLE)


@pytest.mark.nightly
def test_the_map_and_its_tests_say_what_the_record_says(drawn: Drawn) -> None:
    trace = run(adaptive_depth=("confidence_exit", {"threshold": 0.9, "min_layers": 1}))
    rows = shown(drawn, told(trace))
    assert len(rows) == len(trace.steps)
    depths = [step.exits[0].depth for step in trace.steps]
    assert len(set(depths)) > 2, "the test needs passes that leave at several depths"
    for row, depth in zip(rows, depths, strict=True):
        ran = "0 ran" if depth == 1 else f"0 to {depth - 1} ran"
        rest = (
            "" if depth == LAYERS else f", {depth} propagated" if depth == 5 else f", {depth} to 5 propagated"
        )
        assert row[3] == f"layers {ran}{rest}"
    for i, left in enumerate(step.exits[0] for step in trace.steps):
        drawn.run("(i) => view.seek(i)", i)
        title = (
            f"All {LAYERS} layers ran"
            if left.depth == LAYERS
            else f"Left after {left.depth} of {LAYERS} layers"
        )
        assert drawn.text(".tests h3") == title
        tests = drawn.cells(".tests tbody tr")
        assert [int(row[0]) for row in tests] == [int(test[0]) for test in left.tests]
        assert [row[4] for row in tests] == [
            "it leaves" if left.test_leaves(c, b) else "it goes on" for _, c, b in left.tests
        ]
        saved = told(trace)[i + 1]["depth"]["saved"]
        assert drawn.text(".depth-pane .figures").startswith(f"{abs(saved):.2f}")
    # tokens that waited before a layer are settled in the step where they continued; those above it are settled first
    messages = told(trace)
    for message, ran, went in zip(
        messages[1:4], ("rrrwww", "rrwwww", "rrrrrr"), (None, None, [0, 0, 1, 2, 2, 2]), strict=True
    ):
        message["depth"] = {"ran": [[ran, 1, 0]], "saved": 0} | ({"went": went} if went else {})
    words = [row[3] for row in shown(drawn, messages)]
    assert words[:2] == ["layers 0 to 2 ran, 3 to 5 waiting", "layers 0 to 1 ran, 2 to 5 waiting"]
    drawn.run("() => view.seek(2)")
    words = [row[3] for row in drawn.cells(TABLE)]
    assert words[:2] == ["layers 0 to 2 ran, 3 to 5 ran later", "layers 0 to 1 ran, 2 to 5 ran later"]


def test_drafts_by_an_exit_stand_before_their_check_and_plain_runs_have_no_map(drawn: Drawn) -> None:
    trace = run(
        drafter=(
            "early_exit",
            {"criterion": "confidence_exit threshold=0.6 min_layers=1", "max_draft_tokens": 3},
        )
    )
    rows = shown(drawn, told(trace))
    first = [row[1] for row in rows if row[0] == "0"]
    assert first[-1] == "target" and set(first[:-1]) == {"draft"}
    drawn.run("() => view.seek(1)")
    plot = drawn.page.locator(".depth-pane .plot")
    drawn.page.get_by_role("button", name="Show as table").last.click()
    drawn.settled()
    before = plot.get_attribute("aria-valuetext")
    plot.press("ArrowUp")
    drawn.settled()
    assert plot.get_attribute("aria-valuetext") != before
    messages = told(trace)
    for message in messages[1:-1]:
        message.pop("depth", None)
    drawn.run(OPEN, messages)
    assert not drawn.page.locator(".depth-pane").is_visible()
    messages = told(run(adaptive_depth=("confidence_exit", {"threshold": 0.9})))
    for message in messages[1:-1]:
        del message["depth"]
    drawn.run(OPEN, messages)
    assert "does not say which layers ran" in drawn.text(".depth-pane")


WORDS = {"r": "ran", "a": "attention alone", "f": "feed-forward alone", "p": "propagated", "-": "absent"}


@pytest.mark.parametrize("gap", ["propagate", "absent"])
def test_rows_that_chose_alone_show_each_half_of_a_layer_and_their_scores(drawn: Drawn, gap: str) -> None:
    trace = run(adaptive_depth=("skip_layer", {"threshold": 0.4, "skipped_kv": gap}))
    rows, seen = shown(drawn, told(trace)), set[str]()
    for row, step in zip(rows, trace.steps, strict=True):
        signs = ["p" if x == "-" and gap == "propagate" else x for x in step.exits[0].signs]
        runs = [[*run] for _, run in groupby(enumerate(signs), itemgetter(1))]
        due = [f"{run[0][0]}{f' to {run[-1][0]}' if len(run) > 1 else ''} {WORDS[run[0][1]]}" for run in runs]
        assert row[3] == "layers " + ", ".join(due)
        seen.update(signs)
    assert len(seen) == 4, "the test needs every choice"
    assert "where passes left" not in drawn.text(".depth-pane")
    for i, left in enumerate(step.exits[0] for step in trace.steps):
        drawn.run("(i) => view.seek(i)", i)
        assert drawn.text(".tests h3") == f"{round(100 * left.open_share)} % of {2 * LAYERS} sub-layers ran"
        cells = drawn.cells(".tests tbody tr")
        ran = ["ran" if x > left.over else "left out" for x in left.scores[0]]
        assert [word for row in cells for word in (row[2], row[4])] == ran
