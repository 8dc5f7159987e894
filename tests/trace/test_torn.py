"""Damage: a file that is cut or has a changed byte anywhere shows its intact records and says what is damaged."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import struct
from pathlib import Path

import pytest

from decodescope.engine.trace import (
    UPLOADED,
    TraceError,
    TraceWriter,
    check,
    open_trace,
    read_records,
    recover,
)
from decodescope.engine.trace.encoding.frame import MAGIC, frame_body
from decodescope.engine.trace.file.reader import TraceFile


def ends(data: bytes) -> list[int]:
    """The offsets where the records end."""
    at, found = len(MAGIC), []
    while at < len(data):
        at += 8 + struct.unpack_from("<I", data, at)[0]
        found.append(at)
    return found


@pytest.fixture
def twenty(toy, tmp_path: Path) -> Path:
    return toy.write(tmp_path / "twenty.dstrace", toy.steps("p" * 9 + "d" + "p" * 10))


def test_a_file_cut_at_any_byte_reads_up_to_its_last_whole_record(twenty):
    data = twenty.read_bytes()
    bounds = ends(data)
    cut = twenty.with_name("cut.dstrace.partial")
    cut.write_bytes(data)
    for size in range(len(data) - 1, -1, -1):
        os.truncate(cut, size)
        whole = sum(end <= size for end in bounds)
        if whole == 0:
            with pytest.raises(TraceError):
                TraceFile(cut)
            continue
        with TraceFile(cut) as file:
            assert len(file) == whole and file.damage is None
            assert len(file.steps) == max(0, whole - 2)
            if file.steps:
                assert file.step(len(file.steps) - 1).step == len(file.steps) - 1


def test_a_sealed_name_without_an_end_says_so_and_shows_the_good_part(twenty):
    data = twenty.read_bytes()
    bounds = ends(data)
    for size in [*bounds[:-1], *range(bounds[0] + 1, len(data), 97)]:
        cut = twenty.with_name("cut.dstrace")
        cut.write_bytes(data[:size])
        trace = open_trace(cut)
        assert trace.damage is not None and "record" in trace.damage
        assert len(trace.steps) == max(0, sum(end <= size for end in bounds) - 2)
        assert not check(trace).ok
        with pytest.raises(TraceError):
            list(read_records(cut))


def test_every_changed_byte_is_noticed(toy, tmp_path):
    path = toy.write(tmp_path / "flipped.dstrace", toy.steps("pd"))
    data = path.read_bytes()
    unnoticed = 0
    with open(path, "r+b", buffering=0) as file:
        for at, byte in enumerate(data):
            os.pwrite(file.fileno(), bytes([byte ^ (0xFF if at % 9 == 8 else 1 << at % 9)]), at)
            with contextlib.suppress(TraceError), TraceFile(path) as read:
                unnoticed += read.damage is None
            os.pwrite(file.fileno(), bytes([byte]), at)
    assert unnoticed == 0


def test_a_changed_byte_with_a_new_checksum_is_refused_or_read_but_never_crashes(toy, tmp_path):
    data = toy.write(tmp_path / "whole.dstrace", toy.steps("pd")).read_bytes()
    starts = [len(MAGIC), *ends(data)[:-1]]
    path = tmp_path / "forged.dstrace.partial"
    chance = random.Random(5)
    refused = read = 0
    for start in starts:
        (size,) = struct.unpack_from("<I", data, start)
        body = bytearray(data[start + 8 : start + 8 + size])
        for at in range(0, size, 3):
            mask = 1 << chance.randrange(8)
            body[at] ^= mask
            path.write_bytes(data[:start] + frame_body(bytes(body)) + data[start + 8 + size :])
            body[at] ^= mask
            try:
                trace = open_trace(path, UPLOADED)
                check(trace)
                read += 1
                trace.close()
            except TraceError as error:
                refused += 1
                assert str(error).count("\n") == 0 and str(path) in str(error)
    assert refused > 200 and read > 100, (refused, read)


def test_dropped_repeated_and_exchanged_records_are_noticed(small):
    data = small.read_bytes()
    bounds = [len(MAGIC), *ends(data)]
    frames = [data[a:b] for a, b in itertools.pairwise(bounds)]
    path = small.with_name("shuffled.dstrace")
    wrong = ["013456", "01223456", "0132456", "0016", "01234566", "0123465"]
    for order in [list(map(int, word)) for word in wrong]:
        path.write_bytes(MAGIC + b"".join(frames[i] for i in order))
        assert open_trace(path).damage, order
        with pytest.raises(TraceError):
            list(read_records(path))


def test_recovery_keeps_the_longest_valid_prefix_and_gives_the_same_bytes_twice(toy, twenty):
    data = twenty.read_bytes()
    bounds = ends(data)
    partial = twenty.with_name("run.dstrace.partial")
    for size in (bounds[0], bounds[1] + 3, bounds[7] + 5, bounds[12], len(data) - 1, len(data)):
        made = []
        for _ in range(2):
            partial.write_bytes(data[:size])
            (one,) = recover(twenty.parent)
            assert not partial.exists() and one.made == twenty.with_name("run.recovered.dstrace")
            made.append(one.made.read_bytes())
        assert recover(twenty.parent) == [] and made[0] == made[1]
        trace = open_trace(one.made)
        whole = sum(end <= size for end in bounds)
        assert trace.damage is None and check(trace).ok
        assert len(trace.steps) == one.steps == min(20, max(0, whole - 2))
        assert trace.end.reason == ("max_new_tokens" if size == len(data) else "interrupted")
        one.made.unlink()


def test_recovery_leaves_alone_what_it_cannot_save_or_what_is_still_written(toy, tmp_path):
    (tmp_path / "a.dstrace.partial").write_bytes(MAGIC + b"half a header")
    (tmp_path / "b.dstrace.partial").write_bytes(b"")
    with TraceWriter(tmp_path / "c.dstrace", toy.header()):
        found = recover(tmp_path)
        assert [one.made for one in found] == [None] * 3 and "being written" in found[2].message
    assert len(list(tmp_path.glob("*.partial"))) == 3
    assert recover(tmp_path / "c.dstrace.partial")[0].made == tmp_path / "c.recovered.dstrace"


def test_recovery_keeps_the_original_where_good_records_stand_behind_a_bad_one(toy, twenty):
    data = bytearray(twenty.read_bytes())
    data[ends(data)[5] + 20] ^= 1
    partial = twenty.with_name("run.dstrace.partial")
    partial.write_bytes(data)
    (one,) = recover(partial)
    assert one.steps == 4 and "checksum" in one.message and check(open_trace(one.made)).ok
    assert twenty.with_name("run.dstrace.damaged").read_bytes() == data
