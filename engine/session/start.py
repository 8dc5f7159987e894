"""start: decode in the background, so that a notebook can show a run while it goes, stop it, and set it going again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Unpack

from torch.nn import Module

from decodescope.engine.core.arguments import format_value
from decodescope.engine.model.checkpoint.prompt_source import PromptValue
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.trace import Trace
from decodescope.engine.trace.records.events import Record

from .load import Model
from .method import Method, MethodError
from .run import Run, RunOptions, prepare_run
from .runner import Runner, RunnerJob, Status


class BackgroundRun:
    """A run in the background. One thread of this process makes the steps of all of them, one run after the other.

    trace: what was recorded so far
    """

    def __init__(self, opened: Run, job: RunnerJob, anew: Callable[[Method], BackgroundRun]):
        self.trace: Trace = opened.trace
        self._run = opened
        self._job = job
        self._anew = anew

    @property
    def method(self) -> Method:
        """What decodes."""
        return self._run.session.method

    @property
    def status(self) -> Status:
        """queued, running, paused, done, cancelled or failed."""
        return self._job.status

    @property
    def is_over(self) -> bool:
        """Whether no step will come any more."""
        return self._job.is_over

    @property
    def message(self) -> str:
        """Why it ended, where that is more than one word."""
        return self._job.message

    def stop(self) -> None:
        """End it between two steps, or two chunks of its prompt; the steps so far stay."""
        self._job.cancel()

    def pause(self) -> None:
        """Pause the run after the step that is being made."""
        self._job.pause()

    def resume(self) -> None:
        """Let it go on to its end."""
        self._job.resume()

    def step(self, n: int = 1) -> None:
        """Make n more steps, then pause."""
        self._job.step(n)

    def records(self) -> Iterator[Record]:
        """What its trace gets, from the header on, as it comes; waits for what is to come, until the run is over."""
        begun, steps = False, 0
        for _ in self._job.events():
            if not begun:
                begun = True
                yield from self._first_records()
            while steps < len(self.trace.steps):
                yield self.trace.steps[steps]
                steps += 1
        if not begun and hasattr(self.trace, "header"):
            yield from self._first_records()
        if self.trace.end is not None:
            yield self.trace.end

    def _first_records(self) -> Iterator[Record]:
        yield self.trace.header
        if self.trace.prefill is not None:
            yield self.trace.prefill

    def wait(self, timeout: float | None = None) -> Run:
        """The run, once it is over. Ctrl-C meanwhile ends it and is raised again.

        Raises EngineFault if it could not go on, and TimeoutError if it goes on after `timeout` s.
        """
        try:
            over = self._job.wait(timeout)
        except KeyboardInterrupt:
            self.stop()
            self._job.wait()
            raise
        if not over:
            raise TimeoutError(f"The run goes on after {timeout:g} s: wait longer, or stop it.")
        if self.status == "failed":
            end = self._job.end
            raise EngineFault("internal_error" if end is None else end.reason, self.message)
        return self._run

    def rerun(self, method: Method | str | Mapping[str, str] | None = None) -> BackgroundRun:
        """Start the same run from the beginning with another method, its own if None, and without a file.

        This run goes on. Raises what `start` does.
        """
        return self._anew(self.method if method is None else Method.of(method))


def start(
    model: Model | str | Path | Module,
    method: Method | str | Mapping[str, str] | None = None,
    text_or_ids: PromptValue = "",
    *,
    path: str | Path | None = None,
    **asked: Unpack[RunOptions],
) -> BackgroundRun:
    """Decode in the background; takes what `run` takes except `on_step`, and returns at once.

    `show(start(...))` shows the run while it goes. Raises LoadError, MethodError or ParamError for what cannot be run,
    QueueFull where too many runs wait.
    """
    odd = next((name for name in asked if name not in RunOptions.__annotations__), None)
    if odd is not None:
        raise MethodError(
            f"start takes no {format_value(odd)}; it takes {', '.join(RunOptions.__annotations__)}."
        )
    opened = prepare_run(model, method, text_or_ids, path=path, **asked)
    job = _worker().submit(opened.session)
    return BackgroundRun(opened, job, lambda other: start(model, other, text_or_ids, **asked))


@cache
def _worker() -> Runner:
    """The one that owns the device for this process."""
    return Runner()
