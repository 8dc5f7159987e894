"""A notebook in a real JupyterLab: widgets and charts are drawn, and nothing is fetched from anywhere."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from browser import browser

from .kernel import ROOT, at_home

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]
NEWS = "@jupyterlab/apputils-extension:announcements"  # asks for permission to fetch news


@contextmanager
def jupyterlab(folder: Path, env: dict[str, str]) -> Iterator[str]:
    """The address of a JupyterLab that shows `folder`, with its token."""
    page = Path(env["JUPYTER_CONFIG_DIR"]) / "labconfig" / "page_config.json"
    page.parent.mkdir(parents=True)
    page.write_text(json.dumps({"disabledExtensions": {NEWS: True}}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(8)
    told = [f"--port={port}", "--port-retries=0", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", *told]
    with (folder / "jupyter.log").open("w") as log:
        server = subprocess.Popen(command, env={**os.environ, **env}, stdout=log, stderr=log)
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token={token}", timeout=2).close()
                break
            except OSError:
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/lab/tree/02_guess_and_check.ipynb?token={token}&reset"
    finally:
        server.terminate()
        server.wait(30)


def test_the_second_notebook_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = at_home(tmp_path / "home", monkeypatch)
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(ROOT / "notebooks" / "02_guess_and_check.ipynb", work)
    with jupyterlab(work, env) as address, browser() as driver:
        page = driver.new_page(viewport={"width": 1360, "height": 1000})
        fetched: list[str] = []
        page.on("request", lambda request: fetched.append(request.url))
        page.goto(address, timeout=120_000)
        page.wait_for_selector(".jp-NotebookPanel .jp-CodeCell", timeout=120_000)
        page.wait_for_selector("[data-status='idle'], .jp-Notebook-ExecutionIndicator[data-status='idle']", timeout=60_000)
        page.click("text=Run")
        page.click("text=Run All Cells")
        page.evaluate("() => { window.errors = () => document.querySelectorAll('.jp-RenderedText[data-mime-type*=error]').length }")
        deadline = time.monotonic() + 400
        while time.monotonic() < deadline:
            page.evaluate("() => { const n = document.querySelector('.jp-WindowedPanel-outer'); if (n) n.scrollTop = n.scrollHeight }")
            prompts = page.locator(".jp-InputPrompt").all_text_contents()
            if page.locator(".js-plotly-plot").count() and not any("*" in x for x in prompts) and page.locator(".jp-OutputArea-child .js-plotly-plot").count():
                last = [x for x in prompts if x.strip()]
                if last and last[-1].strip("[]: ").isdigit() and int(last[-1].strip("[]: ")) >= 14:
                    break
            page.wait_for_timeout(1000)
        pictures = os.environ.get("DECODESCOPE_PICTURES")
        outer, k = ".jp-WindowedPanel-outer", 0
        seen = {"scope": 0, "card": 0, "chart": 0, "error": 0}
        top = 0
        while True:
            page.evaluate(f"top => document.querySelector('{outer}').scrollTop = top", top)
            page.wait_for_timeout(1200)
            for name, at in (("scope", ".ds .tree"), ("card", ".ds-card"), ("chart", ".js-plotly-plot")):
                seen[name] = max(seen[name], page.locator(at).count())
            seen["error"] += page.evaluate("() => window.errors()")
            if pictures:
                page.screenshot(path=f"{pictures}/lab-{k}.png")
            height = page.evaluate(f"() => document.querySelector('{outer}').scrollHeight")
            k, top = k + 1, top + 850
            if top >= height:
                break
        assert seen["scope"] >= 1 and seen["card"] >= 1 and seen["chart"] >= 1 and not seen["error"], seen
        away = [url for url in fetched if not url.startswith(("http://127.0.0.1:", "data:", "blob:"))]
        assert not away, away
