"""Guided tours: every stop is what it says, and the page leads there, by keyboard too."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from browser import Lab
from decodescope.app.examples import examples
from decodescope.app.tours import TOURS
from decodescope.engine.trace import open_trace
from decodescope.lab.messages import messages

SHOWN = "document.querySelector('.ds-tour .count')?.textContent"


def told(name: str) -> list[dict[str, Any]]:
    """The steps of an example as the views get them."""
    trace = open_trace(next(x.path for x in examples() if x.name == name))
    try:
        return [x for x in messages(trace) if x["kind"] == "step"]
    finally:
        trace.close()


@pytest.mark.parametrize("name", TOURS)
def test_every_stop_is_a_node_of_that_status(name: str) -> None:
    steps = told(name)
    assert 5 <= len(TOURS[name]) <= 8
    for stop in TOURS[name]:
        row = steps[stop.step]["nodes"][stop.node]
        assert (row[6] if len(row) > 6 else "unreached") == stop.status, stop.title
        assert len(stop.text) < 160 and stop.text.endswith(".")


def test_what_the_tours_claim_is_in_the_traces() -> None:
    first = told("first-rejection")
    held, refused = first[0]["nodes"][1], first[0]["nodes"][7]
    assert [round(held[k], 4) for k in (3, 4, 5, 8)] == [0.9157, 0.8591, 0.6301, 0.9382]
    assert [round(refused[k], 4) for k in (3, 4, 5, 8)] == [0.5619, 0.2807, 0.5228, 0.4995]
    assert [origin for *_, origin in first[0]["made"]] == ["accept", "accept", "resample"]
    assert first[2]["nodes"][2][7] == 0 and first[2]["refused"] == 3 and len(first[2]["made"]) == 1
    assert [origin for *_, origin in first[6]["made"]] == ["accept"] * 5 + ["bonus"]
    h2o = [next(x for x in step["kv"] if x["lane"] == "target") for step in told("h2o")]
    assert [h2o[i]["evicted"] > 0 for i in (12, 13, 14, 30, 46)] == [False, False, True, True, True]
    trace = open_trace(next(x.path for x in examples() if x.name == "h2o"))
    held = [next(x for x in step.cache if x.lane == "target").held for step in trace.steps]
    assert held[0] == len(trace.header.prompt) == 11 and held[13:] == [24] * len(held[13:])
    assert len(trace.header.prompt) + len(trace.steps) - 1 == 58
    rows = trace.steps[14].cache[0].evicted
    assert rows is not None and len({str(x) for x in json.loads(json.dumps(rows.tolist()))}) > 1
    recycling = told("recycling")
    trace = open_trace(next(x.path for x in examples() if x.name == "recycling"))
    prompt, made = [trace.text([x]) for x in trace.header.prompt], [piece for step in recycling for _, piece, _ in step["made"]]
    behind = {after for before, after in pairwise(prompt) if before == "\n"}
    assert behind == {node[1] for node in recycling[0]["nodes"][1:] if node[0] == 0} and len(behind) == 3
    assert (recycling[4]["drafted"], recycling[4]["refused"], len(recycling[4]["made"])) == (15, 7, 1)
    name = [piece for _, piece, _ in recycling[5]["made"]]
    assert len(name) == 5 and "".join(name[:3]) in "".join(prompt)
    assert [origin for *_, origin in recycling[5]["made"]] == ["accept"] * 4 + ["bonus"]
    assert (len(made), len(recycling)) == (40, 14) and made[-1] == "<|end|>" and recycling[-1]["made"][-1][2] == "accept"
    assert "".join(made[:-1]) in "".join(prompt)


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_a_tour_is_walked_with_the_keyboard_and_left(lab: Lab) -> None:
    stops = TOURS[examples()[0].name]
    page = lab.open()
    page.wait_for_selector(".ds .node:visible")
    page.focus(".ds-tour button:visible")
    page.keyboard.press("Enter")
    for i, stop in enumerate(stops):
        page.wait_for_function(f"{SHOWN} == '{i + 1} of {len(stops)}'")
        page.wait_for_selector(f".ds h1:text-is('Step {stop.step}')")
        assert stop.title in page.inner_text(".ds-tour") and stop.text in page.inner_text(".ds-tour")
        if stop.status == "reject":
            page.wait_for_function("document.querySelector('.ds .decision')?.textContent.includes('Rejected')")
        assert page.evaluate("document.activeElement.matches('.ds-tour .go')"), "the next press leads on"
        page.keyboard.press("Enter")
    page.wait_for_selector(".ds-tour .stop", state="hidden")
    assert page.evaluate("document.activeElement.textContent").startswith("Guided tour")


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_a_tour_begins_in_the_library(lab: Lab) -> None:
    other = examples()[2]
    page = lab.open("/#library", ready=False)
    page.locator("#ds-page-library .examples li").nth(2).get_by_text("Guided tour").click()
    page.wait_for_function(f"document.documentElement.dataset.dsTab == 'lab' && {SHOWN} == '1 of {len(TOURS[other.name])}'")
    page.wait_for_selector(".ds h1:text-is('Step 0')")
    page.click("#ds-tab-library")
    page.locator("#ds-page-library .card").first.click()
    page.wait_for_function("!document.querySelector('.ds-tour .stop')?.checkVisibility()")
