"""Batch member: the actions on a run that goes in step with others."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING, NoReturn

from decodescope.app.basis.refusal import RequestRefusal

if TYPE_CHECKING:
    from decodescope.engine.session.runner import Status
    from decodescope.engine.trace.records.events import Step

ONLY_STOPPED = (
    "This run goes in step with others, so it can be stopped, but not paused: "
    "run its prompt by itself in the Lab for that."
)


class BatchMember:
    """A run's place among others; a run on its own has a job of the worker instead. message: of its end"""

    def __init__(self) -> None:
        self.status: Status = "running"
        self.message = ""
        self.stopping = False
        self._over = Event()

    def cancel(self) -> None:
        """End the run after the present step; the others continue."""
        self.stopping = True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the run is over; return whether it is."""
        return self._over.wait(timeout)

    def mark_ended(self, status: Status, message: str) -> None:
        """It is over."""
        self.status, self.message = status, message
        self._over.set()

    def pause(self) -> NoReturn:
        """Raises RequestRefusal, and so do all other requests to pause."""
        raise RequestRefusal(ONLY_STOPPED, 409)

    resume = step = pause

    @property
    def until(self) -> Callable[[Step], bool] | None:
        """After which steps it pauses: none."""
        return None

    @until.setter
    def until(self, asked: Callable[[Step], bool] | None) -> None:
        if asked is not None:
            self.pause()
