"""The page in a browser: it runs, shows, stops and refuses; what a model says stays text; nothing leaves the machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from browser import browser, served
from decodescope.app.guard import Guard
from decodescope.app.server import app
from toylab import HOSTILE, speculative, toy_play

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
LONG = 60_000  # ms that a condition may take on a machine that is busy with other things
STEP = "Number((document.querySelector('.ds h1')?.textContent || 'Step -1').split(' ')[1])"


class Lab:
    """A served lab, a browser, and every request that its pages made."""

    closing = False  # what a page says while it is being closed does not count

    def __init__(self, driver: Any, address: str, play: Any):
        self.driver, self.address, self.play = driver, address, play
        self.requests: list[str] = []
        self.troubles: list[str] = []

    def open(self, path: str = "/", **more: Any) -> Any:
        context = self.driver.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce", **more)
        page = context.new_page()
        page.set_default_timeout(LONG)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.closing or self.troubles.append(str(error)))
        page.on("console", lambda said: said.type == "error" and not self.closing and self.troubles.append(said.text))
        page.goto(self.address + path)
        page.wait_for_selector(".ds-button.stop", state="attached")
        page.wait_for_selector(".ds .empty", state="attached")
        return page


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with browser() as made:
        yield made


@pytest.fixture(autouse=True)
def closed(driver: Any) -> Iterator[None]:
    """What a test opened is closed after it: a page that plays on would slow the next one."""
    yield
    Lab.closing = True
    for context in driver.contexts:
        context.close()
    Lab.closing = False


@pytest.fixture(scope="module")
def lab(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    play = toy_play(tmp_path_factory.mktemp("traces"))
    with served(lambda port: Guard(app(play), port)) as address:
        made = Lab(driver, address, play)
        yield made
        play.close()
    assert not made.troubles, made.troubles


@pytest.fixture(scope="module")
def hostile(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    play = toy_play(tmp_path_factory.mktemp("hostile"), HOSTILE)
    with served(lambda port: Guard(app(play), port)) as address:
        yield Lab(driver, address, play)
        play.close()


@pytest.fixture
def paused(lab: Lab) -> Iterator[Lab]:
    """The lab, whose runs begin paused."""
    lab.play.pausing = True
    yield lab
    lab.play.pausing = False


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
    # the tab is loaded again: the run is still there, and the page finds it
    page.reload()
    page.wait_for_function(f"{STEP} == {channel.count - 1}")
    page.click(".ds-button.stop")
    page.wait_for_selector(".ds .outcome >> text=Stopped.")
    assert channel.end.reason == "stopped_by_user"
    # every step can be gone back to, and is whole then
    page.focus(".ds")
    page.keyboard.press("Home")
    page.wait_for_function(f"{STEP} == 0 && document.querySelectorAll('.ds .node').length > 1")
    page.wait_for_selector(".ds .agrees >> text=re-derived")


def test_a_double_click_makes_one_run(paused: Lab) -> None:
    page = paused.open()
    before = len(paused.play._jobs)
    page.get_by_label("New tokens").fill("300")
    page.dblclick("#ds-run")
    page.wait_for_selector(".ds-button.pause >> text=Go on")
    page.click("#ds-run")
    page.wait_for_selector(".ds-refusal >> text=still going")
    assert len(paused.play._jobs) == before + 1
    page.click(".ds-button.stop")
    page.wait_for_function("document.querySelector('.ds-button.stop').disabled")


def test_a_refusal_stands_beside_the_controls(lab: Lab) -> None:
    page = lab.open()
    page.click("#ds-acceptance input")
    page.get_by_role("option", name="Block").click()
    page.wait_for_selector("#ds-answer .ds-refusal >> text=chains only")
    page.click("#ds-run")
    page.wait_for_function("document.querySelector('#ds-answer .ds-refusal').textContent.includes('lossless')")
    assert "Traceback" not in page.content()


def test_only_parts_that_the_strategy_uses_are_shown(lab: Lab) -> None:
    page = lab.open()
    assert page.locator("#ds-drafter").is_visible() and page.get_by_label("length, tokens").first.is_visible()
    page.click("#ds-strategy input")
    page.get_by_role("option", name="Beam search").click()
    page.wait_for_selector("#ds-drafter", state="hidden")
    assert page.locator("#ds-policy").is_visible() and not page.locator("#ds-sampler").is_visible()
    page.wait_for_selector("text=width, hypotheses")


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
        page.evaluate(
            "i => { const s = document.querySelector('.ds .scrub'); s.value = i; s.dispatchEvent(new Event('input')); }", i
        )
        page.wait_for_function(f"{STEP} == {i} && document.querySelectorAll('.ds .node').length > 1")
    assert page.evaluate("window.trap") is None
    assert page.locator(".ds script, .ds img, .ds iframe, .ds a").count() == 0
    assert not hostile.troubles, hostile.troubles


def test_a_hostile_prompt_and_refusal_stay_text(hostile: Lab) -> None:
    page = hostile.open()
    page.get_by_label("Prompt").fill("".join(HOSTILE).replace("\0", "") * 40)
    page.click("#ds-run")
    page.wait_for_selector("#ds-answer .ds-refusal >> text=shorten the prompt")
    assert page.evaluate("window.trap") is None


@pytest.mark.parametrize("width", [1440, 900, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_in_a_tree_overlaps_and_the_page_does_not_scroll_sideways(lab: Lab, width: int, scheme: str) -> None:
    channel = lab.play.start(speculative(max_new=60))
    assert lab.play._jobs[channel.run].wait(300)
    page = lab.open(f"/#run={channel.run}", color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_selector(".ds .outcome >> text=as many tokens")
    for i in range(0, channel.count, max(1, channel.count // 6)):
        page.evaluate(
            "i => { const s = document.querySelector('.ds .scrub'); s.value = i; s.dispatchEvent(new Event('input')); }", i
        )
        page.wait_for_function(f"{STEP} == {i} && document.querySelectorAll('.ds .node').length > 1")
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
