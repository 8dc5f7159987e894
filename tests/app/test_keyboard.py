"""Use of the lab with the mouse or with the keyboard alone: everything is reachable, and the focus is kept."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from browser import STEP, Lab, begun, option, passes
from waiting import eventually

from decodescope.app.runs.catalogue.examples import examples, shipped_examples
from decodescope.app.runs.catalogue.presets import PRESETS
from decodescope.app.runs.recipe import as_json, choice_from_header
from decodescope.app.runs.record_stream import RecordStream
from decodescope.engine.trace import open_trace
from decodescope.engine.trace.records.events import Step

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
FAR = 80  # the most presses of Tab from one end of the page to the other
TWO = "[...document.querySelectorAll('.ds-places h1')].map((x) => Number(x.textContent.split(' ')[1]))"


class Hands:
    """A visitor with a mouse, or with a keyboard alone."""

    def __init__(self, page: Any, mouse: bool):
        self.page, self.mouse = page, mouse

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def at(self, selector: str) -> bool:
        """True if the focus is on that element."""
        return bool(self.page.evaluate(f"!!document.activeElement?.matches({json.dumps(selector)})"))

    def stays(self, selector: str) -> None:
        """Wait until the focus is on that element: a redrawn element gets it back within a frame or two."""
        self.page.wait_for_function(f"!!document.activeElement?.matches({json.dumps(selector)})")

    def go(self, selector: str, around: bool = False) -> None:
        """Move to a visible element with Tab.

        If the element is before the focus, move backwards, unless `around` asks for the way around the whole page.
        """
        before = "x => !!x && !!(document.activeElement.compareDocumentPosition(x) & Node.DOCUMENT_POSITION_PRECEDING)"
        seen = f"[...document.querySelectorAll({json.dumps(selector)})].find((x) => x.checkVisibility())"
        back = not around and self.page.evaluate(f"({before})({seen})")
        for _ in range(FAR):
            if self.at(selector):
                return
            self.press("Shift+Tab" if back else "Tab")
        raise AssertionError(f"{selector} cannot be reached")

    def tried(self) -> None:
        """Move to a node that was tried, with the tree's keys; start again at the root when a new step arrives meanwhile."""
        for _ in range(5):
            self.go(".ds .node")
            self.press("h", "h", "h", "l")
            for _ in range(10):
                if self.at(".node.reject, .node.accept"):
                    return
                self.press("j")
        raise AssertionError("no node that was tried can be reached")

    def click(self, selector: str) -> None:
        """Press a button."""
        if self.mouse:
            self.page.locator(selector).first.click()
        else:
            self.go(selector)
            self.press("Enter")
            self.stays(selector)

    def write(self, selector: str, text: str) -> None:
        """Fill an input."""
        if self.mouse:
            self.page.click(selector, click_count=3)
        else:
            self.go(selector)
            self.press("Control+a")
        self.page.keyboard.type(text)

    def option(self, box: str, name: str) -> None:
        """Choose from one of the library's lists."""
        if self.mouse:
            option(self.page, box, name)
            return
        begun(self.page)
        self.go(f"{box} input")
        active = (
            f"document.querySelector('{box} [role=option].active')?.innerText.replace('✓', '').trim() ?? null"
        )
        for _ in range(60):
            before = self.page.evaluate(active)
            self.press("ArrowDown")
            self.page.wait_for_function(f"before => ({active}) !== before", arg=before)
            if self.page.evaluate(active) == name:
                self.press("Enter")
                # a Tab within 5 ms of Enter undoes the choice
                self.page.wait_for_function(
                    f"document.querySelector('{box} input').value == {json.dumps(name)}"
                )
                return
        raise AssertionError(f"{name} cannot be chosen")

    def status(self, word: str) -> None:
        """Wait until the run is in that state."""
        self.page.wait_for_function(f"document.documentElement.dataset.dsRun == {json.dumps(word)}")

    def run(self, tokens: int) -> None:
        """Start a run of so many tokens, and wait until the page shows it."""
        self.write("#ds-new input", str(tokens))
        before = self.page.evaluate("location.hash")
        self.click("#ds-run")
        self.page.wait_for_function(f"location.hash != {json.dumps(before)}")

    def step(self) -> int:
        """The step that the page shows."""
        return int(self.page.evaluate(STEP))


# The default is the keyboard: the tests of the other files also cover the mouse.
@pytest.fixture(
    params=[pytest.param(True, marks=pytest.mark.slow, id="mouse"), pytest.param(False, id="keyboard")]
)
def mouse(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that do not end before the test presses a button: from their eighth step on they wait for the button."""
    write = RecordStream.write

    def written(self: RecordStream, record: Any) -> None:
        write(self, record)
        if (
            isinstance(record, Step) and record.step >= 7 and not self.total
        ):  # only for live runs, not for recorded ones
            eventually(lambda: self.job is not None and (self.job._cancelled or self.job._wanted < math.inf))

    monkeypatch.setattr(RecordStream, "write", written)


def test_run_step_go_on_pause_read_the_card_stop(paused: Lab, endless: None, mouse: bool) -> None:
    page = paused.open()
    hands = Hands(page, mouse)
    hands.run(400)
    hands.status("paused")
    for made in (0, 1):
        hands.click(".ds-button.step")
        page.wait_for_function(f"{STEP} == {made}")
        hands.status("paused")
    hands.click(".ds-button.pause")
    hands.status("running")
    page.wait_for_function(f"{STEP} >= 4")
    hands.click(".ds-button.pause")
    hands.status("paused")
    # the card of a node that was tried
    hands.press("End")
    if mouse:
        page.locator(".ds .node.reject, .ds .node.accept").first.click()
    else:
        hands.tried()
        hands.press("Enter")
        hands.stays(".ds .decision")
    page.wait_for_function(
        "/^(Accepted|Rejected)/.test(document.querySelector('.ds .decision h2').textContent)"
        "&& document.querySelector('.ds .decision').textContent.includes('re-derived')"
        "&& !document.querySelector('.ds .decision').textContent.includes('does not')"
    )
    if not mouse:
        hands.press("Escape")
        hands.stays(".ds .node")
    hands.click(".ds-button.stop")
    hands.status("cancelled")
    page.wait_for_selector(".ds .outcome >> text=Stopped.")
    if not mouse:
        hands.stays(".ds-button.stop")
    # move through the steps made so far
    hands.click(".ds-button.step") if mouse else hands.go(".ds .node")
    if not mouse:
        for key, step in [("Home", 0), ("ArrowRight", 1), (".", 2), ("ArrowLeft", 1), ("Home", 0)]:
            hands.press(key)
            page.wait_for_function(f"{STEP} == {step}")
            hands.stays(".ds .node")  # while the steps play


@pytest.mark.nightly
def test_a_preset_and_a_part_are_chosen(lab: Lab, mouse: bool) -> None:
    page = lab.open()
    hands = Hands(page, mouse)
    hands.option("#ds-preset", PRESETS["h2o"].title)
    page.wait_for_function("localStorage.getItem('decodescope-settings')?.includes('h2o')")
    hands.option("#ds-policy", "Window")
    page.wait_for_function("document.querySelector('#ds-preset input').value == 'Custom'")
    page.wait_for_selector("label:has-text('size') >> visible=true")


@pytest.mark.nightly
def test_a_run_is_found_again_after_a_reload(paused: Lab, mouse: bool) -> None:
    page = paused.open()
    hands = Hands(page, mouse)
    hands.run(300)
    hands.status("paused")
    hands.click(".ds-button.step")
    page.wait_for_function(f"{STEP} == 0")
    address = page.evaluate("location.hash")
    page.reload()
    paused.ready(page)
    hands.status("paused")
    page.wait_for_function(f"{STEP} == 0")
    assert page.evaluate("location.hash") == address
    hands.click(".ds-button.step")
    page.wait_for_function(f"{STEP} == 1")
    hands.click(".ds-button.stop")
    hands.status("cancelled")


@pytest.mark.nightly
def test_two_methods_under_one_scrubber(lab: Lab, mouse: bool) -> None:
    page = lab.open()
    hands = Hands(page, mouse)
    hands.option("#ds-other", PRESETS["plain"].title)
    hands.run(20)
    page.wait_for_function("document.querySelectorAll('.ds-places .outcome').length == 2")
    hands.status("done")
    slider = ".ds-places input[type=range]"
    if mouse:
        page.locator(slider).click(position={"x": 2, "y": 5})
    else:
        hands.go(slider)
        hands.press("Home")
    page.wait_for_function(f"String({TWO}) == '0,0'")
    if mouse:
        page.click(".ds-places [aria-label='last place']")
    else:
        hands.press("End")
    page.wait_for_function(f"{TWO}[0] > 3 && {TWO}[1] == 19")
    hands.click(".ds-places button >> text=wall clock") if mouse else (
        hands.go(".ds-places .node"),
        hands.press("a"),
    )
    page.wait_for_function("location.hash.endsWith('&align=clock')")
    if not mouse:
        hands.press("Home")
        page.wait_for_function(f"String({TWO}) == '0,0'")
        hands.press("2")
        page.wait_for_function("document.activeElement.getAttribute('aria-label') == 'run B'")


@pytest.mark.nightly
def test_a_run_is_taken_away_and_replayed_without_a_network(lab: Lab, mouse: bool, tmp_path: Path) -> None:
    page = lab.open()
    hands = Hands(page, mouse)
    hands.run(24)
    hands.status("done")
    page.wait_for_selector(".ds .outcome >> text=as many tokens")
    last = hands.step()
    hands.click(".ds-shown .ds-save summary")
    page.wait_for_selector(".ds-shown a.html")
    with page.expect_download() as got:
        hands.click(".ds-shown a.html")
    path = tmp_path / "run.html"
    got.value.save_as(path)
    context = lab.driver.new_context(offline=True, reduced_motion="reduce")
    alone, asked, said = context.new_page(), [], []
    alone.on("request", lambda request: asked.append(request.url))
    alone.on("console", lambda line: said.append(line.text))
    alone.on("pageerror", lambda error: said.append(str(error)))
    alone.goto(path.as_uri())
    other = Hands(alone, mouse)
    alone.wait_for_selector(".ds .node")
    if mouse:
        alone.click("[aria-label='first step']")
    else:
        other.go(".ds .node")
        other.press("Home")
    alone.wait_for_selector(".ds h1:text-is('Step 0')")  # its policy forbids functions made from strings
    if mouse:
        alone.click("[aria-label='play the steps']")
    else:
        other.press(" ")
    # each step is shown for only half a second
    alone.wait_for_selector(".ds h1 >> text=/^Step ([2-9]|[1-9][0-9]+)$/")
    if mouse:
        alone.click("[aria-label='last step']")
    else:
        other.press("End")
    alone.wait_for_selector(f".ds h1:text-is('Step {last}')")
    assert "re-derived" in alone.inner_text(".ds") and "does not re-derive" not in alone.inner_text(".ds")
    assert not said and not [x for x in asked if not x.startswith(("file:", "blob:", "data:"))]


@pytest.mark.nightly
def test_an_example_sets_the_controls_and_run_repeats_its_settings(lab: Lab, mouse: bool) -> None:
    page = lab.open()
    hands = Hands(page, mouse)
    first = shipped_examples()[0]
    assert page.input_value("#ds-prompt textarea") == chosen(first).prompt, (
        "also the one that the page opens on"
    )
    other = next(x for x in examples() if "draft_model" not in str(chosen(x).names))
    if mouse:
        page.select_option(".ds-shown select", other.run)
    else:
        hands.go(".ds-shown select")
        while (before := page.input_value(".ds-shown select")) != other.run:
            hands.press("ArrowDown")
            page.wait_for_function(
                f"document.querySelector('.ds-shown select').value != {json.dumps(before)}"
            )
        hands.stays(".ds-shown select")
    wanted = chosen(other)
    page.wait_for_function(
        f"document.querySelector('#ds-prompt textarea').value == {json.dumps(wanted.prompt)}"
    )
    page.wait_for_function(f"document.querySelector('#ds-new input').value == '{wanted.max_new}'")
    page.wait_for_function(
        f"localStorage.getItem('decodescope-settings')?.includes({json.dumps(as_json(wanted).split('settings')[0])})"
    )
    before = set(lab.play._jobs)
    hands.click("#ds-run")
    page.wait_for_function(f"location.hash && !location.hash.includes('{other.run}')")
    (job,) = set(lab.play._jobs) - before
    assert lab.play._jobs[job].wait(300)
    again, header = (
        choice_from_header(lab.play.find(job).wire.header),
        choice_from_header(open_trace(other.path).header),
    )
    assert (again.names, again.settings, again.seed, again.max_new) == (
        header.names,
        header.settings,
        header.seed,
        header.max_new,
    )


def chosen(example: Any) -> Any:
    """The settings of an example."""
    trace = open_trace(example.path)
    try:
        return choice_from_header(trace.header)
    finally:
        trace.close()


@pytest.mark.nightly
def test_an_example_is_paused_stepped_and_played_on(lab: Lab, mouse: bool) -> None:
    page = lab.open(reduced_motion="no-preference", clock=True)
    hands = Hands(page, mouse)
    page.wait_for_function(f"{STEP} >= 1")
    hands.click(".ds-button.pause")
    page.wait_for_selector(".ds-button.pause >> text=Play")
    at = hands.step()
    hands.click(".ds-button.step")
    page.wait_for_function(f"{STEP} == {at + 1}")
    passes(page, 1300)
    assert hands.step() == at + 1, "it stands still"
    hands.click(".ds-button.pause")
    page.wait_for_selector(".ds-button.pause >> text=Pause")
    page.wait_for_function(f"{STEP} >= {at + 3}")


@pytest.mark.nightly
def test_on_a_narrow_page_everything_is_behind_one_button(lab: Lab, mouse: bool) -> None:
    page = lab.open(width=390, height=844)
    hands = Hands(page, mouse)
    assert page.locator("#ds-prompt").is_hidden() and page.locator("#ds-strategy").is_hidden()
    hands.click("button.ds-more")
    page.wait_for_selector("button.ds-more[aria-expanded=true]")
    hands.write("#ds-prompt textarea", "Hello")
    hands.go("#ds-strategy input")
    hands.click("button.ds-more")
    page.wait_for_selector("#ds-prompt", state="hidden")
    hands.click("#ds-run")
    page.wait_for_function("location.hash.startsWith('#run=')")


@pytest.mark.nightly
def test_skip_links_lead_to_picture_and_controls(lab: Lab) -> None:
    hands = Hands(lab.open(), mouse=False)
    hands.press("Tab", "Tab", "Enter")
    hands.stays("#ds-preset input")
    hands.press("Escape")
    hands.go(".skip", around=True)
    hands.press("Enter")
    hands.stays(".ds")
    hands.press("End")
    hands.page.wait_for_selector(".ds .outcome:not(:empty)")
    last = hands.step()
    hands.press("ArrowLeft")
    hands.page.wait_for_function(f"{STEP} == {last - 1}")
