"""Lockstep: the runs of several prompts, decoded together as one job of the worker, each with its own channel."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from decodescope.app.basis.refusal import RequestRefusal, explain_error
from decodescope.engine.core.roles import TARGET

from ..batch_member import BatchMember
from ..composition import RunChoice
from ..lanes import make_session
from ..record_stream import RecordStream
from ..run_service import RunService

if TYPE_CHECKING:
    from decodescope.engine.session.batch.shared_passes import SharedExecutor
    from decodescope.engine.session.load import Model
    from decodescope.engine.session.method import Method
    from decodescope.engine.session.session import Session
    from decodescope.engine.trace.records.events import End, EndReason, Step

    from ..memory import MemoryEstimate


class RunnablePrompt(Protocol):
    """A prompt and how it is run. channel: of its run, None before it began"""

    choice: RunChoice
    channel: RecordStream | None


Row = TypeVar("Row", bound=RunnablePrompt)


@dataclass(frozen=True)
class LockstepResult:
    """The result of the step, for the worker."""

    step: int = 0


@dataclass
class _ActiveRun:
    """An active run. began: on its own clock;  cache: bytes that it may take"""

    session: Session
    place: BatchMember
    seat: SharedExecutor
    began: float
    cache: int


class Lockstep(Generic[Row]):
    """Work for the runner's worker, which treats it as a session.
    Its only step decodes the runs of `rows` together, at most `most` at a time. If runs of others wait, the runs already begun
    are decoded to their ends and no further run begins.

    names: role -> key of their models, which are loaded if they are not loaded yet
    over: called with a row when its run ends or is refused, and with the reason of a refusal or failure; "" if there is none
    """

    def __init__(
        self,
        play: RunService,
        names: Mapping[str, str],
        rows: Sequence[Row],
        most: int,
        over: Callable[[Row, str], None],
    ):
        self.run_id = secrets.token_hex(8)
        self.halted: Callable[[], bool] | None = None
        self.end: End | None = None
        self._play = play
        self._names = names
        self._rows = rows
        self._most = most
        self._report = over
        self._models: dict[str, Model] = {}
        self._going: dict[int, _ActiveRun] = {}  # by id of a row
        self._next: tuple[Row, Method, MemoryEstimate] | None = None  # the next run to begin, prepared once

    def step(self) -> LockstepResult:
        """Decode them. Raises Stopped if the models cannot be loaded."""
        from decodescope.engine.session.batch.owner_sessions import decode_for_owners
        from decodescope.engine.session.session import SessionStopped

        try:
            self._models = self._play.models.ensure_loaded(self._names)
        except (ValueError, OSError) as error:
            for row in self._rows:
                self._report(row, explain_error(error))
            self.finish("bad_input", explain_error(error))
            raise SessionStopped from None
        decode_for_owners(
            self._due_rows(),
            self._begin_run,
            self._most,
            each=self._after_step,
            over=self._finish_run,
            halted=self._is_halted,
        )
        self.finish("stopped_by_user" if self._is_halted() else "max_new_tokens")
        return LockstepResult()

    def finish(self, reason: EndReason, message: str = "") -> End:
        """End the work; each run has an end of its own."""
        from decodescope.engine.trace.records.events import End

        self.end = self.end or End(reason, [], 0, message)
        return self.end

    def branch(self) -> Session:
        """Raises RuntimeError: this is not a run."""
        raise RuntimeError("runs that go in step are no run that could be branched.")

    def _is_halted(self) -> bool:
        return self.halted is not None and self.halted()

    def _due_rows(self) -> Iterator[Row]:
        """The rows that begin their runs."""
        for i, row in enumerate(self._rows):
            if i >= self._most and self._play.worker().has_waiting:
                return
            yield row

    def _begin_run(self, row: Row) -> Session | None:
        """Begin the run of a row; None if there is no room for its caches until another one has ended. Raises
        RequestRefusal."""
        from decodescope.engine.session.batch.shared_passes import SharedExecutor

        try:
            if self._next is None or self._next[0] is not row:
                method = self._play.admit_method(row.choice)
                self._next = row, method, self._play.estimate_memory(row.choice, self._names, method)
            _, method, wanted = self._next
            if self._going and not wanted.fits_beside(-sum(x.cache for x in self._going.values())):
                return None
            seat, place = SharedExecutor(self._models[TARGET].decoder.device), BatchMember()
            session = make_session(row.choice, method, self._models, seat)
            row.channel = self._play.enroll(session, self._names, place)
        except (ValueError, OSError) as error:
            raise RequestRefusal(explain_error(error)) from None
        session.halted = lambda: place.stopping or self._is_halted()
        self._going[id(row)] = _ActiveRun(session, place, seat, seat.mark(), wanted.cache)
        return session

    def _after_step(self, row: Row, step: Step) -> None:
        """Check whether the run must end after its step."""
        one = self._going[id(row)]
        if one.place.stopping:
            one.session.finish("stopped_by_user")
        else:
            self._play.worker().enforce_limit(one.session, one.seat.mark() - one.began)

    def _finish_run(self, row: Row, error: Exception | None) -> None:
        """A run is over, or was refused."""
        from decodescope.engine.model.forward.executor import EngineFault

        one = self._going.pop(id(row), None)
        if one is None:
            return self._report(row, str(error))
        end = one.session.end
        assert end is not None
        if error is not None:  # a fault ends one run, not the others: its session has recorded it
            one.place.mark_ended(
                "failed", str(error) if isinstance(error, EngineFault) else end.message or end.reason
            )
        else:
            one.place.mark_ended("cancelled" if end.reason == "stopped_by_user" else "done", end.message)
        return self._report(row, one.place.message if one.place.status == "failed" else "")
