"""Two visitors with different models: each run uses its own model, and each page names it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from browser import Lab, option, served

from decodescope.app.http.guard import Guard
from decodescope.app.runs.run_service import RunService
from decodescope.app.server import build_app
from decodescope.engine.session.load import SHIPPED

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
MODELS = "[...document.querySelectorAll('#ds-models b')].map((x) => x.textContent).join()"


@pytest.fixture(scope="module")
def lab(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab over the shipped models, plus a copy of one of them in another folder, without heads."""
    more = tmp_path_factory.mktemp("models")
    shutil.copytree(SHIPPED / "lab", more / "bare", ignore=shutil.ignore_patterns("heads", "adapters"))
    play = RunService("lab", "lab-draft", tmp_path_factory.mktemp("traces"), more)
    with served(lambda port: Guard(build_app(play), port)) as address:
        yield Lab(driver, address, play)
        play.close()


def ran(page: Any) -> str:
    """The number of the run that this page starts, once the run has ended."""
    page.click("#ds-run")
    page.wait_for_function("location.hash.startsWith('#run=')")
    page.wait_for_selector(".ds .outcome >> visible=true")
    return str(page.evaluate("location.hash")).removeprefix("#run=")[:16]


@pytest.mark.nightly
def test_each_runs_the_model_that_it_chose_and_a_new_visitor_the_first_one(lab: Lab) -> None:
    first, second = lab.open(), lab.open()
    for page in (first, second):
        page.get_by_label("New tokens").fill("4")
        option(page, "#ds-preset", "Plain greedy")
    option(second, "#ds-target", re.compile("^lab-draft,"))
    second.wait_for_function(f"{MODELS} == 'lab-draft,lab-draft'")
    assert first.evaluate(MODELS) == "lab,lab-draft"
    names = [lab.play.find(ran(page)).wire.header.model["name"] for page in (first, second, first)]
    assert names == ["lab", "lab-draft", "lab"]
    third = lab.open()
    third.wait_for_function(f"{MODELS} == 'lab,lab-draft'")
    assert third.input_value("#ds-target input").startswith("lab,")
    # the catalogue and the methods to compare show what can run on the page's own model
    option(second, "#ds-target", re.compile("bare"))
    second.wait_for_function(f"{MODELS} == 'bare,lab-draft'")
    for page, why in ((second, True), (first, False)):
        page.click(".browse")
        page.locator("dialog[open] [data-name='drafter eagle2']").click()
        page.wait_for_selector("dialog[open] .about h2")
        assert page.locator("dialog[open] .about .ds-refusal").count() == why
        page.keyboard.press("Escape")
        page.click("#ds-tab-compare")
        page.get_by_role("button", name="Run methods on one prompt").click()
        page.wait_for_function(
            f"document.querySelector('.lineup .models').textContent.includes('{'bare' if why else 'lab,'}')"
        )


@pytest.mark.nightly
def test_the_models_of_a_page_are_kept_and_go_with_its_link(lab: Lab) -> None:
    page = lab.open()
    option(page, "#ds-target", re.compile("bare"))
    page.wait_for_function(f"{MODELS} == 'bare,lab-draft'")
    page.click("#ds-copy-next-link >> visible=true")
    page.wait_for_selector("#ds-copied textarea[aria-label=link]")
    link = page.input_value("#ds-copied textarea")
    page.reload()
    lab.ready(page)
    page.wait_for_function(f"{MODELS} == 'bare,lab-draft'")
    other = lab.open(link.removeprefix(lab.address))
    other.wait_for_function(f"{MODELS} == 'bare,lab-draft'")
