"""Files as knobs: read once, recorded by name and hash, found again by the hash, refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import toys
from source import imports, modules, within

from decodescope.engine import Method, MethodError, Session
from decodescope.engine.core import files
from decodescope.engine.core.component import KINDS, registry
from decodescope.engine.core.files import (
    FileRefusal,
    file_mark,
    file_problem,
    hash_of,
    locate_file,
    store_file,
)
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.session.replay.fork import Fork

MOST = 100
HONEST = files.uploads_folder  # the real one, outside of this test


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate folder of files; nothing that an earlier test read is known."""
    monkeypatch.setattr(files, "uploads_folder", lambda: tmp_path / "kept")
    monkeypatch.setattr(files, "KNOWN", {})
    return tmp_path / "kept"


def test_a_mark_names_the_content_and_not_the_place(tmp_path: Path) -> None:
    one, two = tmp_path / "notes.txt", tmp_path / "sub" / "né @ w.txt"
    two.parent.mkdir()
    for path in (one, two):
        path.write_text("some words")
    first, second = file_mark(str(one), MOST), file_mark(str(two), MOST)
    assert (
        first.startswith("notes.txt@")
        and second.startswith("né _ w.txt@")
        and hash_of(first) == hash_of(second)
    )
    assert file_mark(first, MOST) == first and hash_of(str(one)) is None
    one.write_text("other words")
    assert file_mark(str(one), MOST) != first, "it is read again when it changed"
    assert locate_file(first, MOST) == two, "the file that was read last and still has this content"


def test_a_marked_file_is_found_in_the_folder_of_files_or_refused(tmp_path: Path, home: Path) -> None:
    gone = "notes.txt@0123456789abcdef"
    for value in (gone, "notes.txt@" + "f" * 16):
        with pytest.raises(
            FileRefusal, match=rf"^the file {value} is not on this machine, .*; give its path, or .*\.$"
        ):
            locate_file(value, MOST)
    kept = store_file(b"some words", "notes.txt", home, MOST)
    files.KNOWN.clear()
    assert locate_file(kept, MOST) == home / str(hash_of(kept)) and [x.name for x in home.iterdir()] == [
        hash_of(kept)
    ]
    (home / str(hash_of(kept))).write_text("bent")
    assert "is not what it was" in str(file_problem(kept, MOST)), "whatever lies there under its name"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "has 0 bytes; it must have 1 to 100: cut the file"),
        (b"a" * 101, "has 101 bytes; it must have 1 to 100"),
        (b"ab\xff", r"is not UTF-8 text \(byte 2\): save it as UTF-8"),
        (b"a\0b", "is no text, it holds a zero byte"),
    ],
)
def test_what_is_no_text_is_refused_by_path_and_by_content(
    tmp_path: Path, home: Path, content: bytes, why: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    for refused in (
        lambda: file_mark(str(path), MOST),
        lambda: locate_file(str(path), MOST),
        lambda: store_file(content, "x", home, MOST),
    ):
        with pytest.raises(FileRefusal, match=rf"^the file '.*' {why}[^\n]*\.$"):
            refused()
    assert not home.exists(), "nothing was kept"


@pytest.mark.parametrize("path", ["/no/such/file", "/", "~nobody-lives-here/x", "a\0b", "x" * 5000])
def test_a_path_that_leads_nowhere_is_refused(path: str) -> None:
    with pytest.raises(
        FileRefusal, match=r"^(there is no file|the file) .*; give the path of a text file, or .*\.$"
    ):
        file_mark(path, MOST)


def test_a_knob_that_names_a_file_says_how_large_it_may_be() -> None:
    found = [p for kind in KINDS for cls in registry(kind).values() for p in cls.params() if p.file]
    assert len(found) >= 3 and all(p.most and p.type is str and p.default == "" for p in found)


def test_a_recorded_run_names_no_path_and_is_repeated_by_the_hash(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_bytes(Path(toys.DATASTORE).read_bytes())
    method = Method.from_names(
        {"drafter": "rest"}, {"drafter": {"datastore": str(path), "min_suffix": 1, "nodes": 12}}
    )
    run = toys.decode(method, count=12)
    value = run.header.method["drafter"]["datastore"]
    assert value == file_mark(str(path), 1 << 24) and str(tmp_path) not in json.dumps(run.header.method)
    assert method.drafter.file_knobs() == {"datastore": str(path)}, "the recipe stays as it was written"
    store_file(path.read_bytes(), value, home, 1 << 24)
    path.unlink()
    files.KNOWN.clear()
    again = toys.decode(Method.from_record(run.header.method), count=12)
    assert again.end.tokens == run.end.tokens and again.header.method == run.header.method
    assert sum(x.accepted for x in again.sink.steps) == sum(x.accepted for x in run.sink.steps) > 0
    fork = Fork(toys.pair()[0], run.header, run.sink.steps, 2, seed=3)
    for _ in fork.stream():
        pass
    assert fork.header.method["drafter"]["datastore"] == value
    (home / str(hash_of(value))).unlink()
    files.KNOWN.clear()
    with pytest.raises(MethodError, match=r"^rest\.datastore: the file ids\.txt@.* is not on this machine"):
        Session(toys.pair()[0], Method.from_record(run.header.method), toys.PROMPT)


def test_a_record_of_before_that_holds_a_path_is_read_and_nothing_is_opened() -> None:
    part = {"name": "rest", "datastore": "/no/such/file"}
    method = Method.from_record({**Method().record(), "drafter": part})
    assert method.record()["drafter"]["datastore"] == "/no/such/file"
    with pytest.raises(Refusal, match=r"^rest\.datastore: there is no file"):
        toys.decode(method, count=2)


@pytest.mark.nightly
def test_all_that_is_kept_lies_in_one_folder_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is redirected in one place, and no other module asks the platform."""
    import platformdirs

    from decodescope.app.basis import storage
    from decodescope.engine.core import calibration
    from decodescope.engine.cost.hardware import profile_path
    from decodescope.engine.decoding.values import transform_result

    monkeypatch.setattr(
        platformdirs, "user_data_dir", lambda name, appauthor=None: str(tmp_path / f"{name} {appauthor}")
    )
    mine = tmp_path / "decodescope False"
    assert files.data_folder() == storage.data_folder() == mine and storage.traces_folder() == mine / "traces"
    assert calibration.default_folder() == mine / "calibrated"
    assert transform_result.default_folder() == mine / "ended"
    assert profile_path({"machine": "m"}).parent == mine / "profiles"
    assert HONEST() == mine / "traces" / "files"
    asking = [m for m in modules() for i in imports(m) if within(i.target, "platformdirs")]
    assert asking == ["engine.core.files"]
