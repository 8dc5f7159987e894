"""The headless browser of the tests that drive a page, a server for it, and the lab that the tests look at."""

from __future__ import annotations

import os
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

# setTimeout unchanged, and passes(ms), which at once makes every call that is due within that time. Playwright's own clock also
# replaces frames and the time of day; on a busy machine a page under it stops.
TIMERS = """
(() => {
  const set = setTimeout.bind(window), clear = clearTimeout.bind(window), waiting = new Map();
  let ahead = 0;
  const now = () => performance.now() + ahead;
  window.setTimeout = (call, ms = 0, ...rest) => {
    const go = () => (waiting.delete(id), call(...rest)), id = set(go, ms);
    waiting.set(id, { due: now() + ms, go });
    return id;
  };
  window.clearTimeout = (id) => (waiting.delete(id), clear(id));
  window.passes = (ms) => {
    const until = now() + ms, first = (a, b) => (b[1].due < a[1].due ? b : a);
    for (;;) {
      const [id, next] = waiting.size ? [...waiting].reduce(first) : [];
      if (!next || next.due > until) break;
      ahead = Math.max(ahead, next.due - performance.now());
      clear(id);
      next.go();
    }
    ahead = Math.max(ahead, until - performance.now());
  };
})();
"""
FRAMES = 12  # frames for which a settled page must not change
LONG = 60_000  # ms that a condition may take on a machine that is busy with other things
STEP = "Number((document.querySelector('.ds h1')?.textContent || 'Step -1').split(' ')[1])"
KEPT = "JSON.parse(localStorage.getItem('decodescope-settings') || '{}')"  # the settings that the page stores
# a refusal, which the page answers; and what the page library says when a page is left or reloaded while it asks: its
# stream breaks off, and its queue has forgotten the visitor
EXPECTED = (
    "Failed to load resource",
    "AbortError",
    "Connection errored out",
    "Unexpected error 404",
    "network error",
)
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
# What a browser does in addition to showing pages. The list of the address field is a page too, made for every window: half a
# second of a core, ten times the cost of an empty page. The entries before it are what Playwright switches off and pages could
# notice; a second list would replace Playwright's own.
OFF = [
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsUpgrades",
    "HttpsFirstBalancedModeAutoEnable",
    "LensOverlay",
    "MediaRouter",
    "PaintHolding",
    "ThirdPartyStoragePartitioning",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "OptimizationHints",
    "NetworkTimeServiceQuerying",
    "AimEnabled",
    "PreconnectToSearch",
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
]
ARGUMENTS = [
    f"--disable-features={','.join(OFF)}",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def program() -> str | None:
    """Return the browser's path: the one that DECODESCOPE_BROWSER names, else the first on the path."""
    named = os.environ.get("DECODESCOPE_BROWSER")
    if named:
        return shutil.which(named) or (named if os.path.exists(named) else None)
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def browser() -> Iterator[Any]:
    """Start a headless browser; skip the test if there is none."""
    path = program()
    if path is None:
        pytest.skip("no browser here: set DECODESCOPE_BROWSER, or install Chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield made
        finally:
            made.close()


@contextmanager
def served(app_of: Any) -> Iterator[str]:
    """Serve an application in a thread on a free port, and yield its address; app_of(port) makes the application."""
    import uvicorn

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    config = uvicorn.Config(app_of(port), log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    started = threading.Event()
    begin = server.startup

    async def startup(sockets: Any = None) -> None:
        await begin(sockets)
        started.set()

    server.startup = startup  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    assert started.wait(60), "the server did not start"
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()


class Lab:
    """A served page, every request that its visitors made, and the errors on it."""

    closing = False  # what a page says while it is being closed does not count

    def __init__(self, driver: Any, address: str, play: Any):
        self.driver, self.address, self.play = driver, address, play
        self.requests: list[str] = []
        self.troubles: list[str] = []

    def open(
        self,
        path: str = "/",
        width: int = 1440,
        height: int = 900,
        ready: bool = True,
        clock: bool = False,
        **more: Any,
    ) -> Any:
        """Open a page for a new visitor; its inputs answer unless ready=False.

        Examples do not move unless `reduced_motion` says otherwise. clock: passes(page, ms) can let time pass on the page
        without waiting.
        """
        settings = {"viewport": {"width": width, "height": height}, "reduced_motion": "reduce", **more}
        page = self.driver.new_context(**settings).new_page()
        if clock:
            page.add_init_script(TIMERS)
        page.set_default_timeout(LONG)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self._heard(str(error)))
        page.on("console", lambda said: said.type == "error" and self._heard(said.text))
        page.goto(self.address + path)
        if ready:
            self.ready(page)
        return page

    def _heard(self, what: str) -> None:
        if not self.closing and not any(x in what for x in EXPECTED):
            self.troubles.append(what)

    def ready(self, page: Any) -> None:
        """Wait until the inputs answer."""
        page.wait_for_selector(".ds-button.stop", state="attached")
        page.wait_for_selector("#ds-view .ds", state="attached")
        page.wait_for_selector("#ds-run")


def begun(page: Any) -> None:
    """Wait until the page has set its initial values, which would overwrite what is chosen before."""
    page.wait_for_selector("#ds-models .room", state="attached")


def option(page: Any, box: str, name: str | re.Pattern[str]) -> None:
    """Choose from the list of a box; the list of another box may still be closing."""
    begun(page)
    field = page.locator(f"{box} input")
    field.click()
    page.locator(f"[id='{field.get_attribute('aria-controls')}']").get_by_role(
        "option", name=name, exact=True
    ).click()


def passes(page: Any, ms: int) -> None:
    """Let this much time pass for whatever waits on a page that was opened with a clock."""
    page.evaluate("ms => passes(ms)", ms)


# Wait until everything requested is drawn, where S is the drawing: the views first, then what surrounds them.
DRAWN = """async () => { for (let k = 0; k < 4 || (k < 60 && S.isWaiting()); k++)
  await new Promise((done) => requestAnimationFrame(done)); }"""


def settled(page: Any) -> None:
    """Wait until nothing on the page has changed for FRAMES frames.

    First wait until an image that cannot be drawn is given up, so that an earlier such image is given up too.
    """
    page.evaluate(
        """async (frames) => {
            const image = new Image(), given = new Promise((done) => { image.onerror = done; });
            image.src = 'data:image/png,';
            await given;
            let left = frames;
            const all = { subtree: true, childList: true, attributes: true, characterData: true };
            const watch = new MutationObserver(() => { left = frames; });
            watch.observe(document, all);
            while (left-- > 0) await new Promise(requestAnimationFrame);
            watch.disconnect();
        }""",
        FRAMES,
    )


def seek(page: Any, i: int) -> None:
    """Move the scrubber to step i and wait until the whole step is drawn."""
    page.evaluate(
        "i => { const s = document.querySelector('.ds .scrub'); s.value = i; s.dispatchEvent(new Event('input')); }",
        i,
    )
    page.wait_for_function(f"{STEP} == {i} && document.querySelectorAll('.ds .node').length > 1")
