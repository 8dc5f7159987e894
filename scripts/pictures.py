#!/usr/bin/env python3
"""Take the pictures of the documentation, and write docs/pictures/NAME.png.

The script starts the app on the shipped models and goes through its pages in headless Chromium. The pictures have few colours
so that they stay small.

    python scripts/environment.py python scripts/pictures.py [NAME ...]

Needs playwright, Pillow and the browser that the tests use. Traces are written to a folder that is removed afterwards.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from environment import find_browser
from PIL import Image
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
PORT = 8197
HERE = f"http://127.0.0.1:{PORT}"
COLOURS = 128
# the shipped examples
FIRST = "4a176db871b086ad"
REAL = "e067eb50d568817a"  # of a real model
H2O = "30ade275141f6ca8"
RECYCLING = "eaa7158be636f047"
FLUSH = "e21ee66e8a39377d"
LANES = "6c5945fec845b654"
CASCADE = "76e14c805de10784"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]


def run(page: Page, preset: str, prompt: str, tokens: int, chat: bool = False) -> str:
    """Decode `prompt` by the Lab's own controls with a named composition, chat: as a user's turn; the id of the run."""
    page.goto(f"{HERE}/")
    page.wait_for_selector("#ds-run")
    page.locator("#ds-prompt textarea").fill(prompt)
    page.get_by_label("New tokens").fill(str(tokens))
    page.click("#ds-preset input")
    page.get_by_role("option", name=preset).first.click()
    page.wait_for_timeout(1000)
    page.get_by_label("Chat template").set_checked(chat)
    page.wait_for_timeout(500)
    page.click("#ds-run")
    page.wait_for_selector(".ds .outcome", timeout=120_000)
    return str(page.evaluate("/run=([0-9a-f]{16})/.exec(location.hash)[1]"))


def at(fragment: str, ready: str, act: Callable[[Page], Any] = lambda page: None) -> Callable[[Page], None]:
    """Go to an address, wait for `ready`, and do something there."""

    def go(page: Page) -> None:
        page.goto(f"{HERE}/#{fragment}")
        page.reload()
        page.wait_for_selector(ready, timeout=60_000)
        page.wait_for_timeout(1500)
        act(page)
        page.wait_for_timeout(1000)

    return go


def compared(page: Page) -> None:
    prompt = '{"id": 508, "name": "Clara", "city": "Oslo", "tags": ["red"], "active": true}\nRepeat this.'  # no preset's
    runs = [
        run(page, name, prompt, 48, chat=True)
        for name in ("Plain greedy", "Prompt lookup", "EAGLE-2, dynamic tree")
    ]
    at(f"compare&runs={','.join(runs)}&at=20", "#ds-page-compare .node")(page)


def stopped(page: Page) -> None:
    box = page.locator("#ds-page-debugger .breaks form input")
    box.fill("first reject and depth > 1")
    box.press("Enter")
    page.wait_for_timeout(800)
    page.locator("#ds-page-debugger").get_by_role("button", name="Continue").first.click()


def searched(page: Page) -> None:
    page.get_by_label("text to find").fill(" the")
    page.keyboard.press("Enter")


def listed(page: Page) -> None:
    page.get_by_role("button", name="All methods…").click()
    page.wait_for_selector(".ds-catalogue[open] [aria-selected=true]")


def pane(run: str, step: int, name: str) -> Callable[[Page], Any]:
    """One view of a run, alone."""

    def go(page: Page) -> Any:
        at(f"run={run}&step={step}", f".ds .{name}")(page)
        shown = page.locator(f".ds .{name}").first
        shown.scroll_into_view_if_needed()
        page.wait_for_timeout(1000)
        return shown

    return go


# name -> (width, height, dark, how to get there; what it returns is taken alone)
WANTED: dict[str, tuple[int, int, bool, Callable[[Page], Any]]] = {
    "lab": (1440, 1000, False, at(f"run={REAL}&step=29&node=2", ".ds .node")),
    "lab-dark": (1440, 1000, True, at(f"run={RECYCLING}&step=4", ".ds .node")),
    "lab-narrow": (390, 844, False, at(f"run={FIRST}&step=2&node=2", ".ds .node")),
    "compare": (1440, 1100, False, compared),
    "debugger": (1440, 1000, False, at(f"debugger&run={FIRST}&step=0", "#ds-page-debugger .node", stopped)),
    "report": (1440, 1000, False, at(f"report&of={FIRST}", "#ds-page-report table")),
    "cache": (1440, 1000, False, at(f"cache&run={H2O}&step=30", "#ds-page-cache canvas", searched)),
    "hardware": (1440, 1000, True, at(f"hardware&run={FIRST}&step=3", "#ds-page-hardware svg")),
    "depth-map": (1440, 1000, False, pane(FLUSH, 9, "depth-pane")),
    "two-lanes": (1440, 1000, False, pane(LANES, 7, "turns-pane")),
    "cascade": (1440, 1000, False, pane(CASCADE, 8, "scale-pane")),
    "library": (1440, 800, False, at("library", "#ds-page-library table")),
    "catalogue": (1440, 900, False, at("", "#ds-run", listed)),
}


def program() -> str:
    """The browser."""
    found = find_browser()
    if not found:
        raise SystemExit("No Chromium here: install one, or set DECODESCOPE_BROWSER.")
    return found


def served(data: str) -> subprocess.Popen[bytes]:
    """The app, once it answers with the whole page."""
    command = [
        sys.executable,
        "-m",
        "decodescope",
        "app",
        "--port",
        str(PORT),
        "--no-browser",
        "--data",
        data,
    ]
    made = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"{HERE}/ds/state", timeout=5) as answer:
                if answer.status == 200:
                    return made
        except OSError:
            time.sleep(0.5)
    made.terminate()
    raise SystemExit("The app did not start.")


def save_picture(shot: bytes, path: Path) -> None:
    """Write a screenshot with few colours."""
    seen = Image.open(io.BytesIO(shot)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    seen.save(path, optimize=True)


def main() -> None:
    """Take the pictures that are named, or all."""
    names = sys.argv[1:] or list(WANTED)
    if unknown := set(names) - set(WANTED):
        raise SystemExit(f"There is no picture {', '.join(sorted(unknown))}; there are {', '.join(WANTED)}.")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as data, sync_playwright() as driver:
        app, browser = served(data), driver.chromium.launch(executable_path=program(), args=ARGUMENTS)
        try:
            for name in names:
                width, height, dark, go = WANTED[name]
                page = browser.new_context(
                    viewport={"width": width, "height": height},
                    color_scheme="dark" if dark else "light",
                    reduced_motion="reduce",
                ).new_page()
                page.set_default_timeout(60_000)
                shown = go(page) or page
                save_picture(shown.screenshot(), PICTURES / f"{name}.png")
                print(f"{name}: {(PICTURES / f'{name}.png').stat().st_size >> 10} KiB", flush=True)
                page.context.close()
        finally:
            browser.close()
            app.terminate()
            app.wait(30)


if __name__ == "__main__":
    main()
