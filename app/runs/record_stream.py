"""Record stream: a run's records for its readers, from memory or by range from the trace."""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.basis.storage import UNCHECKED
from decodescope.engine.trace import Trace, TraceError, open_trace
from decodescope.engine.trace.details.consistency import token_ids
from decodescope.engine.trace.query.titles import title
from decodescope.engine.trace.records.events import End, Header, Record, Step
from decodescope.lab.wire.wire import Wire, encode

RING = 2048  # steps kept in memory per run; older ones are read from its trace
LONG = 2048  # steps from which a recorded run is read in the background while its beginning is shown
FIRST = 256  # steps of it that are read before anything is shown
BATCH = 64  # steps in one message, skipped or requested
RANGE_BYTES = 1 << 20  # of one answer to a range
STEP_TEXT = 1 << 20  # characters of the tokens of a step, in a trace from anywhere
RUN_TEXT = 64 << 20  # the same of all steps


class TextGuard:
    """Counts the characters of a trace from anywhere, before its steps are learned.

    late: whether a token got another text after it was shown, as in no run
    """

    def __init__(self) -> None:
        self.late = False
        self._shown: set[int] = set()
        self._total = 0

    def add(self, wire: Wire, step: Step) -> None:
        """Count a step. Raises RequestRefusal if it, or all together, hold too much."""
        tokens = _shown_tokens(wire, step)
        own = _count_characters(wire, step, tokens)
        if own > STEP_TEXT:
            raise RequestRefusal(
                f"step {step.step} would be shown with {own:,} characters of text, and at most {STEP_TEXT:,} are."
            )
        self._total += own
        if self._total > RUN_TEXT:
            raise RequestRefusal(
                f"its steps hold more than {RUN_TEXT:,} characters of text, which is the limit."
            )
        self.late |= any(int(key) in self._shown for key in step.pieces or ())
        self._shown.update(tokens)


def _shown_tokens(wire: Wire, step: Step) -> Counter[int]:
    """All tokens of a step, with how often it shows each."""
    tokens = Counter(step.emitted)
    if step.draft is not None:
        tokens.update(step.draft.tokens)
    if step.tops is not None:
        ids, times = np.unique(step.tops.ids, return_counts=True)
        tokens.update(dict(zip(ids.tolist(), times.tolist(), strict=True)))
    tokens.update(token_ids(step.details or (), wire.header.details))
    return tokens


def _count_characters(wire: Wire, step: Step, tokens: Mapping[int, int]) -> int:
    """Characters of tokens; a token of a few bytes may represent a long text, and occur many times.
    Each counts as at least one, since each becomes a row."""
    own = step.pieces or {}
    return sum(
        times * max(1, len(own.get(str(token)) or wire.text(token))) for token, times in tokens.items()
    )


class HasStatus(Protocol):
    """The methods that a stream calls on the run's worker."""

    @property
    def status(self) -> str:
        """queued, running, paused, done, cancelled or failed."""
        ...


class RecordStream:
    """A run as its readers see it: a sink that the worker writes to, and every reader reads at its own pace.

    The worker only appends; readers build the messages. Step numbers are absolute: a reader that falls behind the ring finds
    the rest in the trace.
    """

    def __init__(self, run: str, path: Path):
        self.run, self.path = run, path
        self.wire: Wire | None = None
        self.end: End | None = None
        self.job: HasStatus | None = None
        self.readers = 0
        self.estimate = ""  # estimate of its memory, before it began
        self.models: dict[str, str] = {}  # role -> key of the models that a live run reads
        # what a run does before its first step
        self.doing: Callable[[], dict[str, Any] | None] = lambda: None
        self._since: float | None = None  # when it was first seen to be served
        self._settled = ""  # the status of a finished run after its job was released
        self.fork: dict[str, Any] | None = None  # as in the header, for a run that waits
        self.broke: dict[str, Any] | None = (
            None  # the condition at which it was paused: {"condition", "step", "why"}
        )
        self.named = ""  # its name; once it has a header, the header's title
        self.total = 0  # steps of a recorded run; 0: not known
        self.reading = False  # whether steps of a recorded run are still to be read
        self._trace: Trace | None = None  # of a recorded run, with the positions of its records
        self._reader: threading.Thread | None = None  # the thread that reads the rest of a recorded run
        self._guard: TextGuard | None = None  # of a trace that was checked in part when it was added
        self._closed = False
        self._ring: deque[Step] = deque(maxlen=RING)
        self._lock = threading.Lock()
        self._file = threading.Lock()  # held by whoever reads steps from the trace

    @classmethod
    def from_trace(cls, run: str, path: Path) -> RecordStream:
        """The channel of a run with a trace on disk. Raises TraceError if it cannot be read.
        A thread reads the rest of a LONG trace while its beginning is already available."""
        channel, trace = cls(run, path), open_trace(path)
        channel.total = len(trace.steps)
        channel.end = trace.end or End("interrupted", [], channel.total, trace.damage or "")
        if path.with_name(path.name + UNCHECKED).exists():
            channel._guard = TextGuard()
        assert trace.file is not None
        records = trace.file.records()
        try:
            for record in islice(records, FIRST if channel.total > LONG else None):
                channel.write(record)
        except RequestRefusal as refusal:  # of a part that was not checked
            trace.close()
            channel.end = End("interrupted", [], channel.count, str(refusal))
            return channel
        except BaseException:
            trace.close()
            raise
        if channel.total <= LONG:
            trace.close()
            return channel
        channel._trace, channel.reading = trace, True
        channel._reader = threading.Thread(target=channel._read_rest, args=(records,), daemon=True)
        channel._reader.start()
        return channel

    def _read_rest(self, records: Iterator[Record]) -> None:
        """Read the rest of a recorded run."""
        try:
            for record in records:
                if self._closed:
                    self.end = End(
                        "interrupted", [], self.count, "The trace was taken away while it was being read."
                    )
                    return
                self.write(record)
        except (ValueError, OSError) as error:  # damaged after what was read, or removed
            self.end = End("interrupted", [], self.count, str(error))
        finally:
            self.reading = False

    def close(self) -> None:
        """Release the file, if one is held; parts of it that were not read stay unknown."""
        self._closed = True
        if self._reader is not None:
            self._reader.join()  # it stops after the record that it is reading
        with self._file:
            if self._trace is not None:
                self._trace.close()
                self._trace = None

    def write(self, record: Record) -> None:
        """Append one record; the header comes first."""
        with self._lock:
            if isinstance(record, Header):
                self.wire, self.named = Wire(record), title(record)
            elif isinstance(record, End):
                self.end = record
            else:
                assert self.wire is not None
                if self._guard is not None and isinstance(record, Step):
                    self._guard.add(self.wire, record)
                    if self._guard.late:
                        raise RequestRefusal(
                            f"step {record.step} gives a token another text after it was shown: record the run again."
                        )
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
        if self._settled:
            return self._settled
        return "failed" if self.end is None or self.end.reason == "interrupted" else "done"

    def release_job(self) -> None:
        """Release the finished job, and what it holds."""
        if self.job is not None:
            self._settled = self.job.status
            self.job = None
            self.doing = lambda: None

    def track_prompt(self, session: Any) -> None:
        """Report before the first step how far this session has read its prompt.
        The channel outlives the session, and does not hold it."""
        weak = weakref.ref(session)

        def doing() -> dict[str, Any] | None:
            own = weak()
            reading = None if own is None else own.reading
            return None if reading is None else dict(zip(("role", "read", "of"), reading, strict=True))

        self.doing = doing

    @property
    def is_active(self) -> bool:
        """Whether the run is active, or will be."""
        return self.status not in ("done", "cancelled", "failed")

    @property
    def over(self) -> bool:
        """Whether nothing more will come: the run is not active, and all its records are read."""
        return not (self.reading or self.is_active)

    def steps(self, first: int, last: int) -> list[Step]:
        """The existing steps first <= i < last: from memory, or from the trace if they are older."""
        with self._lock:
            count, kept = self.count, list(self._ring)
        first, last = max(0, first), min(last, count)
        begin = count - len(kept)
        if first >= begin:
            return kept[first - begin : max(first, last) - begin]
        try:
            return self._stored_steps(first, last)
        except (TraceError, ValueError):
            return kept[: max(0, last - begin)]  # the file is gone: use what is left in memory

    def remembers(self, first: int) -> bool:
        """Whether all steps from number `first` on are in memory."""
        return first >= self.count - len(self._ring)

    def _stored_steps(self, first: int, last: int) -> list[Step]:
        """Steps from the trace. Once it is whole it stays open: finding its records takes a second per 100 MB."""
        with self._file:
            if self._trace is not None:
                return list(self._trace.steps[first:last])
            over, partial = self.over, self.path.with_name(self.path.name + ".partial")
            trace = open_trace(self.path if self.path.exists() else partial)
            try:
                if over and len(trace.steps) >= self.count:
                    self._trace = trace
                return list(trace.steps[first:last])
            finally:
                if self._trace is not trace:
                    trace.close()

    def state(self) -> dict[str, Any]:
        """The state of the run, as plain data.
        doing, of a run that is served and has made no step: {"phase": words} while its models are loaded; {"role", "read",
        "of"}, in tokens, while a model reads the prompt; null before that. seconds: since when."""
        state: dict[str, Any] = {
            "run": self.run,
            "status": self.status,
            "steps": self.count,
            "broke": self.broke,
        }
        state["named"] = self.named
        if self.reading:
            state["of"] = self.total
        if self.status == "running" and not self.count:
            self._since = self._since or time.monotonic()
            state |= {"doing": self.doing(), "seconds": round(time.monotonic() - self._since, 1)}
        if self.end is not None:
            state |= {"reason": self.end.reason, "message": self.end.message}
        return state

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
