"""A page that is opened while the server is still starting, or that loses a file while loading, recovers by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Lab, served
from sizes import first_of
from starlette.testclient import TestClient
from toylab import HERE, guarded, toy_play

from decodescope.app.http.guard import Guard
from decodescope.app.http.startup import StartupApp
from decodescope.app.server import build_app

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


class Losing:
    """An application that refuses the first `times` requests for a path that contains `part`, as a starting server does."""

    def __init__(self, app: Any):
        self.app, self.part, self.times = app, "", 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not self.part or self.part not in scope["path"] or not self.times:
            await self.app(scope, receive, send)
            return
        self.times -= 1
        await send({"type": "http.response.start", "status": 503, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture(scope="module")
def losing(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Losing]]:
    """A lab that loses requests for parts of the page."""
    play = toy_play(tmp_path_factory.mktemp("traces"))
    between = Losing(build_app(play))
    with served(lambda port: Guard(between, port)) as address:
        made = Lab(driver, address, play)
        yield made, between
        made.closing = True
        play.close()


# part of the page -> how often its request is lost
LOST = {
    "/ds/web/runs/runs.js": 2,
    "/ds/web/page.js": 1,
    "/assets/index-": 1,
    "/ds/examples": 3,
    "/ds/web/library.js": 1,
}


@pytest.mark.nightly
@pytest.mark.parametrize("part", first_of(*LOST))
def test_a_page_that_lost_a_part_comes_up_by_itself(losing: tuple[Lab, Losing], part: str) -> None:
    lab, between = losing
    between.part, between.times = part, LOST[part]
    library = "library" in part
    page = lab.open("/#library" if library else "/", ready=not library)
    if library:
        page.wait_for_selector("#ds-page-library h1")
    else:
        page.wait_for_function("document.querySelectorAll('#ds-view .ds .node').length > 1")
    assert not between.times, "the test needs the part to be lost"


@pytest.mark.nightly
def test_a_part_that_never_comes_is_told_and_the_page_is_not_loaded_for_ever(
    losing: tuple[Lab, Losing],
) -> None:
    lab, between = losing
    between.part, between.times = "/ds/web/page.js", 1000
    page = lab.open(ready=False)
    page.wait_for_selector("text=/Parts of this page did not come, 5 times in a minute/")
    asked, between.times = 1000 - between.times, 0
    assert 6 <= asked <= 12, "one visit and five more, with a preload each at the most"


@pytest.mark.nightly
def test_a_page_opened_while_the_server_is_starting_comes_up_by_itself(driver: Any, tmp_path: Path) -> None:
    go, play = threading.Event(), toy_play(tmp_path)

    def build() -> Any:
        go.wait(60)
        return build_app(play)

    with served(lambda port: Guard(StartupApp(build), port)) as address:
        lab = Lab(driver, address, play)
        page = lab.open("/#library", ready=False)
        page.wait_for_selector("text=DecodeScope is starting.")
        refused: list[str] = []
        page.on("response", lambda answer: answer.status >= 400 and refused.append(answer.url))
        go.set()
        page.wait_for_selector("#ds-page-library h1")
        page.wait_for_selector("#ds-view .ds", state="attached")
        assert not refused, "it waits for one answer, and asks for nothing that is not there yet"
        lab.closing = True
    play.close()


def test_the_page_itself_is_never_kept_by_the_browser(tmp_path: Path) -> None:
    play = toy_play(tmp_path)
    with TestClient(guarded(play, page=True), base_url=HERE) as visitor:
        assert visitor.get("/").headers["cache-control"] == "no-store"
    play.close()
