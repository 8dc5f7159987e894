"""Event stream: the records of runs as server-sent events for a page, several runs in one stream."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Collection
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
    name:  its name in a stream of several runs, in the id of each of its events
    far:   the steps that a thread is reading; None: none
    ended: whether the event "end" was the last one
    """

    def __init__(
        self,
        channel: RecordStream,
        after: int = -1,
        ahead: Callable[[RecordStream], int] | None = None,
        spared: Collection[str] = (),
        name: str = "",
    ):
        self.channel = channel
        self.ahead = ahead
        self.spared = spared
        self.name = name
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
            out.append(encode_event("end", encode(end_message(end)), self.name))
        return out

    def _state_events(self) -> list[bytes]:
        """The event with the run's state, if the state has changed."""
        state = self.channel.state()
        waiting = self.ahead(self.channel) if self.ahead is not None and state["status"] == "queued" else 0
        now = (state["status"], waiting, state["broke"], state.get("doing"))
        if now == self._state:
            return []
        self._state = now
        return [encode_event("state", encode({**state, "kind": "state", "ahead": waiting}), self.name)]

    def _head_events(self, over: bool) -> list[bytes]:
        wire = self.channel.wire
        if self._headed or wire is None or not (wire.prefill is not None or self.channel.count or over):
            return []
        self._headed = True
        return [encode_event("head", encode(wire.head()), self.name)]

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


def encode_event(kind: str, body: bytes, name: str = "", number: int | None = None) -> bytes:
    """One server-sent event; JSON contains no bare line break.
    `number` is the position that a reader resumes from. With a name the id is "name:number", and "name:" without a number."""
    place = "" if number is None else str(number)
    mark = f"{name}:{place}" if name else place
    return b"event: %s\n%sdata: %s\n\n" % (kind.encode(), f"id: {mark}\n".encode() if mark else b"", body)


def _encode_steps(reader: EventReader, wire: Wire, first: int, last: int, count: int) -> list[bytes]:
    """Steps as events, as many as fit into one UPDATE; of the steps that a page catches up with only the newest is whole."""
    lines: list[bytes] = []
    used = 0
    for step in reader.channel.steps(first, last):
        body = encode(wire.step(step, spared=reader.spared) if step.step == count - 1 else wire.brief(step))
        used += len(body)
        if lines and used > UPDATE:
            break
        lines.append(encode_event("step", body, reader.name, step.step))
    return lines


class ReaderGroup:
    """The readers of one stream. Others join and leave while it is sent.

    lasting: the stream goes on when no reader is left
    """

    def __init__(self, *readers: EventReader, lasting: bool = False):
        self.lasting = lasting
        self.closed = False
        self.readers: list[EventReader] = []
        self.notices: list[bytes] = []  # further events to send
        self._news = asyncio.Event()  # set when there is something to send at once
        for reader in readers:
            self.add(reader)

    def add(self, reader: EventReader) -> None:
        """Let a reader join. A closed group takes none."""
        if not self.closed:
            reader.channel.readers += 1
            self.readers.append(reader)
            self._news.set()

    def remove(self, reader: EventReader) -> None:
        """Let a reader leave."""
        self.readers.remove(reader)
        reader.channel.readers -= 1
        if reader.far is not None:
            reader.far.cancel()

    def notify(self, event: bytes) -> None:
        """Send an event that belongs to no reader."""
        self.notices.append(event)
        self._news.set()

    def close(self) -> None:
        """Let all readers leave."""
        self.closed = True
        for reader in [*self.readers]:
            self.remove(reader)

    def take_events(self, readers: Collection[EventReader] | None = None) -> list[bytes]:
        """The new events of these readers, else of all. A reader that has ended leaves.
        In a stream that lasts, one that fails leaves too, with an event that says so."""
        out = [*self.notices]
        self.notices.clear()
        for reader in [*self.readers] if readers is None else [x for x in readers if x in self.readers]:
            try:
                out += reader.new_events()
            except Exception as error:  # the other runs of this stream go on
                if not self.lasting:
                    raise
                what = f"The steps of this run cannot be read ({type(error).__name__}): load the page again."
                out.append(encode_event("gone", encode({"error": what}), reader.name))
                self.remove(reader)
            else:
                if reader.ended:
                    self.remove(reader)
        return out

    async def rest(self, seconds: float) -> None:
        """Wait for so long, or until somebody joins."""
        with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)
        self._news.clear()


async def stream_events(*readers: EventReader) -> AsyncGenerator[bytes, None]:
    """The events of these runs until the end of each."""
    async for part in stream_group(ReaderGroup(*readers)):
        yield part


async def stream_group(group: ReaderGroup) -> AsyncGenerator[bytes, None]:
    """The events of all readers of a group: one piece per TICK with the news of all.
    A run with steps being read by a thread delays no other for more than a TICK."""
    try:
        yield b"retry: 500\n\n"
        spoke = time.monotonic()
        while group.readers or group.lasting:
            out = group.take_events()
            if far := [x for x in group.readers if x.far is not None]:
                await asyncio.wait([x.far for x in far if x.far is not None], timeout=TICK)
                out += group.take_events(far)
            now = time.monotonic()
            if out or now - spoke >= BEAT:
                yield b"".join(out) or b": alive\n\n"
                spoke = now
            if group.readers and all(x.far is None for x in group.readers):
                await group.rest(TICK)
            elif group.lasting and not group.readers:
                await group.rest(BEAT)
    finally:
        group.close()
