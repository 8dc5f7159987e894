"""Folder models are found again by their fingerprint on this machine, and their names are never looked up on the hub."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from decodescope.app.cli import main
from decodescope.app.runs.run_service import RunService
from decodescope.engine import load, run
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.session import remembered
from decodescope.engine.session.load import SHIPPED
from decodescope.engine.session.remembered import remember_models, remembered_model
from decodescope.engine.trace import open_trace


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model folder of the user, with data of their own and a hub that nobody may ask."""
    monkeypatch.setattr(remembered, "data_folder", lambda: tmp_path / "data")

    def asked(*names: Any, **_: Any) -> str:
        raise AssertionError(f"the hub was asked for {names}")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", asked)
    folder = tmp_path / "secret-place" / "mine"
    shutil.copytree(SHIPPED / "lab-draft", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**config, "a_note": "so that it has a fingerprint of its own"})
    )
    return folder


def recorded(folder: Path, path: Path) -> Path:
    """The trace of a run of the model in that folder."""
    run(folder, "prompt_lookup", "Once upon a time", max_new_tokens=6, path=path)
    return path


def test_a_fork_finds_the_folder_of_its_model(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = recorded(own, tmp_path / "a.dstrace")
    assert b"secret-place" not in trace.read_bytes(), "a trace names no place"
    fork = [
        "trace",
        "fork",
        str(trace),
        "--step",
        "1",
        "--seed",
        "5",
        "--trace",
        str(tmp_path / "b.dstrace"),
        "--json",
    ]
    assert main(fork) == 0
    assert json.loads(capsys.readouterr().out)["models"]["target"]["name"] == "mine"
    shutil.move(own, tmp_path / "elsewhere")
    assert main([*fork[:-2], str(tmp_path / "c.dstrace")]) == 2
    assert "There is no model 'mine' here; use a shipped model" in capsys.readouterr().err


def test_the_page_finds_the_folder_of_a_recorded_model(own: Path, tmp_path: Path) -> None:
    with closing(open_trace(recorded(own, tmp_path / "a.dstrace"))) as trace:
        header = trace.header
    play = RunService("lab-draft", None, tmp_path / "traces")
    try:
        assert play.find_recorded_models(header) == {"target": str(own)}
        offer = play.models.offer(str(own))
        assert offer is not None and offer.name == "mine"
        assert play.models.readers({"target": str(own)})["target"] is offer
    finally:
        play.close()


def test_a_place_is_kept_with_adapter_and_transforms_and_forgotten_when_it_is_gone(
    own: Path, tmp_path: Path
) -> None:
    model = load(own, device="cpu", weights="int8")
    made = replace(load("lab-draft", device="cpu"), path=None)  # by code, as toys are
    remember_models([model, load("lab-draft", device="cpu"), made, object()])
    file = tmp_path / "data" / remembered.FILE
    assert json.loads(file.read_text()) == {model.fingerprint: f"{own}@int8"}
    assert (
        remembered_model(model.fingerprint) == f"{own}@int8"
        and load(f"{own}@int8").fingerprint == model.fingerprint
    )
    assert remembered_model(load("lab-draft").fingerprint) is None and remembered_model(None) is None
    shutil.move(own, tmp_path / "b")
    assert remembered_model(model.fingerprint) is None
    remember_models([load(tmp_path / "b", device="cpu")])
    assert list(json.loads(file.read_text()).values()) == [str(tmp_path / "b")]


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 5}', "\xff"])
def test_a_damaged_file_is_no_hindrance(text: str, own: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / remembered.FILE).write_text(text, encoding="latin-1")
    assert remembered_model("a") is None
    model = load(own, device="cpu")
    remember_models([model])
    assert remembered_model(model.fingerprint) == str(own)


def test_a_data_folder_that_cannot_be_written_keeps_no_run_from_going(own: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    recorded(own, tmp_path / "a.dstrace")
    assert remembered_model(load(own, device="cpu").fingerprint) is None


def test_a_bare_name_is_not_looked_up_on_the_hub(own: Path) -> None:
    with pytest.raises(LoadError, match=r"^There is no model 'mine' here; use a shipped model"):
        load("mine", device="cpu")
