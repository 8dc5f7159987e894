"""The headless browser of the tests that drive a page, and a server for them to drive."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def program() -> str | None:
    """The browser: the one that DECODESCOPE_BROWSER names, else the first on the path."""
    named = os.environ.get("DECODESCOPE_BROWSER")
    if named:
        return shutil.which(named) or (named if os.path.exists(named) else None)
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def browser() -> Iterator[Any]:
    """A headless browser; the test is skipped where there is none."""
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
    """The address of a server in a thread on a free port; app_of(port) makes its application."""
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
