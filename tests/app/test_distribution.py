"""The sliders for the distribution at a place: what they show, where they move, and that the keyboard does it all."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import pytest
from browser import Lab

from decodescope.app.runs.catalogue.examples import examples
from decodescope.engine.trace import open_trace

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
VIEW = ".ds-distribution"
EXAMPLES = {x.name: x for x in examples()}


def opened(lab: Lab, name: str, width: int = 1440, step: int = 0) -> Any:
    """The page at a step of an example, with the sliders opened by the keyboard."""
    page = lab.open(f"/#run={EXAMPLES[name].run}&step={step}", width=width)
    page.wait_for_selector(f".ds h1:text-is('Step {step}')")
    page.focus(".ds-shown button:text-is('Distribution')")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{VIEW} tbody tr")
    return page


def rows(page: Any) -> dict[str, tuple[str, ...]]:
    """token -> the recorded value, the present value, and the outcome."""
    cells = page.locator(f"{VIEW} tbody tr").all_inner_texts()
    split = [[x.strip() for x in re.split(r"[\t\n]+", row) if x.strip()] for row in cells]
    return {token: tuple(more) for token, *more in split}


def move(page: Any, word: str, key: str, times: int = 1) -> None:
    """Press a key on the slider with that word."""
    page.focus(f"{VIEW} label:has(span:text-is('{word}')) input")
    for _ in range(times):
        page.keyboard.press(key)


@pytest.mark.nightly
def test_the_sliders_change_the_distribution_and_go_back_to_what_was_drawn(lab: Lab) -> None:
    page = opened(lab, "first-rejection", step=15)
    with closing(open_trace(EXAMPLES["first-rejection"].path)) as trace:
        step = trace.steps[15]
        place = step.tops.places.tolist().index(step.path[-1])
        kept = [
            (int(x), float(p))
            for x, p in zip(step.tops.ids[place], step.tops.p[place], strict=True)
            if x >= 0
        ]
        held = {trace.text([x]).replace(" ", "␣"): p for x, p in kept}
    first = rows(page)
    assert {token: float(one[0]) for token, one in first.items() if "others" not in token} == {
        token: pytest.approx(p, abs=6e-4) for token, p in held.items()
    }
    assert all(one[0] == one[1] for one in first.values()), "as it was drawn: nothing has changed"
    assert first["␣co"][2] == "resampled" and first["␣city"][2] == "rejected"
    said = page.inner_text(f"{VIEW} [role=status]")
    assert said == f"␣co, resampled: {first['␣co'][0]} recorded, {first['␣co'][0]} now"

    move(page, "temperature", "Home")
    assert rows(page)["␣co"][1] == "1.000" and rows(page)["␣city"][1] == "0", "greedy"
    move(page, "temperature", "ArrowRight", 5)  # 0.25, half of the recorded temperature
    total = sum(p**2 for p in held.values())
    assert float(rows(page)["␣co"][1]) == pytest.approx(held["␣co"] ** 2 / total, abs=2e-3)
    move(page, "top-k", "Home")
    move(page, "top-k", "ArrowRight")
    two = held["␣co"] ** 2 + held["␣city"] ** 2
    assert (
        float(rows(page)["␣city"][1]) == pytest.approx(held["␣city"] ** 2 / two, abs=1e-3)
        and rows(page)["␣n"][1] == "0"
    )
    move(page, "temperature", "End")
    assert page.locator(f"{VIEW} output").first.inner_text() == "2"
    page.focus(f"{VIEW} button:text-is('As it was drawn')")
    page.keyboard.press("Enter")
    assert rows(page) == first
    move(page, "temperature", "End")
    assert " to " in rows(page)["␣co"][1], "what the others take is known as a range alone"
    assert "the entropy: what these leave open is a range" in page.inner_text(f"{VIEW} .quiet")


@pytest.mark.nightly
def test_it_goes_along_the_text_and_with_the_chosen_node(lab: Lab) -> None:
    page = opened(lab, "first-rejection")
    where = f"{VIEW} header b"
    assert page.inner_text(where) == "Token 3 of the text, step 0"
    page.get_by_label("the token before", exact=True).click()
    page.wait_for_selector(f"{where}:text-is('Token 2 of the text, step 0')")
    page.get_by_label("the next token", exact=True).click()
    page.get_by_label("the next token", exact=True).click()
    page.wait_for_selector(f"{where}:text-is('Token 4 of the text, step 1')")
    page.wait_for_selector(".ds h1:text-is('Step 1')")
    page.get_by_label("the token before", exact=True).click()
    page.wait_for_selector(f"{where}:text-is('Token 3 of the text, step 0')")
    page.locator(".ds .node[data-node='1']").click()
    page.wait_for_selector(f"{where}:text-is('Token 1 of the text, step 0')")
    assert page.locator(f"{VIEW} .drawn th").inner_text() == "␣named"


@pytest.mark.nightly
def test_a_greedy_run_is_drawn_at_temperature_zero_and_shows_its_softmax(lab: Lab) -> None:
    page = opened(lab, "eagle", width=390)
    assert page.locator(f"{VIEW} output").first.inner_text() == "0, greedy"
    assert "A greedy run records the distribution at temperature 1." in page.inner_text(f"{VIEW} .quiet")
    move(page, "temperature", "ArrowRight", 20)
    assert all(one[0] == one[1] for one in rows(page).values())
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.nightly
def test_a_run_without_distributions_says_so(lab: Lab) -> None:
    with closing(open_trace(EXAMPLES["beam"].path)) as trace:
        assert all(step.tops is None for step in trace.steps), "the test needs a run that records none"
    page = lab.open(f"/#run={EXAMPLES['beam'].run}&step=0")
    page.wait_for_selector(".ds h1:text-is('Step 0')")
    page.click(".ds-shown button:text-is('Distribution')")
    page.wait_for_selector(f"{VIEW} [role=status]:text('records no distribution of a place')")
    assert not page.locator(f"{VIEW} table").is_visible()


@pytest.mark.nightly
def test_of_two_runs_side_by_side_it_follows_the_one_that_is_chosen(lab: Lab) -> None:
    first, second = EXAMPLES["first-rejection"], EXAMPLES["eagle"]
    page = lab.open(f"/#run={first.run}&with={second.run}", ready=False)
    page.wait_for_function("document.querySelectorAll('.ds-places .outcome').length === 2")
    page.focus(".ds.pair")
    page.keyboard.press("Home")
    page.wait_for_function(
        "[...document.querySelectorAll('.ds-places h1')].every((x) => x.textContent === 'Step 0')"
    )
    page.click(".ds-shown button:text-is('Distribution')")
    page.wait_for_selector(f"{VIEW} output:text-is('0.5')")
    which = page.get_by_label("Run of the distribution", exact=True)
    assert which.locator("option").all_inner_texts() == [f"A: {first.title}", f"B: {second.title}"]
    which.select_option("1")
    page.wait_for_selector(f"{VIEW} output:text-is('0, greedy')")
    with closing(open_trace(second.path)) as trace:
        written = [trace.text([token]) for token in trace.steps[0].emitted]
    chips = page.locator(f"{VIEW} .tokens button").all_inner_texts()
    assert [x.replace("␣", " ").replace("⏎", "\n") for x in chips] == written
    page.select_option(".ds-shown select", first.run)
    page.wait_for_selector(f"{VIEW} output:text-is('0.5')")
    assert which.is_hidden(), "one run is shown"
