"""On the page a real model is chosen, asked and answers; the views and tabs show its run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import KEPT, LONG, STEP, Lab, option, served

from decodescope.app.http.guard import Guard
from decodescope.app.runs.run_service import RunService
from decodescope.app.server import build_app
from decodescope.engine.trace import check, open_trace

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
TABS = {"compare": "#ds-page-compare *", "cache": "#ds-page-cache *", "hardware": "#ds-page-hardware svg"}


@pytest.fixture
def real_lab(driver: Any, real_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A lab that offers the folder of the real model; what it writes goes into a folder of the test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    play = RunService("lab", "lab-draft", tmp_path / "traces", real_model.parent)
    with served(lambda port: Guard(build_app(play), port)) as address:
        made = Lab(driver, address, play)
        yield made
        play.close()
    assert not made.troubles, made.troubles


def test_a_real_model_is_chosen_asked_and_answers(real_lab: Lab, real_model: Path) -> None:
    page = real_lab.open()
    option(page, "#ds-target", re.compile(re.escape(real_model.stem)))
    page.get_by_role(
        "button", name="Draft without a second model"
    ).click()  # the draft model has other tokens
    page.wait_for_function(f"{KEPT}.names.drafter === 'prompt_lookup'")
    page.fill("#ds-prompt textarea", "What is the capital of France? Repeat the question.")
    page.get_by_label("Chat template").check()
    page.wait_for_selector(".ds-given pre >> text=<|im_start|>assistant")
    page.fill("#ds-new input", "24")
    page.wait_for_function(f"{KEPT}.chat && {KEPT}.new === 24")
    page.click("#ds-run")
    done = "location.hash && document.documentElement.dataset.dsRun === 'done'"
    page.wait_for_function(done, timeout=5 * LONG)  # the model is loaded first, and its kernels are compiled
    channel = real_lab.play.find(page.evaluate("location.hash.slice(5, 21)"))
    trace = open_trace(channel.path)
    assert trace.header.model["stored_as"].startswith("Q4_1") and check(trace).ok
    assert len(trace.end.tokens) > 4 and trace.header.chat
    page.wait_for_selector(".ds .tok >> text=Paris")
    page.focus(".ds")
    page.keyboard.press("Home")
    page.wait_for_function(f"{STEP} == 0")
    page.wait_for_selector(".ds .node:visible")
    for name, drawn in TABS.items():
        page.click(f"#ds-tab-{name}")
        page.wait_for_selector(f"{drawn} >> visible=true")
    trace.close()
