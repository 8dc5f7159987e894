"""The labs that the tests of the page look at: one server and one browser for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browser import Lab, browser, served
from decodescope.app.guard import Guard
from decodescope.app.server import app
from toylab import toy_play


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    """The browser."""
    with browser() as made:
        yield made


@pytest.fixture(autouse=True)
def closed(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test opened is closed after it: a page that plays on would slow the next one."""
    yield
    if "driver" in request.fixturenames:
        Lab.closing = True
        for context in request.getfixturevalue("driver").contexts:
            context.close()
        Lab.closing = False


@pytest.fixture(scope="module")
def lab(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab that can run, over toy models."""
    play = toy_play(tmp_path_factory.mktemp("traces"))
    with served(lambda port: Guard(app(play), port)) as address:
        made = Lab(driver, address, play)
        yield made
        play.close()
    assert not made.troubles, made.troubles


@pytest.fixture
def paused(lab: Lab) -> Iterator[Lab]:
    """The lab, whose runs begin paused."""
    lab.play.pausing = True
    yield lab
    lab.play.pausing = False
    for job in lab.play._jobs.values():
        job.cancel()  # one that stays paused would hold up those of the next test
