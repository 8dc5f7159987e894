"""The page in a browser: it runs, shows, stops and refuses; a model's output stays text; nothing leaves the machine."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from browser import KEPT, STEP, Lab, option, seek, served
from sizes import first_of
from toylab import HOSTILE, speculative, toy_play

from decodescope.app.http.guard import Guard
from decodescope.app.runs.catalogue.examples import shipped_examples
from decodescope.app.server import build_app
from decodescope.engine.session.load import SHIPPED
from decodescope.engine.trace import open_trace

EVIL = "<img src=x onerror=window.trap=1>{{window.trap=1}}${window.trap=1}"  # a possible name of a folder
pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


@pytest.fixture(scope="module")
def hostile(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    play = toy_play(tmp_path_factory.mktemp("hostile"), HOSTILE)
    play.models.more = tmp_path_factory.mktemp("models")
    shutil.copytree(SHIPPED / "lab-draft", play.models.more / EVIL)
    with served(lambda port: Guard(build_app(play), port)) as address:
        yield Lab(driver, address, play)
        play.close()


def test_a_run_is_seen_arriving_step_by_step_and_stopped(paused: Lab) -> None:
    page = paused.open()
    page.get_by_label("New tokens").fill("400")
    page.click("#ds-run")
    page.wait_for_selector(".ds-button.pause >> text=Go on")
    run = page.evaluate("location.hash").removeprefix("#run=")
    channel = paused.play.find(run)
    for _ in range(3):
        made = channel.count
        page.click(".ds-button.step")
        page.wait_for_function(f"{STEP} == {made}")  # the first step has the number 0
        page.wait_for_selector(".ds-button.pause >> text=Go on")
    assert page.locator(".ds .node:visible").count() > 3
    assert page.locator(".ds .tok[data-step]").count() >= 3
    assert page.locator(".ds .headline .figures").inner_text().count("tokens") == 2
    assert "does not re-derive" not in page.locator(".ds").inner_text()
    # after a reload of the tab the run still exists, and the page finds it
    page.reload()
    page.wait_for_function(f"{STEP} == {channel.count - 1}")
    page.click(".ds-button.stop")
    page.wait_for_selector(".ds .outcome >> text=Stopped.")
    assert channel.end.reason == "stopped_by_user"
    # every earlier step can be shown again, and is complete then
    page.focus(".ds")
    page.keyboard.press("Home")
    page.wait_for_function(f"{STEP} == 0 && document.querySelectorAll('.ds .node').length > 1")
    page.wait_for_selector(".ds .agrees >> text=re-derived")


def test_a_refusal_stands_beside_the_controls(lab: Lab) -> None:
    page = lab.open()
    option(page, "#ds-acceptance", "Block verification")
    page.wait_for_selector("#ds-answer .ds-refusal >> text=chains only")
    page.click("#ds-run")
    page.wait_for_function(
        "document.querySelector('#ds-answer .ds-refusal').textContent.includes('lossless')"
    )
    assert "Traceback" not in page.content()


@pytest.mark.nightly
def test_what_is_recorded_is_chosen_from_its_list_and_travels_with_the_run(lab: Lab) -> None:
    page = lab.open()
    assert page.input_value("#ds-level input") == "decisions"
    option(page, "#ds-level", "full")
    page.get_by_label("Also run a full cache").check()
    page.wait_for_function(f"{KEPT}.level === 'full' && {KEPT}.reference")
    page.fill("#ds-new input", "6")
    before = page.evaluate("location.hash")
    page.click("#ds-run")
    page.wait_for_function(
        "(before) => location.hash !== before && location.hash.startsWith('#run=')", arg=before
    )
    page.wait_for_function("document.documentElement.dataset.dsRun === 'done'")
    trace = open_trace(lab.play.find(page.evaluate("location.hash.slice(5, 21)")).path)
    assert trace.header.levels[-1] == "full" and trace.steps[0].fields is not None and trace.header.reference
    trace.close()


@pytest.mark.nightly
def test_an_example_begins_at_its_first_step_however_late_the_list_of_examples_comes(lab: Lab) -> None:
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    page = lab.open("/", ready=False)
    page.route("**/ds/examples", hold)
    page.goto(f"{lab.address}/#run={shipped_examples()[0].run}")
    page.reload()
    page.wait_for_selector(".ds .outcome:not(:empty)")
    for route in held:
        route.continue_()
    page.wait_for_selector(".ds h1:text-is('Step 0')")


@pytest.mark.nightly
def test_only_parts_that_the_strategy_uses_are_shown(lab: Lab) -> None:
    page = lab.open()
    page.wait_for_selector("#ds-drafter")
    page.get_by_label("max draft tokens").locator("visible=true").first.wait_for()
    option(page, "#ds-strategy", "Beam search")
    page.wait_for_selector("#ds-drafter", state="hidden")
    assert page.locator("#ds-policy").is_visible() and not page.locator("#ds-sampler").is_visible()
    page.wait_for_selector("text=width, hypotheses")


@pytest.mark.nightly
def test_what_a_model_says_stays_text(hostile: Lab) -> None:
    channel = hostile.play.start(speculative(prompt="abcdefghijklmnop", max_new=150))
    assert hostile.play._jobs[channel.run].wait(300)
    page = hostile.open(f"/#run={channel.run}")
    page.wait_for_selector(".ds .outcome >> text=as many tokens")
    shown = page.locator(".ds .text").inner_text()
    for text in [
        "<script>window.trap=1</script>",
        "${window.trap=1}",
        "{{window.trap=1}}",
        "&lt;b&gt;",
        "\u2039U+202E\u203aabc",
        "␀",
        "␛[31m",
        "␡",
        "⏎",
        "javascript:",
    ]:
        assert text in shown, text
    for i in range(0, channel.count, 5):
        seek(page, i)
    assert page.evaluate("window.trap") is None
    assert page.locator(".ds script, .ds img, .ds iframe, .ds a").count() == 0
    assert not hostile.troubles, hostile.troubles


@pytest.mark.nightly
def test_a_hostile_prompt_and_refusal_stay_text(hostile: Lab) -> None:
    page = hostile.open()
    page.locator("#ds-prompt textarea").fill("".join(HOSTILE).replace("\0", "") * 40)
    page.click("#ds-run")
    page.wait_for_selector("#ds-answer .ds-refusal >> text=shorten the prompt")
    assert page.evaluate("window.trap") is None


@pytest.mark.skipif(os.name == "nt", reason="no folder can be called so")
@pytest.mark.nightly
def test_a_hostile_name_of_a_model_stays_text(hostile: Lab) -> None:
    page = hostile.open()
    option(page, "#ds-preset", "Plain greedy")  # the toy's draft model does not match the hostile one
    option(page, "#ds-target", re.compile(re.escape(EVIL)))
    page.wait_for_function(f"document.querySelector('#ds-target input').value.startsWith({json.dumps(EVIL)})")
    page.wait_for_function(f"document.querySelector('#ds-models b').textContent.includes({json.dumps(EVIL)})")
    assert page.evaluate("window.trap") is None and page.locator("#ds-grid img").count() == 0


@pytest.mark.nightly
def test_what_of_a_models_files_is_not_read_is_shown_as_text(hostile: Lab) -> None:
    remarks = hostile.play.models.loaded_models()["target"].remarks
    remarks.append(f"The config.json of toy gives {EVIL} = 1, which is not read.")
    page = hostile.open()
    page.wait_for_function(
        f"document.querySelector('#ds-models .quiet')?.textContent.includes({json.dumps(EVIL)})"
    )
    remarks.clear()
    assert page.locator("#ds-models .quiet").is_visible()
    assert page.evaluate("window.trap") is None and page.locator("#ds-grid img").count() == 0


@pytest.mark.parametrize("width", first_of(390, 900, 1440))
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_nothing_in_a_tree_overlaps_and_the_page_does_not_scroll_sideways(
    lab: Lab, width: int, scheme: str
) -> None:
    channel = lab.play.start(speculative(max_new=60))
    assert lab.play._jobs[channel.run].wait(300)
    page = lab.open(f"/#run={channel.run}", width, color_scheme=scheme)
    page.wait_for_selector(".ds .outcome >> text=as many tokens")
    for i in range(0, channel.count, max(1, channel.count // 6)):
        seek(page, i)
        clash = page.evaluate(
            """() => {
              const seen = (t) => t.textContent && t.closest('g.node').style.display !== 'none';
              const texts = [...document.querySelectorAll('.ds .tree text')].filter(seen);
              const boxes = texts.map((t) => [t.textContent, t.getBoundingClientRect()]);
              const right = document.querySelector('.ds').getBoundingClientRect().right + 1;
              for (const [name, a] of boxes) {
                if (a.right > right) return 'cut off: ' + name;
                for (const [other, b] of boxes) {
                  const w = Math.min(a.right, b.right) - Math.max(a.left, b.left);
                  const h = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
                  if (a !== b && w > 1 && h > 5) return name + ' on ' + other;
                }
              }
            }"""
        )
        assert clash is None, clash
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")
    assert page.evaluate("document.querySelector('.ds').dataset.theme") == scheme


def test_nothing_leaves_the_machine(lab: Lab, hostile: Lab) -> None:
    made = [urlsplit(url) for url in lab.requests + hostile.requests]
    assert len(made) > 20, "the test needs requests"
    assert {url.hostname for url in made if url.scheme not in ("data", "blob")} == {"127.0.0.1"}
