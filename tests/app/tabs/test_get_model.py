"""Get a model, in a browser: the offer in one line, size and licence, progress, and the model first in the list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Lab, served
from package_server import PackageServer

from decodescope.app.http.guard import Guard
from decodescope.app.runs.run_service import RunService
from decodescope.app.server import build_app

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
OFFER = ".ds-offer"
DIALOG = "dialog.ds-get[open]"


@pytest.fixture
def open_lab(driver: Any, index: PackageServer, tmp_path: Path) -> Iterator[Lab]:
    """A lab whose owner lets visitors fetch models."""
    play = RunService("lab", "lab-draft", tmp_path / "traces")
    play.downloads.allowed = True
    with served(lambda port: Guard(build_app(play), port)) as address:
        made = Lab(driver, address, play)
        yield made
        play.close()
    assert not made.troubles, made.troubles


@pytest.mark.parametrize("width", [1440, 390])
def test_one_click_fetches_the_model_and_a_question_can_be_asked(
    open_lab: Lab, index: PackageServer, width: int
) -> None:
    page = open_lab.open(width=width)
    page.wait_for_selector(f"{OFFER}:visible")
    assert page.inner_text(f"{OFFER} span") == "A real model, 1 MB, MIT, answers nothing:"
    assert "ds-tiny" not in page.inner_text("#ds-models")
    page.click(f"{OFFER} .go")
    page.wait_for_selector(f"{DIALOG} .told:has-text('first in the list')")
    facts = page.inner_text(f"{DIALOG} .facts")
    assert "the package tiny-model 0.1" in facts and "MIT" in facts
    box = page.locator(DIALOG).bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= width, "the dialog is inside the window"
    page.click(f"{DIALOG} .told button")
    page.wait_for_selector("#ds-models b:has-text('tiny-instruct')", state="attached")
    assert page.evaluate("JSON.parse(localStorage['decodescope-settings']).models.target") == "tiny-instruct"
    assert page.evaluate("document.activeElement.id") == "ds-run"
    page.click("#ds-run")
    page.wait_for_function("document.documentElement.dataset.dsRun === 'done'", timeout=120_000)
    page.reload()
    page.wait_for_selector("#ds-models b:has-text('tiny-instruct')", state="attached")
    assert page.locator(f"{OFFER}:visible").count() == 0, "what is there is not offered"


def test_the_offer_can_be_put_away_for_good(open_lab: Lab) -> None:
    page = open_lab.open()
    page.wait_for_selector(f"{OFFER}:visible")
    page.click(f"{OFFER} [aria-label='do not offer this again']")
    page.wait_for_selector(OFFER, state="hidden")
    page.reload()
    page.wait_for_selector(".ds-button.get:visible")
    assert page.locator(f"{OFFER}:visible").count() == 0
    page.click(".ds-button.get")
    page.wait_for_selector(f"{DIALOG} .facts dd")


def test_a_failure_is_shown_in_the_dialog(open_lab: Lab, index: PackageServer) -> None:
    index.digest = "0" * 64
    page = open_lab.open()
    page.click(f"{OFFER} .go")
    page.wait_for_selector(f"{DIALOG} .ds-refusal:has-text('does not have the checksum')")
    index.digest = ""
    page.click(f"{DIALOG} footer .go")
    page.wait_for_selector(f"{DIALOG} .told:has-text('first in the list')")


def test_a_visitor_who_may_not_fetch_sees_no_offer(open_lab: Lab) -> None:
    open_lab.play.downloads.allowed = False
    page = open_lab.open()
    with page.expect_response("**/ds/models"):
        page.reload()
    page.wait_for_selector(".ds .node:visible")
    assert page.locator(f"{OFFER}:visible, .ds-button.get:visible").count() == 0
