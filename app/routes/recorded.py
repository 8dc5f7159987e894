"""Recorded: the steps of a run, read back for what is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from decodescope.app.basis.refusal import Refused
from decodescope.app.runs.record_stream import BATCH, Channel
from decodescope.engine.trace import open_trace
from decodescope.engine.trace.records.events import Step


def at(channel: Channel, i: int) -> Step:
    """Step `i`, or Refused where its trace was taken away."""
    steps = channel.steps(i, i + 1)
    if not steps or steps[0].step != i:
        raise Refused(f"Step {i} is not here any more: the trace of this run was removed.")
    return steps[0]


@contextmanager
def reader(channel: Channel) -> Iterator[Callable[[int], Step]]:
    """Reads one step after another: from the trace, opened once, where the run is over, else as its channel has them."""
    if channel.over and channel.path.is_file():
        with closing(open_trace(channel.path)) as trace:
            yield lambda i: trace.steps[i]
    else:
        yield lambda i: at(channel, i)


def onward(channel: Channel, first: int) -> Iterator[Step]:
    """The steps from `first` on, read as `reader` does."""
    if channel.over and channel.path.is_file():
        with closing(open_trace(channel.path)) as trace:
            for i in range(first, min(len(trace.steps), channel.count)):
                yield trace.steps[i]
        return
    while part := channel.steps(first, min(first + BATCH, channel.count)):
        yield from part
        first += len(part)
