"""A disk that fails at any write, flush, sync or rename: one sentence, and what was finished before is readable."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from writers import NEW, OLD, WRITERS, Writer

from decodescope.app.cli import main
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.trace import TraceError
from decodescope.engine.trace.encoding import disk

MANY = 400  # operations that are failed one by one at most


class FaultyDisk:
    """From its operation of this number on, every write, sync and rename fails, as on a disk that has filled up.

    first: number of the first one that fails, counted from 0;  half: whether that one writes half of its bytes before
    """

    def __init__(self, first: int, number: int = errno.ENOSPC, half: bool = False):
        self.first, self.number, self.half = first, number, half
        self.count = 0

    def fails(self) -> bool:
        """Count an operation, and say whether it fails."""
        self.count += 1
        return self.count > self.first

    def error(self) -> OSError:
        return OSError(self.number, os.strerror(self.number))

    def file(self, inner: Any) -> Any:
        """An open file on this disk."""
        return _FaultyFile(inner, self) if getattr(inner, "writable", lambda: False)() else inner

    @contextlib.contextmanager
    def inserted(self) -> Iterator[None]:
        """While this is open, all files that are opened lie on it."""
        calls = {"replace": os.replace, "rename": os.rename, "fsync": os.fsync, "fdatasync": os.fdatasync}

        def failing(call: Callable[..., Any]) -> Callable[..., Any]:
            def perform(*given: Any, **named: Any) -> Any:
                if self.fails():
                    raise self.error()
                return call(*given, **named)

            return perform

        opened, opened_partial = io.open, disk.open_partial
        with pytest.MonkeyPatch.context() as patch:
            for name, call in calls.items():
                patch.setattr(os, name, failing(call))
            for place in ("builtins.open", "io.open"):
                patch.setattr(place, lambda *given, **named: self.file(opened(*given, **named)))
            patch.setattr(disk, "open_partial", lambda path: self.file(opened_partial(path)))
            yield


class _FaultyFile:
    """A file whose writes may fail."""

    def __init__(self, inner: Any, on: FaultyDisk):
        self._inner, self._on = inner, on

    def write(self, data: Any) -> int:
        """Write, or fail, perhaps after half of the bytes."""
        if self._on.fails():
            if self._on.half and self._on.count == self._on.first + 1:
                self._inner.write(data[: len(data) // 2])
            raise self._on.error()
        return int(self._inner.write(data))

    def writelines(self, lines: Any) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *raised: Any) -> None:
        self._inner.close()

    def __iter__(self) -> Any:
        return iter(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def contents(writer: Writer, folder: Path) -> tuple[Any, Any, int]:
    """The old and the new content as the reader finds them, and how many operations the new one takes."""
    found = {}
    for which in (OLD, NEW):
        place = folder / which
        place.mkdir()
        counting = FaultyDisk(1 << 30)
        with counting.inserted():
            if which == NEW or writer.begins:
                writer.write(place, which)
        found[which] = writer.read(place)
    assert found[NEW] is not None and found[OLD] != found[NEW]
    return found[OLD], found[NEW], counting.count


def fail_at(writer: Writer, folder: Path, first: int, number: int, half: bool) -> Any:
    """What the reader finds after a fault; the writer has ended with one sentence, or has written all."""
    folder.mkdir()
    if writer.begins:
        writer.write(folder, OLD)
    said, whole = "", False
    with FaultyDisk(first, number, half).inserted():
        try:
            writer.write(folder, NEW)
            whole = True  # what failed were syncs in the background, or of a folder
        except (OSError, Refusal, TraceError) as fault:
            said = str(fault)
    assert whole or ("\n" not in said and len(said) > 10)
    found = writer.read(folder)
    assert not whole or (first > 0 and found is not None)
    return found


@pytest.mark.parametrize("name", WRITERS)
def test_a_fault_at_a_sample_of_writes_keeps_what_was_finished(name: str, tmp_path: Path) -> None:
    """At the first operation, the last, and one between; at one after half of its bytes."""
    writer = WRITERS[name]
    old, new, count = contents(writer, tmp_path)
    for first in sorted({0, count // 2, count - 1} & {*range(count)}):
        number, half = ((errno.ENOSPC, True), (errno.EIO, False))[first % 2]
        found = fail_at(writer, tmp_path / f"at-{first}", first, number, half)
        assert writer.fits(found, old, new), (first, found)


@pytest.mark.nightly
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("half", [False, True])
def test_a_fault_at_every_write_keeps_what_was_finished(
    name: str, number: int, half: bool, tmp_path: Path
) -> None:
    writer = WRITERS[name]
    old, new, count = contents(writer, tmp_path)
    for first in range(min(count, MANY)):
        found = fail_at(writer, tmp_path / f"at-{first}", first, number, half)
        assert writer.fits(found, old, new), (first, found)
        shutil.rmtree(tmp_path / f"at-{first}")


@pytest.mark.nightly
@pytest.mark.parametrize("name", WRITERS)
def test_a_small_disk_that_fills_keeps_what_was_finished(name: str, tmp_path: Path) -> None:
    """A real file system of a few sizes, where this process may mount one."""
    writer, disks = WRITERS[name], tmp_path / "disk"
    (tmp_path / "probe").mkdir()
    old, new, _ = contents(writer, tmp_path / "probe")
    disks.mkdir()
    for size in (8, 24, 80, 140, 220, 1100):
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(disks)],
            capture_output=True,
            text=True,
        )
        if mounted.returncode:
            pytest.skip("needs a process that may mount a file system")
        try:
            with contextlib.suppress(OSError, Refusal, TraceError):
                if writer.begins:
                    writer.write(disks, OLD)
                writer.write(disks, NEW)
            found = writer.read(disks)
            assert found is None or writer.fits(found, old, new), (size, found)
        finally:
            subprocess.run(["umount", str(disks)], check=True)


# ---- a recording whose ground goes away

RUN = ("run", "--model", "lab-draft", "--prompt", "one two one two", "--max-new-tokens", "12", "--ignore-eos")
BATCH = ("batch", "--model", "lab-draft", "--prompts", "prompts", "--max-new-tokens", "12", "--ignore-eos")
LOSSES: dict[str, Callable[[Path], Any]] = {
    "its file is deleted": lambda folder: next(folder.iterdir()).unlink(),
    "its folder is removed": shutil.rmtree,
    "its file is moved away": lambda folder: next(folder.iterdir()).rename(folder.parent / "elsewhere"),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("which", ["run", "batch", "fork"])
def test_a_recording_whose_file_goes_away_says_what_is_not_kept(
    which: str, loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts").write_text("one two\n")
    folder = tmp_path / "out"
    folder.mkdir()
    words = {
        "run": (*RUN, "--trace", "out/x.dstrace"),
        "batch": (*BATCH, "--drafter", "prompt_lookup", "--traces", "out"),
        "fork": ("trace", "fork", "a.dstrace", "--step", "2", "--seed", "3", "--trace", "out/x.dstrace"),
    }[which]
    if which == "fork":
        assert main([*RUN, "--trace", "a.dstrace"]) == 0
        capsys.readouterr()
    inner, seen = Decoder.forward, 0

    def forward(*given: Any, **named: Any) -> Any:
        nonlocal seen
        seen += bool([*tmp_path.glob("out/*.partial")])
        if seen == 3:
            seen += 1
            LOSSES[loss](folder)
        return inner(*given, **named)

    monkeypatch.setattr(Decoder, "forward", forward)
    assert main([*words]) == 1 and seen > 3
    said = capsys.readouterr().err.strip().splitlines()
    lost = [x for x in said if "was removed or moved away while the run was recorded" in x]
    assert len(lost) == 1 and "records are not kept there; choose a folder that stays." in lost[0], said
    assert not [x for x in said if "Traceback" in x or "went wrong inside" in x]


def test_a_command_whose_file_is_refused_in_the_middle_says_so_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*RUN, "--drafter", "prompt_lookup", "--trace", "a.dstrace"]) == 0
    capsys.readouterr()
    for words in (
        ("trace", "export", "a.dstrace", "--html", "a.html"),
        ("report", "a.dstrace", "--html", "a.html"),
    ):
        with FaultyDisk(0).inserted():
            assert main([*words]) in (1, 2)
        said = capsys.readouterr().err.strip()
        assert "No space left on device" in said and said.count("\n") == 0 and "inside" not in said, said
        assert not (tmp_path / "a.html").exists()
