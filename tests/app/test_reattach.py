"""A run belongs to the server.

A page that is reloaded, closed, left and reopened, or asleep finds every step. Two tabs show the same run, and endless clicks
make one run.
"""

from __future__ import annotations

from typing import Any

import pytest
from browser import STEP, Lab
from sizes import first_of
from toylab import occupied, speculative
from waiting import eventually

from decodescope.app.runs.record_stream import RecordStream

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
LAST = "Number(document.querySelector('.ds .scrub').max)"
SHOWN = "[...new Set([...document.querySelectorAll('.ds .tok[data-step]')].map((x) => Number(x.dataset.step)))].length"
TIMES = 3  # how often each page is left


def stepped(lab: Lab, channel: RecordStream, times: int) -> None:
    """Let a paused run make so many steps."""
    for _ in range(times):
        made = channel.count
        lab.play.act(channel, "step")
        eventually(lambda: channel.count > made, "the run makes no step")  # noqa: B023 # called at once
    assert lab.play._jobs[channel.run].status in ("paused", "running")


def away(lab: Lab, page: Any, channel: RecordStream, way: str) -> Any:
    """Leave the page in this way while the run makes steps, then come back; return the page."""
    address = f"/#run={channel.run}"
    if way == "asleep":
        session = page.context.new_cdp_session(page)
        session.send("Page.setWebLifecycleState", {"state": "frozen"})
        stepped(lab, channel, 4)
        session.send("Page.setWebLifecycleState", {"state": "active"})
        return page
    if way == "closed":
        page.context.close()
        stepped(lab, channel, 4)
        return lab.open(address)
    if way == "reloaded":
        stepped(lab, channel, 1)
        page.reload()
        stepped(lab, channel, 3)
        return page
    page.goto("about:blank")
    stepped(lab, channel, 4)
    page.go_back()
    return page


@pytest.mark.nightly
@pytest.mark.parametrize("way", first_of("closed", "reloaded", "back", "asleep"))
def test_no_step_is_lost_on_a_page_that_was_away(paused: Lab, way: str) -> None:
    channel = paused.play.start(speculative(max_new=100))
    stepped(paused, channel, 3)
    page = paused.open(f"/#run={channel.run}")
    for _ in range(TIMES):
        page = away(paused, page, channel, way)
        page.wait_for_function(
            f"{STEP} == {channel.count - 1} && {LAST} == {channel.count - 1} && {SHOWN} == {channel.count}"
        )
    paused.play.act(channel, "resume")
    page.wait_for_selector(".ds .outcome >> text=as many tokens")
    page.wait_for_function(f"{SHOWN} == {channel.count}")  # the rest of a step is drawn in a frame of its own
    assert channel.count == channel.end.steps  # type: ignore[union-attr] # the run has ended
    assert page.evaluate(LAST) == channel.count - 1


@pytest.mark.nightly
def test_two_tabs_see_the_same_and_either_stops_the_run(paused: Lab) -> None:
    channel = paused.play.start(speculative(max_new=100))
    one, two = (paused.open(f"/#run={channel.run}") for _ in range(2))
    stepped(paused, channel, 5)
    for page in (one, two):
        page.wait_for_function(f"{STEP} == {channel.count - 1}")
    texts = [page.locator(".ds .text").inner_text() for page in (one, two)]
    assert texts[0] == texts[1] and len(texts[0]) > 5
    two.click(".ds-button.stop")
    for page in (one, two):
        page.wait_for_selector(".ds .outcome >> text=Stopped.")
        page.wait_for_function(f"{SHOWN} == {channel.count}")
    assert channel.end.reason == "stopped_by_user"  # type: ignore[union-attr] # the run has ended


@pytest.mark.nightly
def test_a_second_tab_waits_its_turn_and_says_behind_whom(paused: Lab) -> None:
    second = paused.open()
    with occupied(paused.play) as running:
        first = paused.open(f"/#run={running.run}")
        second.click("#ds-run")
        second.wait_for_selector(".ds .veil >> text=1 run before yours")
        first.click(".ds-button.stop")
    first.wait_for_selector(".ds .outcome >> text=Stopped.")
    second.wait_for_selector(".ds-button.pause >> text=Go on")
    second.click(".ds-button.stop")
    second.wait_for_selector(".ds .outcome >> text=Stopped.")


@pytest.mark.nightly
def test_a_run_in_the_way_is_told_while_it_goes_and_can_be_stopped_for_the_next(paused: Lab) -> None:
    page = paused.open()
    page.click("#ds-run")
    page.wait_for_selector(".ds-button.pause >> text=Go on")
    first = str(page.evaluate("location.hash"))
    page.click("#ds-run")
    page.click("#ds-answer button >> text=Stop it and run this")
    page.wait_for_function("first => location.hash !== first && location.hash.startsWith('#run=')", arg=first)
    assert paused.play.find(first.removeprefix("#run=")).end.reason == "stopped_by_user"
    page.wait_for_selector(".ds-button.pause >> text=Go on")
    page.click("#ds-run")
    page.wait_for_selector("text=Your run is still going")
    page.click(".ds-button.stop")
    page.wait_for_selector("text=Your run is still going", state="hidden")


@pytest.mark.parametrize("clicks", first_of(12, 2, 100))
def test_many_clicks_make_one_run(paused: Lab, clicks: int) -> None:
    page = paused.open()
    before = len(paused.play._jobs)
    page.get_by_label("New tokens").fill("300")
    page.evaluate("n => { for (let i = 0; i < n; i++) document.querySelector('#ds-run').click(); }", clicks)
    page.wait_for_selector(".ds-button.pause >> text=Go on")
    page.click("#ds-run")
    page.wait_for_selector(".ds-refusal >> text=still going")
    assert len(paused.play._jobs) == before + 1
    page.click(".ds-button.stop")
    page.wait_for_selector(".ds-button.stop[aria-disabled=true]")
