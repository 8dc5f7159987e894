"""Upload check: whether an untrusted trace can be shown, within a budget of time and memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.trace import Limits, Trace, open_trace
from decodescope.engine.trace.records.events import End, Header, Prefill, Record, Step
from decodescope.lab.wire.wire import Wire, encode, end_message

from .event_stream import UPDATE
from .record_stream import TextGuard
from .run_service import RUN

SECONDS = 20.0  # processor time of one check
MEMORY = 512 << 20  # bytes by which the process may grow meanwhile
OFTEN = 32  # steps between two looks at the memory


def resident_bytes() -> int:
    """The memory that this process holds."""
    return int(psutil.Process().memory_info().rss)


@dataclass
class CheckBudget:
    """How long a check may last, and by how much the process may grow meanwhile.

    clock: seconds of processor time of the thread that checks;  memory: bytes that the process holds
    """

    seconds: float = SECONDS
    bytes: int = MEMORY
    clock: Callable[[], float] = time.thread_time
    memory: Callable[[], int] = resident_bytes
    _began: tuple[float, int] = field(init=False, default=(0.0, 0))

    def begin(self) -> CheckBudget:
        """Count from now on."""
        self._began = self.clock(), self.memory()
        return self

    def exhausted_by(self, step: int) -> str:
        """What is used up after this step, to follow "in"; empty: nothing is."""
        if self.clock() - self._began[0] >= self.seconds:
            return f"{self.seconds:g} s"
        if step % OFTEN == 0 and self.memory() - self._began[1] > self.bytes:
            return f"{self.bytes >> 20:,} MiB of memory"
        return ""


@dataclass(frozen=True)
class UploadVerdict:
    """The result for a trace that can be shown. steps: how many were checked;  total: how many it has;  within: what the check
    used up, if it did not reach the end"""

    run: str
    steps: int
    total: int
    within: str = ""

    @property
    def remark(self) -> str:
        """What was left unchecked, as a sentence; empty: nothing."""
        if not self.within:
            return ""
        return (
            f"The first {self.steps:,} of {self.total:,} steps were checked in {self.within}; "
            "decodescope trace check FILE checks all of them."
        )


def check_upload(upload: Path, limits: Limits, budget: CheckBudget) -> UploadVerdict:
    """Check an untrusted file, each record once. Raises TraceError or RequestRefusal."""
    trace = open_trace(upload, limits, verify=False)
    try:
        return _check_records(trace, budget.begin())
    except MemoryError:
        raise RequestRefusal(
            "showing it needs more memory than is free; record fewer tokens, or a lower level."
        ) from None
    finally:
        trace.close()


def _check_records(trace: Trace, budget: CheckBudget) -> UploadVerdict:
    """Learn every record as the page will, and encode every step as the page will request it."""
    if not RUN.fullmatch(trace.header.run):
        raise RequestRefusal("the number of its run is not one of ours; record it again with this version.")
    assert trace.file is not None
    run, total = trace.header.run, len(trace.steps)
    with _refuse_nonsense("the header"):
        wire = Wire(trace.header)
        wire.head()
    texts = TextGuard()
    for record in trace.file.records():
        if isinstance(record, Step):
            texts.add(wire, record)
            with _refuse_nonsense(f"step {record.step}"):
                wire.learn(record)
                _check_step_size(wire, record)
            if within := budget.exhausted_by(record.step):
                return UploadVerdict(run, record.step + 1, total, within)
        else:
            with _refuse_nonsense(f"the record of kind {record.kind!r}"):
                _check_other_record(wire, record)
    if texts.late:
        return _check_again(trace, budget)
    return UploadVerdict(run, total, total)


@contextlib.contextmanager
def _refuse_nonsense(where: str) -> Iterator[None]:
    """Refuse what is well-formed, and yet cannot be shown. Raises RequestRefusal that names the record."""
    try:
        yield
    except RequestRefusal:
        raise
    except (ValueError, LookupError, ArithmeticError) as error:
        why = f" ({str(error).rstrip('.')})" if isinstance(error, Refusal) else ""
        raise RequestRefusal(
            f"{where} holds what no run writes{why}; open an intact copy, or record the run again."
        ) from None


def _check_again(trace: Trace, budget: CheckBudget) -> UploadVerdict:
    """Check the steps with the texts that tokens have at the end: some got theirs after they were shown, as in no run."""
    wire, texts = Wire(trace.header), TextGuard()
    for record in trace.records():
        if isinstance(record, Prefill | Step):
            wire.learn(record)
    for step in trace.steps:
        texts.add(wire, step)
        with _refuse_nonsense(f"step {step.step}"):
            _check_step_size(wire, step)
        if within := budget.exhausted_by(step.step):
            return UploadVerdict(trace.header.run, step.step + 1, len(trace.steps), within)
    return UploadVerdict(trace.header.run, len(trace.steps), len(trace.steps))


def _check_other_record(wire: Wire, record: Record) -> None:
    """Encode what the page gets of the prompt and of the end; the header is known."""
    if isinstance(record, Prefill):
        wire.learn(record)
        encode(wire.head())
    elif isinstance(record, End):
        encode(end_message(record))
    else:
        assert isinstance(record, Header)


def _check_step_size(wire: Wire, step: Step) -> None:
    """Refuse a step that would be too large on the page. Raises RequestRefusal."""
    if (size := len(encode(wire.step(step, whole=True)))) > UPDATE:  # as the page will request it
        raise RequestRefusal(
            f"step {step.step} would be {size:,} bytes on the page, and at most {UPDATE:,} are shown."
        )


def give_back_memory() -> None:
    """Return freed memory to the system; the C library of Linux keeps it otherwise, for each thread."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # another C library has no such call
        trim(0)
