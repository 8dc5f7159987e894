"""Event stream: the records of runs as server-sent events for a page, several runs in one stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any

from decodescope.engine.trace.records.events import End
from decodescope.lab.wire.wire import Wire, encode, end_message

from .record_stream import BATCH, RecordStream

TICK = 1 / 30  # seconds between two steps of a run that are sent in full
BEAT = 10.0  # seconds after which a silent stream sends a sign of life
BEHIND = 512  # steps in one message, as BATCH, for a reader further behind than that
FEW = 4  # up to so many steps in memory become messages here: handing them to a thread costs as much as one
UPDATE = 5 << 20  # bytes of one run that are sent at once


class EventReader:
    """One run as one page reads it.

    after: number of the last step that the page has, -1: none;  ahead(channel): how many runs come before a waiting run
    spared: parts of a step that the page does not show, as `Wire.step` takes them
    word:  prefix of the event names; such events have no numbers, and a page that reconnects says where it was
    far:   the steps that a thread is reading; None: none
    ended: whether the event "end" was the last one
    """

    def __init__(
        self,
        channel: RecordStream,
        after: int = -1,
        ahead: Callable[[RecordStream], int] | None = None,
        spared: Collection[str] = (),
        word: str = "",
    ):
        self.channel = channel
        self.ahead = ahead
        self.spared = spared
        self.word = word
        self.far: asyncio.Future[list[bytes]] | None = None
        self.ended = False
        self._sent, self._headed = after + 1, False
        self._state: tuple[Any, ...] = ()  # the state that was last sent
        self._count = 0  # number of steps when a thread began to read

    def new_events(self) -> list[bytes]:
        """The events since the last call. At most one step is whole, the newest.
        Steps that are not in memory, or many steps, are read by a thread and come with a later call."""
        # read before the count: steps made meanwhile come with the next call
        over = self.channel.over
        out = self._state_events() + self._head_events(over) + self._step_events()
        if over and self.far is None and self._sent >= self.channel.count:
            self.ended = True
            end = self.channel.end or End("internal_error", [], self.channel.count)
            out.append(encode_event("end", encode(end_message(end)), self.word))
        return out

    def _state_events(self) -> list[bytes]:
        """The event with the run's state, if the state has changed."""
        state = self.channel.state()
        waiting = self.ahead(self.channel) if self.ahead is not None and state["status"] == "queued" else 0
        now = (state["status"], waiting, state["broke"], state.get("doing"))
        if now == self._state:
            return []
        self._state = now
        return [encode_event("state", encode({**state, "kind": "state", "ahead": waiting}), self.word)]

    def _head_events(self, over: bool) -> list[bytes]:
        wire = self.channel.wire
        if self._headed or wire is None or not (wire.prefill is not None or self.channel.count or over):
            return []
        self._headed = True
        return [encode_event("head", encode(wire.head()), self.word)]

    def _step_events(self) -> list[bytes]:
        wire = self.channel.wire
        first = self._sent
        count = self.channel.count
        if self.far is not None:
            if not self.far.done():
                return []
            part = self.far.result()
            count = self._count
            self.far = None
        elif (
            wire is None or not self._headed or count <= first
        ):  # steps that came since the check for a head wait for it
            return []
        else:
            last = min(count, first + (BEHIND if count - first > BEHIND else BATCH))
            if count - first > FEW or not self.channel.remembers(first):
                self.far = asyncio.ensure_future(
                    asyncio.to_thread(_encode_steps, self, wire, first, last, count)
                )
                self._count = count
                return []
            part = _encode_steps(self, wire, first, last, count)
        # none: the trace was removed, and memory no longer has them
        self._sent = first + len(part) if part else count
        return part


def encode_event(kind: str, body: bytes, word: str = "", number: int | None = None) -> bytes:
    """One server-sent event; JSON contains no bare line break.
    `number` is the position that a reader resumes from; events with a word before the kind have none."""
    mark = b"" if number is None or word else b"id: %d\n" % number
    return b"event: %s%s\n%sdata: %s\n\n" % (word.encode(), kind.encode(), mark, body)


def _encode_steps(reader: EventReader, wire: Wire, first: int, last: int, count: int) -> list[bytes]:
    """Steps as events, as many as fit into one UPDATE; of the steps that a page catches up with only the newest is whole."""
    lines: list[bytes] = []
    used = 0
    for step in reader.channel.steps(first, last):
        body = encode(wire.step(step, spared=reader.spared) if step.step == count - 1 else wire.brief(step))
        used += len(body)
        if lines and used > UPDATE:
            break
        lines.append(encode_event("step", body, reader.word, step.step))
    return lines


async def stream_events(*readers: EventReader) -> AsyncIterator[bytes]:
    """The events of all runs until the end of each: one piece per TICK with the news of all.
    A run with steps being read by a thread delays no other for more than a TICK."""
    yield b"retry: 500\n\n"
    for reader in readers:
        reader.channel.readers += 1
    try:
        left, spoke = [*readers], time.monotonic()
        while left:
            out = _new_events(left)
            if far := [x for x in left if x.far is not None]:
                await asyncio.wait([x.far for x in far if x.far is not None], timeout=TICK)
                out += _new_events(far)
            left, now = [x for x in left if not x.ended], time.monotonic()
            if out or now - spoke >= BEAT:
                yield b"".join(out) or b": alive\n\n"
                spoke = now
            if left and all(x.far is None for x in left):
                await asyncio.sleep(TICK)
    finally:
        for reader in readers:
            reader.channel.readers -= 1
            if reader.far is not None:
                reader.far.cancel()


def _new_events(readers: Sequence[EventReader]) -> list[bytes]:
    return [part for reader in readers for part in reader.new_events()]
