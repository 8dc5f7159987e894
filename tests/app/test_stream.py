"""The contents of one stream for several runs."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toys
from waiting import awaited

from decodescope.app.runs import event_stream as streams
from decodescope.app.runs.event_stream import EventReader, ReaderGroup, encode_event, stream_events
from decodescope.app.runs.record_stream import RecordStream
from decodescope.engine.trace import Trace

RUNS = 4


@pytest.fixture(scope="module")
def trace() -> Trace:
    return toys.decode(toys.method(drafter="draft_model"), count=24).sink


def channel(trace: Trace, folder: Path, steps: int | None = None, over: bool = True) -> RecordStream:
    """A run with so many steps of the trace, in memory."""
    one = RecordStream("a", folder / "a.dstrace")
    for record in (trace.header, trace.prefill, *trace.steps[:steps]):
        one.write(record)
    one.job = type("Job", (), {"status": "done" if over else "running"})()
    return one


async def heard(*readers: EventReader) -> bytes:
    return b"".join([part async for part in stream_events(*readers)])


def names(text: bytes, kind: str) -> list[bytes]:
    return [
        line for line in text.split(b"\n") if line.startswith(b"event: ") and line.endswith(kind.encode())
    ]


def ids(text: bytes, kind: str) -> list[str]:
    """The ids of the events of that kind."""
    found = re.findall(rb"^event: %s\nid: (.*)$" % kind.encode(), text, re.MULTILINE)
    return [x.decode() for x in found]


def test_what_a_token_says_cannot_be_taken_for_an_event(trace: Trace, tmp_path: Path) -> None:
    evil = "\n\nevent: end\nid: 1:3\ndata: {}\n\n"
    bad = replace(trace.header, pieces=dict.fromkeys(map(str, range(trace.header.model["vocab"])), evil))
    runs = [channel(trace, tmp_path), channel(Trace([bad, trace.prefill, *trace.steps]), tmp_path)]
    text = awaited(heard(*(EventReader(x, name=str(k)) for k, x in enumerate(runs))))
    assert b"event: end" in text.split(b"event: head\nid: 1:", 1)[1].split(b"\n\n")[0], (
        "the test needs a head that says it"
    )
    numbers = [f"{k}:{i}" for k, one in enumerate(runs) for i in range(one.count)]
    assert sorted(ids(text, "step")) == sorted(numbers) and ids(text, "end") == ["0:", "1:"]
    assert b"\nid: 3\n" in encode_event("step", b"{}", number=3)


def test_what_several_runs_have_at_once_comes_in_one_piece(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [channel(trace, tmp_path, steps=0, over=False) for _ in range(RUNS)]
    left = list(trace.steps)
    assert len(left) > 4, "the test needs steps"

    async def tick(group: ReaderGroup, seconds: float) -> None:
        assert seconds == streams.TICK
        if not left:
            for one in runs:
                one.job.status = "done"  # type: ignore[union-attr,misc] # this test's own job
        else:
            step = left.pop(0)
            for one in runs:
                one.write(step)

    monkeypatch.setattr(ReaderGroup, "rest", tick)

    async def parts() -> list[bytes]:
        return [
            part async for part in stream_events(*(EventReader(x, name=str(k)) for k, x in enumerate(runs)))
        ]

    pieces = [part for part in awaited(parts()) if b"event: step" in part]
    assert len(pieces) == len(trace.steps) and all(len(ids(part, "step")) == RUNS for part in pieces)
    assert all(one.readers == 0 for one in runs)


def test_no_step_comes_before_the_head_of_its_run(trace: Trace, tmp_path: Path) -> None:
    """A worker may begin between the check for a header and the check for steps."""
    one = RecordStream("a", tmp_path / "a.dstrace")

    class Late(EventReader):
        def _head_events(self, over: bool) -> list[bytes]:
            out = super()._head_events(over)
            if one.wire is None:
                for record in (trace.header, trace.prefill, trace.steps[0]):
                    one.write(record)
            return out

    reader = Late(one)
    one.job = type("Job", (), {"status": "running"})()
    assert names(b"".join(reader.new_events()), "state") and one.count == 1 and not reader.ended
    assert names(b"".join(reader.new_events()), "") == [b"event: head", b"event: step"]


def test_a_run_that_is_read_from_its_file_holds_up_no_other(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far, near = channel(trace, tmp_path), channel(trace, tmp_path)
    monkeypatch.setattr(far, "remembers", lambda first: False)
    monkeypatch.setattr(streams, "FEW", 1 << 20)  # steps in memory are sent at once
    held, part = threading.Event(), streams._encode_steps

    def slow(of: EventReader, *more: Any) -> Sequence[bytes]:
        assert of.channel is near or held.wait(60)
        return part(of, *more)

    monkeypatch.setattr(streams, "_encode_steps", slow)

    async def order() -> bytes:
        text = b""
        async for piece in stream_events(EventReader(far, name="0"), EventReader(near, name="1")):
            text += piece
            if b"event: end\nid: 1:" in text:
                held.set()  # everything of the other run has arrived
        return text

    text = awaited(order())
    assert sorted(ids(text, "step")) == sorted(f"{k}:{i}" for k in (0, 1) for i in range(far.count))
    assert text.index(b"event: end\nid: 1:") < text.index(b"event: step\nid: 0:")
