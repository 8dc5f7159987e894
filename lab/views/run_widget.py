"""Run widget: a background run in a notebook: its picture, which grows, a Stop button, and one line with its state."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import ipywidgets

from decodescope.engine.cost.hardware import HardwareProfile
from decodescope.engine.trace import Record, Step, Trace
from decodescope.engine.trace.query.summary import summarise

from .scope import VIEWS, Scope

WORDS = {
    "queued": "waits for the run before it",
    "running": "decoding",
    "paused": "paused",
    "done": "done",
    "failed": "failed",
}


@runtime_checkable
class LiveRun(Protocol):
    """The interface of a background run; `engine.start` returns one."""

    trace: Trace

    @property
    def method(self) -> Any:
        """Its method, with `record()` and `from_record(record)`."""
        ...

    @property
    def status(self) -> str:
        """queued, running, paused, done, cancelled or failed."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether no further step will come."""
        ...

    @property
    def message(self) -> str:
        """Why it ended, if that is more than one word."""
        ...

    def stop(self) -> None:
        """End it soon; recorded steps stay."""
        ...

    def records(self) -> Iterator[Record]:
        """Its records as they come, from the header to the end."""
        ...

    def rerun(self, method: Any = None) -> LiveRun:
        """The same run from the beginning, with another method if one is given."""
        ...


class RunWidget(ipywidgets.VBox):
    """A live run.

    scope: its picture, with the interface of a Scope;  running: the run, which another may replace (`follow`)
    """

    def __init__(
        self, running: LiveRun, views: Sequence[str] = VIEWS, profile: HardwareProfile | None = None
    ):
        self.running: LiveRun = running
        self.scope = Scope(views=views, profile=profile)
        self._stop = ipywidgets.Button(description="Stop", tooltip="End the run; the steps so far stay")
        self._line = ipywidgets.Label()
        self._stop.on_click(lambda _: self.running.stop())
        self._writing = threading.RLock()  # a run that is no longer shown writes nothing more
        super().__init__([self.scope, ipywidgets.HBox([self._stop, self._line])])
        self.follow(running)

    def follow(self, running: LiveRun) -> RunWidget:
        """Show this run from its beginning on, instead of the one before, which is not stopped."""
        with self._writing:
            self.running = running
        self._stop.disabled = False
        self._say(WORDS.get(running.status, running.status))
        reader = threading.Thread(target=self._read, args=(running,), name="decodescope-watched", daemon=True)
        reader.start()
        self._reader = reader  # not before it starts: another thread may wait for it
        return self

    def wait(self, timeout: float | None = None) -> None:
        """Wait until all of the run is shown, at most `timeout` s."""
        self._reader.join(timeout)

    def _read(self, running: LiveRun) -> None:
        """Pass the run's records to the picture until it is over, or another run is shown."""
        for record in running.records():
            with self._writing:
                if self.running is not running:
                    return
                self.scope.write(record)
            if isinstance(record, Step):
                self._say(f"{WORDS['running']}, step {record.step}")
        if self.running is running:
            self._stop.disabled = True
            self._say(running.message or self._figures(running))

    def _figures(self, running: LiveRun) -> str:
        """One line on a finished run."""
        s = summarise(running.trace)
        ended = "stopped" if running.status == "cancelled" else "done"
        return (
            f"{ended}: {s.tokens} tokens, {s.tau:.2f} per pass of the target, {s.tokens_per_s:.0f} a second"
        )

    def _say(self, words: str) -> None:
        self._line.value = words
