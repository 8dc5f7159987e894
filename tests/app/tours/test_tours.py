"""Guided tours: every stop is as described, and the page leads there, by keyboard too."""

from __future__ import annotations

import pytest
from browser import Lab
from sizes import thinned
from toured import NEAR, TOURS, opened, rows, text_of, told

from decodescope.app.runs.catalogue.examples import examples, shipped_examples
from decodescope.engine import Method, load, run
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.model.forward.feed import Feed

SHOWN = "document.querySelector('.ds-tour .count')?.textContent"


def test_every_shipped_example_has_a_tour_and_every_tour_an_example() -> None:
    """Examples of fetched models may have one."""
    assert list(TOURS) == [x.name for x in examples() if x.name in TOURS]
    assert {x.name for x in shipped_examples()} < set(TOURS), "some are of a fetched model"


@pytest.mark.parametrize("name", thinned(3, TOURS))
def test_every_stop_is_a_node_of_that_status(name: str) -> None:
    steps = told(name)
    assert 5 <= len(TOURS[name]) <= 8
    for stop in TOURS[name]:
        row = rows(steps[stop.step])[stop.node]
        assert (row[6] if len(row) > 6 else "unreached") == stop.status, stop.title
        assert len(stop.text) < 160 and stop.text.endswith(".")


def test_what_the_tours_say_of_runs_that_are_not_shipped() -> None:
    """The full cache's text is what it would choose after each token, except for a near tie that depends on the machine."""
    model, steps = load("lab", "float32", "cpu"), told("duo-attention")
    with opened("d2o") as trace:
        prompt, record = [int(x) for x in trace.header.prompt], trace.header.method
    tokens = [token for step in steps for token, *_ in step["made"]]
    feed = Feed.causal_chain([*prompt, *tokens], 0)
    logits = Lane("target", model.decoder, KeepAll()).forward(feed)[0, len(prompt) - 1 : -1]
    chosen = logits[range(len(tokens)), tokens]
    assert len(tokens) == 40 and (logits.amax(-1) - chosen).max() < NEAR, (
        "the text is that of the whole cache"
    )
    assert text_of(told("quest")) != text_of(steps)
    # no similarity is as large as 2
    dropping = Method.from_record(record | {"policy": record["policy"] | {"min_similarity": 2.0}})
    assert run(model, dropping, prompt, max_new_tokens=8).text.startswith("Rosa went")


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_a_tour_is_walked_with_the_keyboard_and_left(lab: Lab) -> None:
    stops = TOURS[shipped_examples()[0].name]
    page = lab.open()
    page.wait_for_selector(".ds .node:visible")
    page.focus(".ds-tour button:visible")
    page.keyboard.press("Enter")
    for i, stop in enumerate(stops):
        page.wait_for_function(f"{SHOWN} == '{i + 1} of {len(stops)}'")
        page.wait_for_selector(f".ds h1:text-is('Step {stop.step}')")
        assert stop.title in page.inner_text(".ds-tour") and stop.text in page.inner_text(".ds-tour")
        if stop.status == "reject":
            page.wait_for_function(
                "document.querySelector('.ds .decision')?.textContent.includes('Rejected')"
            )
        assert page.evaluate("document.activeElement.matches('.ds-tour .go')"), "the next press leads on"
        page.keyboard.press("Enter")
    page.wait_for_selector(".ds-tour .stop", state="hidden")
    assert page.evaluate("document.activeElement.textContent").startswith("Guided tour")


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.nightly
def test_a_tour_begins_in_the_library(lab: Lab) -> None:
    place, other = [(i, x) for i, x in enumerate(examples()) if x.name in TOURS][2]
    page = lab.open("/#library", ready=False)
    page.locator("#ds-page-library .examples li").nth(place).get_by_text("Guided tour").click()
    page.wait_for_function(
        f"document.documentElement.dataset.dsTab == 'lab' && {SHOWN} == '1 of {len(TOURS[other.name])}'"
    )
    page.wait_for_selector(".ds h1:text-is('Step 0')")
    page.click("#ds-tab-library")
    page.locator("#ds-page-library .card").first.click()
    page.wait_for_function("!document.querySelector('.ds-tour .stop')?.checkVisibility()")


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize(
    ("name", "mark"),
    [
        ("adaptive", ".ds .node[data-node='%d'][aria-selected=true]"),
        ("canvas", ".ds .canvas [data-node='%d'][aria-pressed=true]"),
    ],
)
def test_on_a_small_screen_each_stop_and_its_node_are_in_view_together(
    lab: Lab, name: str, mark: str
) -> None:
    example = next(x for x in examples() if x.name == name)
    stops = TOURS[example.name]
    page = lab.open(f"/#run={example.run}", width=390, height=844)
    page.wait_for_selector(".ds .node:visible, .ds .canvas button:visible")
    for i, stop in enumerate(stops):
        page.click(".ds-tour .go" if i else ".ds-tour button:visible")
        page.wait_for_function(f"{SHOWN} == '{i + 1} of {len(stops)}'")
        page.wait_for_selector(f".ds h1:text-is('Step {stop.step}')")
        page.wait_for_function(
            """mark => ['.ds-tour .stop', mark].every(x => {
            const box = document.querySelector(x)?.getBoundingClientRect();
            return box && box.height && box.top >= -1 && box.bottom <= innerHeight + 1; })""",
            arg=mark % stop.node,
        )
