"""Events: a run's records on their way to the page, live over server-sent events or by range from the trace."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

from ..engine.trace import TraceError, open_trace
from ..engine.trace.events import End, Header, Prefill, Step
from ..lab.wire import Wire, encode, end_message

RING = 2048  # steps kept in memory per run; older ones are read from its trace
TICK = 1 / 30  # seconds between two steps that are sent in full
BEAT = 10.0  # seconds after which a silent stream says that it is alive
BATCH = 64  # steps in one message, skipped ones or asked for
RANGE_BYTES = 1 << 20  # of one answer to a range


class Job(Protocol):
    """What a stream asks of the run's worker."""

    @property
    def status(self) -> str:
        """queued, running, paused, done, cancelled or failed."""
        ...


class Channel:
    """A run as its readers see it: a sink that the worker writes to, and every reader reads at its own pace.

    Appending is all that the worker does here; messages are made by whoever reads. Numbers of steps are absolute: a
    reader that falls behind the ring finds the rest in the trace.
    """

    def __init__(self, run: str, path: Path):
        self.run, self.path = run, path
        self.wire: Wire | None = None
        self.end: End | None = None
        self.job: Job | None = None
        self.readers = 0
        self.estimate = ""  # of its memory, before it began
        self.fork: dict[str, Any] | None = None  # as in the header, for a run that waits
        self.broke: dict[str, Any] | None = None  # the condition at which it was paused: {"condition", "step", "why"}
        self._ring: deque[Step] = deque(maxlen=RING)
        self._lock = threading.Lock()

    @classmethod
    def recorded(cls, run: str, path: Path) -> Channel:
        """The channel of a run whose trace lies on disk. Raises TraceError if it cannot be read."""
        made, trace = cls(run, path), open_trace(path)
        try:
            for record in trace.records():
                made.write(record)
        finally:
            trace.close()
        made.end = made.end or End("interrupted", [], made.count, trace.damage or "")
        return made

    def write(self, record: Header | Prefill | Step | End) -> None:
        """Append one record; the header comes first."""
        with self._lock:
            if isinstance(record, Header):
                self.wire = Wire(record)
            elif isinstance(record, End):
                self.end = record
            else:
                assert self.wire is not None
                self.wire.learn(record)
                if isinstance(record, Step):
                    self._ring.append(record)

    def seal(self, end: End | None = None) -> None:
        """Take the last record."""
        self.end = end

    @property
    def count(self) -> int:
        """Steps made so far."""
        return self.wire.count if self.wire is not None else 0

    @property
    def status(self) -> str:
        """queued, running, paused, done, cancelled or failed."""
        if self.job is not None:
            return self.job.status
        return "failed" if self.end is None or self.end.reason == "interrupted" else "done"

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.status in ("done", "cancelled", "failed")

    def steps(self, first: int, last: int) -> list[Step]:
        """The steps first <= i < last that there are: from memory, or from the trace where they are older."""
        with self._lock:
            count, kept = self.count, list(self._ring)
        first, last = max(0, first), min(last, count)
        begin = count - len(kept)
        if first >= begin:
            return kept[first - begin : max(first, last) - begin]
        partial = self.path.with_name(self.path.name + ".partial")
        try:
            trace = open_trace(self.path if self.path.exists() else partial)
        except TraceError:
            return kept[: max(0, last - begin)]  # the file is gone: what is left in memory
        try:
            return list(trace.steps[first:last])
        finally:
            trace.close()

    def state(self) -> dict[str, Any]:
        """Where the run stands, as plain data."""
        made: dict[str, Any] = {"run": self.run, "status": self.status, "steps": self.count, "broke": self.broke}
        if self.end is not None:
            made |= {"reason": self.end.reason, "message": self.end.message}
        return made

    def range(self, first: int, last: int) -> bytes:
        """Whole steps first <= i < last as JSON, as many as fit into one answer; "next" says where to go on."""
        wire, used = self.wire, 0
        shown: list[bytes] = []
        if wire is not None:
            for step in self.steps(first, min(last, first + BATCH)):
                body = encode(wire.step(step, whole=True))
                used += len(body)
                if shown and used > RANGE_BYTES:
                    break
                shown.append(body)
        head = encode({"run": self.run, "from": first, "next": first + len(shown), "count": self.count})
        return head[:-1] + b',"steps":[' + b",".join(shown) + b"]}"


def event(kind: str, body: bytes, number: int | None = None) -> bytes:
    """One server-sent event; `number` is what a reader comes back with. JSON holds no bare line break."""
    mark = b"" if number is None else b"id: %d\n" % number
    return b"event: %s\n%sdata: %s\n\n" % (kind.encode(), mark, body)


async def stream(channel: Channel, after: int = -1, ahead: Any = None) -> AsyncIterator[bytes]:
    """The run from the step after number `after` on, as server-sent events, until its end.

    At most one step per TICK goes out in full; a reader that is behind gets the ones between as briefs. `ahead(channel)`
    says how many runs come first. The event "end" is the last one.
    """
    yield b"retry: 500\n\n"
    channel.readers += 1
    try:
        sent, told, headed = after + 1, None, False
        spoke = time.monotonic()
        while True:
            out: list[bytes] = []
            over = channel.over  # looked at before the count: what is made meanwhile comes with the next round
            state = channel.state()
            waiting = ahead(channel) if ahead is not None and state["status"] == "queued" else 0
            if (state["status"], waiting, state["broke"]) != told:
                told = (state["status"], waiting, state["broke"])
                out.append(event("state", encode({**state, "kind": "state", "ahead": waiting})))
            wire, count = channel.wire, channel.count
            if wire is not None and not headed:
                headed = True
                out.append(event("head", encode(wire.head())))
            if wire is not None and count > sent:
                steps = await asyncio.to_thread(channel.steps, sent, min(count, sent + BATCH))
                for step in steps:  # while catching up, only the newest is drawn
                    shown = wire.step(step) if step.step == count - 1 else wire.brief(step)
                    out.append(event("step", encode(shown), step.step))
                    sent = step.step + 1
                if not steps:
                    sent = count  # the trace was taken away, and memory no longer has them
            if over and sent >= count:
                last = channel.end or End("internal_error", [], count)
                out.append(event("end", encode(end_message(last))))
                yield b"".join(out)
                return
            now = time.monotonic()
            if out:
                yield b"".join(out)
                spoke = now
            elif now - spoke >= BEAT:
                yield b": alive\n\n"
                spoke = now
            await asyncio.sleep(TICK)
    finally:
        channel.readers -= 1
