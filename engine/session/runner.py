"""Runner and Job: one worker owns the device; runs wait their turn, and outlive whoever started them.

A paused run gives up the device and keeps its session; when it resumes, it is served next. So a page that was closed during a
pause holds nobody up.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol

from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.trace import StorageFull
from decodescope.engine.trace.records.events import End, EndReason, Step

from .session import Session, SessionStopped

Status = Literal["queued", "running", "paused", "done", "cancelled", "failed"]
RING = 4096  # steps kept in memory per job; older ones are in its trace
KEPT = 8  # finished jobs that stay at hand, with their caches; older ones are in their traces
PAUSED = (
    8  # runs that may be paused at a time, with their caches; one more ends the one that was paused longest
)


class QueueFull(RuntimeError):
    """More runs wait than the runner accepts. The message says how many and what to do."""


class Steppable(Protocol):
    """What the worker needs from a session, or from an object that replaces one."""

    run_id: str
    halted: Callable[[], bool] | None  # asked between two chunks of a prompt: whether to stop

    @property
    def end(self) -> End | None:
        """The last record, once there is one."""
        ...

    def step(self) -> Any:
        """One step: a Step, or another object with its number as `step`. Raises Stopped where the run ends instead."""
        ...

    def finish(self, reason: EndReason, message: str = "") -> End:
        """End the run; what was made stays."""
        ...

    def branch(self) -> Session:
        """An independent session that continues from here. Raises RuntimeError where there is none."""
        ...


class _EndedSession:
    """Replaces a session that was released when its run was over."""

    halted: Callable[[], bool] | None = None

    def __init__(self, session: Steppable):
        self.run_id, self.end = session.run_id, session.end

    def step(self) -> Any:
        """Nothing more comes. Raises Stopped."""
        raise SessionStopped

    def finish(self, reason: EndReason, message: str = "") -> End:
        """It is ended."""
        assert self.end is not None
        return self.end

    def branch(self) -> Session:
        """Raises RuntimeError."""
        raise RuntimeError("the run is over and its caches were let go: fork it from its trace.")


class RunnerJob:
    """One run in the runner's hands.

    Steps are handed out with absolute numbers from a bounded ring: a slow reader misses the oldest, and never slows the engine.
    """

    def __init__(self, session: Steppable, label: str = "", kept: bool = True):
        self.session = session
        self.label = label
        self._kept = kept
        self.id = session.run_id
        self.status: Status = "queued"
        self.message = ""
        self._ring: deque[Step] = deque(maxlen=RING)
        self._count = 0
        self._changed = threading.Condition()
        self._wanted: float = float("inf")  # steps that may still be made before pausing
        self._cancelled = False
        self.stood = 0.0  # since when it has been paused, by a clock that never goes back
        self._spent = 0.0  # seconds of computing: a run may stay paused as long as it likes
        self._withdraw: Callable[[], bool] | None = None
        self._again: Callable[[], object] | None = None  # puts a job that was paused into the queue again
        self.until: Callable[[Step], bool] | None = None  # asked after each step: whether to pause behind it

    def pause(self) -> None:
        """Stop after the step that is being made."""
        with self._changed:
            self._wanted = 0
            self._changed.notify_all()

    def resume(self) -> None:
        """Go on until the end."""
        with self._changed:
            self._wanted = float("inf")
            stood = self._leave_pause()
        if stood and self._again is not None:
            self._again()

    def step(self, n: int = 1) -> None:
        """Make n more steps, then pause."""
        with self._changed:
            self._wanted = n if self._wanted == float("inf") else self._wanted + n
            stood = self._leave_pause()
        if stood and self._again is not None:
            self._again()

    def _leave_pause(self) -> bool:
        """Return whether the job was paused; if so, it is queued from now on."""
        stood = self.status == "paused"
        if stood:
            self.status = "queued"
        self._changed.notify_all()
        return stood

    def cancel(self, message: str = "") -> None:
        """End the run between two steps, or between two chunks of its prompt; the steps so far stay.

        A job that waits or is paused ends at once. message: the reason, if no user wished it.
        """
        with self._changed:
            self._cancelled = True
            stood = self._leave_pause()
        if stood or (self._withdraw is not None and self._withdraw()):
            self._end_job(message)

    def branch(self) -> Session:
        """An independent session that continues from here; the job must be paused or over (else RuntimeError)."""
        if self.status in ("queued", "running"):
            raise RuntimeError("pause the run before branching it.")
        return self.session.branch()

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.status in ("done", "cancelled", "failed")

    @property
    def count(self) -> int:
        """Steps made so far."""
        return self._count

    @property
    def end(self) -> End | None:
        """The last record, once the run is over."""
        return self.session.end

    def steps_since(self, number: int) -> list[Step]:
        """The steps from `number` on that are still in memory."""
        with self._changed:
            first = self._count - len(self._ring)
            return list(self._ring)[max(0, number - first) :]

    def events(self, since: int = 0, timeout: float | None = None) -> Iterator[Step]:
        """Steps from number `since` on, as they come, until the run is over; waits at most `timeout` s for each."""
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._count > since or self.is_over, timeout):  # noqa: B023 # at once
                    return
            steps = self.steps_since(since)
            if not steps and self.is_over:
                return
            for step in steps:
                since = step.step + 1
                yield step

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the run is over; whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self.is_over, timeout)

    def _set_status(self, status: Status, message: str = "") -> None:
        with self._changed:
            self.status, self.message = status, message or self.message
            if self.is_over and not self._kept:
                self.session = _EndedSession(self.session)
            self._changed.notify_all()

    def _end_job(self, message: str = "") -> None:
        """End the run that the worker does not hold."""
        try:
            self.session.finish("stopped_by_user", message)
        except StorageFull as error:
            self._set_status("failed", str(error))
        else:
            self._set_status("cancelled", message)

    def _next_action(self, closing: bool) -> Literal["step", "stand", "end"]:
        """What the worker does with the job now; after "stand" the job is paused and no worker holds it."""
        with self._changed:
            if self._cancelled or closing:
                return "end"
            if self._wanted > 0:
                if self.status != "running":
                    self.status = "running"
                    self._changed.notify_all()
                return "step"
            self.status, self.stood = "paused", time.perf_counter()
            self._changed.notify_all()
            return "stand"

    def _record_step(self, step: Step) -> None:
        stop = self.until is not None and self.until(step)
        with self._changed:
            self._ring.append(step)
            self._count += 1
            # not below: the next step that is asked for is one
            self._wanted = 0 if stop else max(0, self._wanted - 1)
            self._changed.notify_all()


class Runner:
    """Owns the device: one worker thread makes the steps of one job at a time, in the order of submission.

    A job that resumes after a pause comes first. `longest_s` bounds a run's computing; `advice` is the last sentence's advice
    then; kept: whether a finished run keeps its session, and with it the caches, so that it can be branched.
    """

    def __init__(self, queue: int = 16, longest_s: float | None = None, advice: str = "", kept: bool = True):
        self.queue = queue
        self.longest_s = longest_s
        self.advice = advice
        self.kept = kept
        self.jobs: dict[str, RunnerJob] = {}
        self._waiting: deque[RunnerJob] = deque()
        self._news = threading.Condition()
        self._closing = False
        self._worker = threading.Thread(target=self._work, name="decodescope-runner", daemon=True)
        self._worker.start()

    def submit(self, session: Steppable, label: str = "", paused: bool = False) -> RunnerJob:
        """Queue a session; raises QueueFull if too many wait. paused: before its first step."""
        job = RunnerJob(session, label, self.kept)
        if paused:
            job.pause()
        with self._news:
            if len(self._waiting) >= self.queue:
                raise QueueFull(
                    f"{len(self._waiting)} runs are waiting, which is the limit: stop one, or wait for the first."
                )
            over = [old.id for old in self.jobs.values() if old.is_over]
            for old in over[: max(0, len(over) - KEPT)]:
                del self.jobs[old]
            self.jobs[job.id] = job
            self._waiting.append(job)
            job._withdraw = lambda: self._take_back(job)
            job._again = lambda: self._put_first(job)
            self._news.notify()
        return job

    def _put_first(self, job: RunnerJob) -> None:
        """Let a job that was paused be served next."""
        with self._news:
            self._waiting.appendleft(job)
            self._news.notify()

    @property
    def has_waiting(self) -> bool:
        """Whether a job waits to be served."""
        return bool(self._waiting)

    def enforce_limit(self, session: Steppable, spent: float) -> None:
        """End a run that has computed for `spent` seconds, where that is longer than `longest_s`."""
        if self.longest_s is not None and session.end is None and spent > self.longest_s:
            session.finish(
                "stopped_by_user", f"The run reached the limit of {self.longest_s:g} s{self.advice}."
            )

    def _take_back(self, job: RunnerJob) -> bool:
        """Remove a waiting job from the queue; return whether it was still waiting."""
        with self._news:
            if job not in self._waiting:
                return False
            self._waiting.remove(job)
            return True

    def jobs_ahead(self, job: RunnerJob) -> int:
        """Jobs that will be served before this one."""
        with self._news:
            active = any(j.status == "running" for j in self.jobs.values() if j is not job)
            place = self._waiting.index(job) if job in self._waiting else 0
        return place + (1 if active and job.status == "queued" else 0)

    def close(self, timeout: float = 5.0) -> None:
        """Cancel everything and end the worker."""
        self._closing = True
        for job in list(self.jobs.values()):
            job.cancel()
        with self._news:
            self._news.notify_all()
        self._worker.join(timeout)

    def _work(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting or self._closing)
                if not self._waiting:
                    return
                job = self._waiting.popleft()
            self._serve(job)

    def _limit_paused(self) -> None:
        """If more than PAUSED jobs are paused, end the one that was paused longest."""
        standing = [job for job in list(self.jobs.values()) if job.status == "paused"]
        if len(standing) > PAUSED:
            oldest = min(standing, key=lambda job: job.stood)
            oldest.cancel(
                f"It stood longest of more than {PAUSED} runs that were paused, so it was ended; its steps are kept."
            )

    def _serve(self, job: RunnerJob) -> None:
        session = job.session
        session.halted = lambda: job._cancelled or self._closing
        try:
            while session.end is None:
                way = job._next_action(self._closing)
                if way == "stand":
                    self._limit_paused()
                    return
                if way == "end":
                    session.finish("stopped_by_user")
                    break
                began = time.perf_counter()
                try:
                    step = session.step()
                except SessionStopped:
                    break
                job._spent += time.perf_counter() - began
                job._record_step(step)
                self.enforce_limit(session, job._spent)
        except EngineFault as fault:
            job._set_status("failed", str(fault))
        except Exception as error:  # a fault ends one run, not the lab: the session has recorded it
            reason: EndReason = session.finish("internal_error", f"{type(error).__name__}: {error}").reason
            job._set_status("failed", session.end.message if session.end else reason)
        else:
            stopped = session.end is not None and session.end.reason == "stopped_by_user"
            job._set_status("cancelled" if stopped else "done", session.end.message if session.end else "")
