"""A notebook in a real JupyterLab: widgets and charts are drawn, and nothing is fetched from anywhere."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from waiting import eventually

from .kernel import at_home, in_turns

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("jupyterlab"),
]  # at the same time as the page's tests
NEWS = "@jupyterlab/apputils-extension:announcements"  # asks for permission to fetch news
# cells out of view are drawn as well
WHOLE = {"@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"}}
RUN_S = 240
LONG_MS = 150_000  # waiting time for one event, on a machine that is busy with other work
SLIDER = ".ds input:is(.scrub, .along)"  # the slider of a run, or of a comparison
# an appended cell asks the kernel for the step of the first picture, or for the place of the first comparison
PLACE = """from decodescope.lab.views.compare import Comparison
from decodescope.lab.views.scope import Scope
picture = next(x for x in Out.values() if isinstance(x, (Scope, Comparison)))
f"the kernel reads {picture.step if isinstance(picture, Scope) else picture.token}."
"""
# every cell has its number, and folded cells show none; or one has failed, after which no other runs
ALL_RAN = """() => {
    const all = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt:not(.jp-Placeholder-prompt)')];
    return document.querySelector('.jp-RenderedText[data-mime-type*=error]')
        || (all.length > 0 && all.every((x) => /\\d/.test(x.textContent)));
}"""


@contextmanager
def jupyterlab(folder: Path, notebook: str, env: dict[str, str]) -> Iterator[str]:
    """The address of a JupyterLab that shows `notebook` in `folder`, with its token."""
    config = Path(env["JUPYTER_CONFIG_DIR"]) / "labconfig"
    config.mkdir(parents=True)
    (config / "page_config.json").write_text(json.dumps({"disabledExtensions": {NEWS: True}}))
    (config / "default_setting_overrides.json").write_text(json.dumps(WHOLE))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(8)
    told = [
        f"--port={port}",
        "--port-retries=0",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={folder}",
    ]
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--ServerApp.ip=127.0.0.1",
        *told,
    ]
    with (folder.parent / "jupyter.log").open("w") as log:
        server = subprocess.Popen(command, env={**os.environ, **env}, stdout=log, stderr=log)
    try:
        eventually(lambda: answers(f"http://127.0.0.1:{port}/api?token={token}"), "JupyterLab did not start")
        yield f"http://127.0.0.1:{port}/lab/tree/{notebook}?token={token}"
    finally:
        server.terminate()
        server.wait(30)


def answers(address: str) -> bool:
    """True if a server answers there."""
    try:
        urllib.request.urlopen(address, timeout=2).close()
        return True
    except OSError:
        return False


def run_all(page: Any, address: str) -> None:
    """Open the notebook, run every cell, wait for the last one."""
    page.goto(address, timeout=60_000)
    page.wait_for_selector(".jp-NotebookPanel .jp-CodeCell", timeout=60_000)
    page.wait_for_selector("text=Python 3 | Idle", timeout=60_000)
    page.click("[role=menubar] >> text=Run")
    page.click("[role=menu] >> text=/^Run All Cells$/")
    page.wait_for_function(ALL_RAN, timeout=RUN_S * 1000)


def opened(work: Path, name: str, *cells: str) -> None:
    """Create the folder `work` and write a notebook of these cells into it."""
    work.mkdir()
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    book = new_notebook(cells=[new_code_cell(x) for x in cells], metadata=kernel)
    (work / name).write_text(json.dumps(book))


@pytest.mark.slow
@pytest.mark.nightly
def test_the_keys_of_a_widget_s_slider_are_the_slider_s(
    driver: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = at_home(tmp_path / "home", monkeypatch)
    work = tmp_path / "work"
    opened(
        work,
        "keys.ipynb",
        "from decodescope.lab import show",
        "scope = show('adaptive')\nscope",
        "scope.step + 1000",
    )
    with jupyterlab(work, "keys.ipynb", env) as address:
        page = driver.new_page(viewport={"width": 1360, "height": 1000})
        run_all(page, address)
        page.click(".ds .scrub")
        at = int(page.input_value(".ds .scrub"))
        assert at > 2, "the test needs a step before"
        for key, due in (
            ("ArrowLeft", at - 1),
            ("ArrowLeft", at - 2),
            ("ArrowRight", at - 1),
            ("Home", 0),
            ("ArrowRight", 1),
        ):
            page.press(".ds .scrub", key)
            page.wait_for_function(
                "(due) => document.querySelector('.ds .scrub').value === due", arg=str(due), timeout=10_000
            )
        page.click(".jp-CodeCell >> nth=2 >> .cm-content")
        page.keyboard.press("Shift+Enter")
        page.wait_for_selector(".jp-OutputArea-output >> text=1001")


@pytest.mark.slow
@pytest.mark.nightly
def test_a_run_is_drawn_while_it_goes_stopped_and_begun_again(
    driver: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = at_home(tmp_path / "home", monkeypatch)
    work = tmp_path / "work"
    going = "running = start('lab', 'prompt_lookup', 'def f(x):', max_new_tokens=1500)\nshow(running)"
    knobs = "panel = controls(start('lab', 'prompt_lookup', 'def f(x):', max_new_tokens=12))\npanel"
    imports = "from decodescope.engine import start\nfrom decodescope.lab import controls, show"
    opened(work, "live.ipynb", imports, going, knobs, "running.status")
    with jupyterlab(work, "live.ipynb", env) as address:
        page = driver.new_page(viewport={"width": 1360, "height": 1400})
        page.set_default_timeout(LONG_MS)
        page.goto(address)
        page.wait_for_selector("text=Python 3 | Idle")
        page.click("[role=menubar] >> text=Run")
        page.click("[role=menu] >> text=/^Run All Cells$/")
        page.wait_for_selector("text=/decoding, step \\d+/")
        page.wait_for_selector(".ds .tree")
        assert page.locator(".ds .scrub").first.get_attribute("max") != "0"
        page.click("button:has-text('Stop') >> nth=0")
        page.wait_for_selector("text=/stopped: \\d+ tokens/")
        page.wait_for_selector("text=/done: 12 tokens/")
        page.click(".jp-CodeCell >> nth=3 >> .cm-content")
        page.keyboard.press("Shift+Enter")
        page.wait_for_selector(".jp-OutputArea-output >> text=cancelled")
        page.locator(".widget-readout").first.fill("3")  # the length of the drafts
        page.keyboard.press("Enter")
        page.wait_for_selector(".ds >> text=/^length 3, ngram/")
        assert not page.locator(".jp-RenderedText[data-mime-type*=error]").count()


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """One JupyterLab for all chapters: its address without a notebook, and the folder that it shows."""
    folder = tmp_path_factory.mktemp("lab")
    work = folder / "work"
    work.mkdir()
    with (
        pytest.MonkeyPatch.context() as patch,
        jupyterlab(work, "", at_home(folder / "home", patch)) as address,
    ):
        yield address, work


def with_a_question(path: Path, work: Path) -> None:
    """The chapter in `work`, with one more cell that prints the first picture's position as the kernel knows it."""
    book = nbformat.read(path, as_version=4)
    book.cells.append(new_code_cell(PLACE))
    nbformat.write(book, work / path.name)


@pytest.mark.nightly
@pytest.mark.parametrize("path", in_turns(1))
def test_a_chapter_lives_in_jupyterlab(path: Path, driver: Any, visited: tuple[str, Path]) -> None:
    """The chapter opens and runs, and its pictures and charts are drawn.

    A moved slider is read in the kernel, and no request leaves the machine.
    """
    address, work = visited
    with_a_question(path, work)
    page = driver.new_page(viewport={"width": 1360, "height": 1000})
    page.set_default_timeout(LONG_MS)
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    run_all(page, address.replace("/lab/tree/", f"/lab/workspaces/{path.stem}/tree/{path.name}"))
    assert not page.locator(".jp-RenderedText[data-mime-type*=error]").count()
    page.wait_for_function(
        f"() => document.querySelectorAll('{SLIDER}').length && document.querySelector('.js-plotly-plot')"
    )
    slider = page.locator(SLIDER).first
    slider.press("Home")
    page.wait_for_function(f"() => (({{ value, min }}) => value === min)(document.querySelector('{SLIDER}'))")
    slider.press("ArrowRight")
    page.wait_for_function(f"() => (({{ value, min }}) => value !== min)(document.querySelector('{SLIDER}'))")
    page.click(".jp-CodeCell >> nth=-1 >> .cm-content")
    page.keyboard.press("Shift+Enter")
    said = page.locator(f".jp-OutputArea-output >> text=the kernel reads {slider.input_value()}.")
    failed = page.locator(".jp-RenderedText[data-mime-type*=error]")
    said.or_(failed).first.wait_for()
    assert not failed.count(), failed.all_inner_texts()
    away = [url for url in fetched if not url.startswith(("http://127.0.0.1:", "data:", "blob:"))]
    assert not away, away
    page.close()
