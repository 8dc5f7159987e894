"""Recorded steps: the steps of a run, read again for questions about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.runs.record_stream import BATCH, RecordStream
from decodescope.engine.trace import open_trace
from decodescope.engine.trace.records.events import Step


def step_at(channel: RecordStream, i: int) -> Step:
    """Step `i`, or RequestRefusal if its trace was removed."""
    steps = channel.steps(i, i + 1)
    if not steps or steps[0].step != i:
        raise RequestRefusal(f"Step {i} is not here any more: the trace of this run was removed.")
    return steps[0]


@contextmanager
def step_reader(channel: RecordStream) -> Iterator[Callable[[int], Step]]:
    """Reads one step after another: from the trace, opened once, if the run is over, else from its channel."""
    if channel.over and channel.path.is_file():
        with closing(open_trace(channel.path)) as trace:
            yield lambda i: trace.steps[i]
    else:
        yield lambda i: step_at(channel, i)


def steps_from(channel: RecordStream, first: int) -> Iterator[Step]:
    """The steps from `first` on, read as `step_reader` does."""
    if channel.over and channel.path.is_file():
        with closing(open_trace(channel.path)) as trace:
            for i in range(first, min(len(trace.steps), channel.count)):
                yield trace.steps[i]
        return
    while part := channel.steps(first, min(first + BATCH, channel.count)):
        yield from part
        first += len(part)
