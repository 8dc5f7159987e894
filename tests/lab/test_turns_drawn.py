"""Two lanes: who wrote each token, what decided it, and what was read and taken back, as recorded."""

from __future__ import annotations

from typing import Any

import pytest
import toys

from decodescope.engine.trace import Trace

from .drawn import Drawn, told

OPEN = """(all) => { place.replaceChildren(); window.view = S.mount(place, { views: ['tree', 'depth', 'time'] });
all.forEach((one) => view.push(one)); view.seek(0); }"""
TABLE = ".turns-pane .twin tbody tr"


def run(router: str) -> Trace:
    knobs = (
        {"tau": 1.0, "min_turn_tokens": 2, "window": 2}
        if router == "entropy"
        else toys.settings_of("router", router)[0]
    )
    return toys.decode(toys.method(strategy="switch", router=(router, knobs)), count=16).sink


def tried(trace: Trace) -> list[dict[str, Any]]:
    """The lanes of both models on the wire, step by step."""
    return [x["lanes"] for x in told(trace) if x["kind"] == "step"]


@pytest.mark.parametrize("router", ["entropy", "fallback"])
def test_the_wire_says_of_each_token_who_wrote_it(router: str) -> None:
    trace, writers, back = run(router), set(), 0
    (view,) = (x["lanes"] for x in told(trace)[0]["views"].values() if "lanes" in x)
    assert view["lanes"] == [["M", "large model"], ["S", "small model"]] and view["title"] == "Two lanes"
    for step, lanes in zip(trace.steps, tried(trace), strict=True):
        (s,) = step.details
        kept = [row for row in lanes["tried"] if row[4]]
        assert lanes["bar"] == s.values.get("bar", 0.5) and lanes["caught"] == s.values["caught"]
        assert [row[0] for row in kept] == ["S" if x == "draft" else "M" for x in step.origins]
        assert sum(lanes["passes"]) == len(step.passes)
        assert lanes["passes"][0] == sum(x.lane == "target" for x in step.passes)
        writers |= {row[0] for row in kept}
        gone = [row for row in lanes["tried"] if not row[4]]
        back += len(gone)
        if router == "entropy":
            assert [row[2:4] for row in lanes["tried"]] == [[s.columns["bits"][0], s.columns["mean"][0]]]
            assert lanes["tried"][0][4] == 1, "whoever goes on, what was written stays"
        else:
            n, stays = s.values["written"], s.values["kept"]
            assert {row[0] for row in gone} <= {"S"} and len(gone) == n - stays
            seen = [x for k, x in enumerate(s.columns["sure"][:n]) if k < len(step.emitted) or k >= stays]
            assert [row[2] for row in lanes["tried"] if row[0] == "S"] == seen
    assert writers == {"S", "M"} and bool(back) == (router == "fallback"), (
        "the test needs both models, and a rollback"
    )


def test_a_run_of_one_model_says_nothing_of_lanes() -> None:
    messages = told(toys.decode(toys.method(), count=4).sink)
    assert messages and not any("lanes" in x for x in messages if x["kind"] == "step")


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
@pytest.mark.parametrize("router", ["entropy", "fallback"])
def test_both_lanes_are_drawn_with_their_shares(router: str, drawn: Drawn) -> None:
    trace = run(router)
    drawn.run(OPEN, told(trace))
    drawn.page.locator(".turns-pane").get_by_role("button", name="Show as table").click()
    last = len(trace.steps) - 1
    drawn.run("(i) => view.seek(i)", last)
    drawn.settled()
    lanes = tried(trace)
    by = {"S": "small model", "M": "large model"}
    due = [by[row[0]] + ("" if row[4] else ", taken back") for one in lanes for row in one["tried"]]
    assert [row[2] for row in drawn.cells(TABLE)] == due
    origins = [x for step in trace.steps for x in step.origins]
    passes = [sum(one["passes"][k] for one in lanes) for k in (1, 0)]
    words = drawn.text(".turns-pane .figures")
    assert f"{100 * origins.count('target') / len(origins):.0f} % of tokens by M" in words
    assert f"{100 * passes[1] / sum(passes):.0f} % of passes by M" in words
    assert f"{sum(one['caught'] for one in lanes)} rows read" in words
    plot = drawn.page.locator(".turns-pane .plot")
    assert plot.get_attribute("aria-valuetext").startswith(f"Step {last}: ")
    drawn.page.locator(".turns-pane").get_by_role("button", name="Show as table").click()
    drawn.settled()
    drawn.run("() => view.seek(0)")
    drawn.settled()
    width = len(lanes[0]["tried"]) * 22
    plot.click(position={"x": 40 + width + 11, "y": 100})
    drawn.settled()
    assert plot.get_attribute("aria-valuenow") == "1"


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_a_run_of_one_model_has_no_lanes(drawn: Drawn) -> None:
    drawn.run(OPEN, told(toys.decode(toys.method(), count=4).sink))
    assert not drawn.page.locator(".turns-pane").is_visible()
