"""A full disk ends the recording with one sentence, and everything before stays readable."""

from __future__ import annotations

import errno
import os
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from decodescope.engine.trace import End, StorageFull, TraceWriter, check, open_trace, recover
from decodescope.engine.trace.encoding import disk


class FullDisk(FileIO):
    """A file on a disk with room for `room` more bytes; the reserved bytes are extra."""

    room = 1 << 30

    def write(self, data: Any) -> int:
        """Write what fits, as the system does; raise an error if nothing fits."""
        if FullDisk.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = super().write(data[: FullDisk.room])
        FullDisk.room -= done
        return done


class Reserve:
    """Reserved bytes that go back to the full disk when they are released."""

    def __init__(self, folder: Path, size: int):
        self.size = size

    def close(self) -> None:
        FullDisk.room, self.size = max(0, FullDisk.room) + self.size, 0


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> type[FullDisk]:
    monkeypatch.setattr(
        disk, "open_partial", lambda path: FullDisk(os.open(path, os.O_RDWR | os.O_CREAT), "r+b")
    )
    monkeypatch.setattr(disk, "reserve", Reserve)
    FullDisk.room = 1 << 30
    return FullDisk


@pytest.mark.parametrize("room", [0, 5, 100])
def test_full_at_the_header_leaves_nothing_behind(toy, tmp_path, full_disk, room):
    full_disk.room = room
    with pytest.raises(
        StorageFull, match=r"No space left on device\): make room or choose another folder\.$"
    ):
        TraceWriter(tmp_path / "x.dstrace", toy.header())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", range(10))
@pytest.mark.parametrize("spare", [0, 1, 200])
def test_full_at_a_step_is_recorded_in_the_reserve(toy, tmp_path, full_disk, step, spare):
    writer = TraceWriter(tmp_path / "x.dstrace", toy.header())
    writer.write(toy.prefill())
    steps = toy.steps("p" * 10)
    for one in steps[:step]:
        writer.write(one)
    full_disk.room = spare
    for _ in range(2):
        with pytest.raises(
            StorageFull, match="what was recorded before is kept; make room or choose another folder"
        ):
            writer.write(steps[step])
    assert len(open_trace(writer.partial).steps) == step, "readable at once"
    tokens = [one.emitted[0] for one in steps[:step]]
    trace = open_trace(writer.seal(End("storage_full", tokens, step, "The disk is full.")))
    assert trace.damage is None and trace.end.reason == "storage_full" and len(trace.steps) == step
    assert check(trace).ok


def test_full_at_the_end_record_keeps_the_partial_file(toy, tmp_path, full_disk, monkeypatch):
    monkeypatch.setattr(Reserve, "close", lambda self: None)
    writer = TraceWriter(tmp_path / "x.dstrace", toy.header())
    for record in [toy.prefill(), *toy.steps("pd")]:
        writer.write(record)
    full_disk.room = 10
    with pytest.raises(StorageFull):
        writer.seal()
    assert len(open_trace(writer.partial).steps) == 2
    full_disk.room = 1 << 30
    (one,) = recover(tmp_path)
    assert one.steps == 2 and check(open_trace(one.made)).ok


@pytest.mark.parametrize("name", ["replace", "fsync"])
def test_a_failing_rename_or_sync_keeps_the_partial_file(toy, tmp_path, monkeypatch, name):
    def fail(*_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    writer = TraceWriter(tmp_path / "x.dstrace", toy.header())
    for record in [toy.prefill(), *toy.steps("pd")]:
        writer.write(record)
    with monkeypatch.context() as patch:
        patch.setattr(os, name, fail)
        with pytest.raises(StorageFull, match="Read-only file system"):
            writer.seal()
    assert not writer.path.exists() and len(open_trace(writer.partial).steps) == 2
    (one,) = recover(tmp_path)
    assert one.steps == 2 and check(open_trace(one.made)).ok


def test_a_failing_background_sync_is_told_at_the_next_write(toy, tmp_path, monkeypatch):
    def fail(file: FileIO) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk, "sync_data", fail)
    writer = TraceWriter(tmp_path / "x.dstrace", toy.header(), sync_every_s=0.001)
    writer.write(toy.prefill())
    writer._syncing._thread.join(5)
    with pytest.raises(StorageFull, match="Input/output error"):
        writer.write(toy.plain_step(0, toy.prompt))
    assert open_trace(writer.seal(End("storage_full", [], 0))).end.reason == "storage_full"


def test_a_folder_that_is_gone_is_told(toy, tmp_path):
    with pytest.raises(StorageFull, match="No such file"):
        TraceWriter(tmp_path / "no" / "x.dstrace", toy.header())
    folder = tmp_path / "gone"
    folder.mkdir()
    writer = TraceWriter(folder / "x.dstrace", toy.header())
    writer.partial.unlink()
    folder.rmdir()
    with pytest.raises(StorageFull):
        writer.seal()


def test_an_interrupt_between_writing_and_counting_leaves_no_half_record(toy, tmp_path):
    with TraceWriter(tmp_path / "x.dstrace", toy.header()) as writer:
        writer.write(toy.prefill())
        writer._file.write(b"half a record that was never counted")
        writer.write(toy.plain_step(0, toy.prompt))
        trace = open_trace(writer.seal())
    assert trace.damage is None and len(trace.steps) == 1
