"""Files on the page: a knob's file is uploaded to the server and kept under its hash; no other file is ever opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import toys
from starlette.testclient import TestClient

from decodescope.app.runs import files as kept_files
from decodescope.app.runs.forks import fork
from decodescope.app.runs.recipe import as_json, choice_from_header, from_json, recipe
from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.engine.core import files

PLACE = "/ds/files/drafter/rest/datastore"
TEXT = Path(toys.DATASTORE).read_bytes()


@pytest.fixture(autouse=True)
def usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "uploads_folder", lambda: tmp_path / "usual")
    monkeypatch.setattr(files, "KNOWN", {})


def chosen(value: Any) -> RunChoice:
    return RunChoice(
        "abc",
        {"drafter": "rest"},
        {"drafter": {"datastore": value, "min_suffix": 1, "nodes": 12}},
        max_new=12,
    )


def bring(client: TestClient, content: bytes = TEXT, place: str = PLACE, name: str = "notes.txt") -> Any:
    return client.post(place, params={"name": name}, content=content)


def test_a_file_that_was_brought_is_run_recorded_forked_and_copied(
    play: RunService, client: TestClient
) -> None:
    value = bring(client).json()["value"]
    assert value.startswith("notes.txt@") and [x.name for x in play.files.folder.iterdir()] == [
        files.hash_of(value)
    ]
    channel = play.start(chosen(value))
    assert play._jobs[channel.run].wait(300) and channel.status == "done" and channel.wire is not None
    header = channel.wire.header
    assert header.method["drafter"]["datastore"] == value
    files.KNOWN.clear()  # as after a restart
    again = play.start(choice_from_header(header))
    branch = fork(play, channel, {"step": 2, "change": {"seed": 3}})
    assert play._jobs[again.run].wait(300) and again.status == "done"
    assert (
        play._jobs[branch.run].wait(300)
        and branch.status == "done"
        and branch.wire.header.method == header.method
    )
    assert f"drafter.datastore={value}" in recipe(chosen(value), play.models.names, "command")
    assert repr(value) in recipe(chosen(value), play.models.names, "python")
    assert from_json(as_json(chosen(value))) == chosen(value)


def test_a_file_that_is_not_here_and_a_path_are_refused_alike_before_anything_is_opened(
    play: RunService, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("1 2 3")
    for value in (
        str(secret),
        "/no/such",
        "../notes.txt@0123456789abcdef",
        "~/x",
        "notes.txt@0123456789ABCDEF",
    ):
        said = "rest.datastore names a file of this machine, and the page opens none: upload the file"
        assert play.check(chosen(value)).startswith(said)
    known = files.file_mark(str(secret), 100)
    for value in (known, "notes.txt@0123456789abcdef"):
        said = f"rest.datastore = {value}: this file is not here; upload it again, or leave it empty."
        assert play.check(chosen(value)) == said, (
            "what the program has read for somebody else is not here either"
        )
    assert play.check(chosen("")) == ""


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "has 0 bytes; it must have 1 to 16777216"),
        (b"a\xff", "is not UTF-8 text (byte 1): save it as UTF-8, or choose a text file."),
        (b"\0a", "is no text, it holds a zero byte: choose a text file."),
        (b"a" * ((16 << 20) + 1), "rest.datastore: the file is larger than 16 MiB, which is the limit."),
    ],
)
def test_what_cannot_serve_is_refused_and_not_kept(
    play: RunService, client: TestClient, content: bytes, why: str
) -> None:
    answer = bring(client, content)
    assert answer.status_code == 422 and why in answer.json()["error"] and "\n" not in answer.json()["error"]
    assert not play.files.folder.exists()


@pytest.mark.parametrize(
    "place", ["drafter/rest/nodes", "drafter/none/datastore", "models/rest/datastore", "drafter/rest/x"]
)
def test_a_file_is_taken_only_for_a_knob_that_reads_one(
    play: RunService, client: TestClient, place: str
) -> None:
    answer = bring(client, place=f"/ds/files/{place}")
    assert answer.status_code == 422 and "taken for a knob that reads one" in answer.json()["error"]
    assert not play.files.folder.exists()


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "..", "a/b\\c:d", "<script>", "x" * 900, "\0", "\u202egnp.exe", ""]
)
def test_no_name_leads_out_of_the_folder_or_into_markup(
    play: RunService, client: TestClient, name: str, tmp_path: Path
) -> None:
    before = {x for x in tmp_path.rglob("*") if x.is_file()}
    value = bring(client, name=name).json()["value"]
    new = {x for x in tmp_path.rglob("*") if x.is_file()} - before
    assert new == {play.files.folder / files.hash_of(value)} and len(value) < 100
    assert not set(value) & set("/\\<>:\0\u202e") and play.check(chosen(value)) == ""


def test_another_site_brings_nothing(play: RunService, client: TestClient) -> None:
    answer = client.post(PLACE, content=TEXT, headers={"origin": "http://elsewhere"})
    assert answer.status_code == 403 and not play.files.folder.exists()


def test_the_oldest_files_go_when_there_are_too_many(
    play: RunService, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_files, "HELD", 25)
    values = [bring(client, b"%d" % i * 10).json()["value"] for i in range(4)]
    assert {x.name for x in play.files.folder.iterdir()} == {files.hash_of(x) for x in values[-2:]}
    assert "this file is not here" in play.check(chosen(values[0]))
