"""Fixtures for the tests of the page.

They provide the labs (one server for all tests of a file), a client of the server, and the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Lab, served
from starlette.testclient import TestClient
from toylab import HERE, guarded, toy_play

from decodescope.app.cli import main
from decodescope.app.http.guard import Guard
from decodescope.app.runs.run_service import RunService
from decodescope.app.server import build_app


def opened(driver: Any, play: RunService) -> Iterator[Lab]:
    """Yield the lab of this service until its tests are over; then check that no page of it reported an error."""
    with served(lambda port: Guard(build_app(play), port)) as address:
        made = Lab(driver, address, play)
        yield made
        play.close()
    assert not made.troubles, made.troubles


@pytest.fixture(scope="module")
def lab(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab that can run, over toy models."""
    yield from opened(driver, toy_play(tmp_path_factory.mktemp("traces")))


@pytest.fixture(scope="module")
def shipped(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab over the shipped models; no model is loaded yet."""
    yield from opened(driver, RunService("lab", "lab-draft", tmp_path_factory.mktemp("traces")))


@pytest.fixture
def paused(lab: Lab) -> Iterator[Lab]:
    """The lab, with every run paused at its start."""
    lab.play.pausing = True
    yield lab
    lab.play.pausing = False
    for job in lab.play._jobs.values():
        job.cancel()  # a run that stays paused would block the runs of the next test


@pytest.fixture
def play(tmp_path: Path) -> Iterator[RunService]:
    """The run service behind the server, over toy models."""
    made = toy_play(tmp_path)
    yield made
    made.close()


@pytest.fixture
def client(play: RunService) -> Iterator[TestClient]:
    """A client of the page without a browser."""
    with TestClient(guarded(play), base_url=HERE, headers={"origin": HERE}) as made:
        yield made


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command; return its exit code, its standard output and its standard error."""

    def call(*argv: str) -> tuple[int, str, str]:
        code = main([*argv])
        out, err = capsys.readouterr()
        return code, out, err

    return call
