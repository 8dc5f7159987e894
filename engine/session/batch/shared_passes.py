"""together: several sessions in step; their passes over one model run as one."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from decodescope.engine.core.probe import Probe
from decodescope.engine.model.forward.batched import PassRequest, forward_batched
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.executor import Executor, catch_device_faults
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.faults import row_maxima
from decodescope.engine.model.layers.partial_pass import DepthRule, ExecutedLayers, Skip
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.trace.records.events import Step

from ..session import Session, SessionStopped

ROWS = 1024  # of a pass, at most, where several could be one: more rows only take memory, the weights are read once for these
PATIENCE = 16  # rounds for which a pass waits for others to come


class SharedExecutor(Executor):
    """The executor of a session that runs with others. Before and after that, it runs passes as any other.

    away: seconds in which its session waited while others were served; no time that it measures includes them
    """

    def __init__(self, device: torch.device | str):
        super().__init__(device)
        self.member: _Member | None = None
        self.away = 0.0
        self._last: PassResult | None = None

    def run(
        self,
        decoder: Decoder,
        feed: Feed,
        cache: KVCache | None,
        probe: Probe | None = None,
        skip: Skip | None = None,
        depth: DepthRule | None = None,
        ran: ExecutedLayers | None = None,
    ) -> Tensor:
        if self.member is None:
            self.together = None
            return super().run(decoder, feed, cache, probe, skip, depth, ran)
        came = time.perf_counter()
        self._last = answer = self.member.ask(PassRequest(decoder, feed, cache, probe, skip, depth, ran))
        self.away += time.perf_counter() - came - answer.took
        self.together = answer.sequences if answer.sequences > 1 else None
        return answer.logits

    def row_maxima(self, logits: Tensor) -> tuple[Any, list[int]]:
        """The highest logits of each row, looked up by the core that ran the last pass, which has them at hand."""
        last, self._last = self._last, None
        return last.highest if last is not None and last.logits is logits else super().row_maxima(logits)

    def mark(self) -> float:
        """A moment on the session's own clock, which stops while others are served.

        On CUDA it is the host's clock too: a pass that several sessions share has ended when its answers are handed out.
        """
        return time.perf_counter() - self.away


class SharedPass(NamedTuple):
    """A pass that was run: its model, its rows, its number of sessions, and its time."""

    model: str
    rows: int
    sequences: int
    seconds: float


class PassResult(NamedTuple):
    """A session's result of a pass: its logits, its seconds, how many sessions shared it, and `highest` of the logits."""

    logits: Tensor
    took: float
    sequences: int
    highest: tuple[Any, list[int]]


@dataclass
class SharedPassStats:
    """What became of sessions that went together. wall_s: from the first pass to the last"""

    passes: list[SharedPass] = field(default_factory=list)
    wall_s: float = 0.0

    @property
    def pass_counts(self) -> Counter[int]:
        """How many passes were run, by how many sessions shared them."""
        return Counter(x.sequences for x in self.passes)


class _Member:
    """A session that runs with others, in a thread of its own.

    Only one thread runs at a time: it runs until it asks for a pass, or ends, and then hands over.
    """

    def __init__(self, session: Session, group: _MemberGroup):
        seat = session.target.executor
        if not isinstance(seat, SharedExecutor):
            raise ValueError("a session that goes with others is made with executor=Seat(device).")
        self.session = session
        self.group = group
        self.seat = seat
        self.go = threading.Lock()
        self.go.acquire()
        self.asked: PassRequest | None = None
        self.waited = 0
        self.answer: PassResult | Exception | None = None
        self.error: Exception | None = None
        self.done = False
        threading.Thread(target=self._work, name="decodescope-member", daemon=True).start()

    def _work(self) -> None:
        self.go.acquire()
        self.seat.member = self
        try:
            while self.session.end is None:
                if self.group.stopping:
                    self.session.finish("stopped_by_user")
                else:
                    self.group.each(self.session, self.session.step())
        except SessionStopped:
            pass
        except Exception as error:
            self.error = error
            self._seal()
        finally:
            self.seat.member, self.done = None, True
            self.group.hand_over()

    def _seal(self) -> None:
        """End the session where the error was not its own: a callback that receives its steps failed."""
        if self.session.end is None:
            try:
                self.session.finish("stopped_by_user")
            except Exception as error:
                self.error = self.error or error

    def ask(self, asked: PassRequest) -> PassResult:
        """Wait until the pass has been run; return its result. Raises what the pass did, and Stopped."""
        if self.group.stopping:
            raise SessionStopped
        self.asked = asked
        self.waited = 0
        self.answer = None
        self.group.hand_over()
        self.go.acquire()
        if self.group.stopping:
            raise SessionStopped
        assert self.answer is not None
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class _MemberGroup:
    """The members that go together; `run` is called by the thread that runs all passes."""

    def __init__(self, each: Callable[[Session, Step], None]):
        self.each = each
        self.members: list[_Member] = []
        self.figures = SharedPassStats()
        self.stopping = False
        self._turn: deque[_Member] = deque()
        self._back = threading.Lock()
        self._back.acquire()

    def hand_over(self) -> None:
        """Let the next member run, or the thread of the passes if no member is waiting for its turn."""
        (self._turn.popleft().go if self._turn else self._back).release()

    def advance_members(self) -> None:
        """Let all that do not wait for a pass go on, one after another, until each waits for one or has ended."""
        self._turn = deque(x for x in self.members if x.asked is None and not x.done)
        self.hand_over()
        try:
            self._back.acquire()
        except KeyboardInterrupt:
            self.stopping = True  # whoever runs now ends at its next pass, and the others behind it
            self._back.acquire()
            raise

    def stop(self) -> None:
        """End the sessions, each where it is: what a step had done so far is not committed."""
        self.stopping = True
        for member in self.members:
            member.asked = None
        if self.members:
            self.advance_members()

    def serve(self) -> None:
        """Run the passes that members wait for.

        Passes that cannot be shared run one by one. Else the passes of the smallest model run, for as many members as there
        are, so that all drafting is done before the large model reads. Passes that have waited for long run too.
        """
        waiting = [x for x in self.members if x.asked is not None]
        alone = [x for x in waiting if x.asked is not None and not x.asked.is_whole]
        models: dict[object, list[_Member]] = {}
        for member in waiting:
            assert member.asked is not None
            if member.asked.is_whole:
                models.setdefault(member.asked.model, []).append(member)
        served = [[x] for x in alone]
        for k, same in enumerate(sorted(models.values(), key=_model_size)):
            if (k == 0 and not alone) or max(x.waited for x in same) >= PATIENCE:
                served += _split_members(same)
        for part in served:
            self._run(part)
        for member in waiting:
            member.waited += 1

    @torch.inference_mode()
    def _run(self, part: Sequence[_Member]) -> None:
        """Run the passes of these members as one.

        If that fails, run each alone, so that only the members that cause the failure fail.
        """
        asked = [x.asked for x in part if x.asked is not None]
        device = asked[0].decoder.device
        pending = [[store.m for store in one.cache.layers] if one.cache is not None else [] for one in asked]
        began = time.perf_counter()
        try:
            answers = catch_device_faults(
                lambda: [asked[0].run()] if len(part) == 1 else forward_batched(asked), device
            )
            if device.type == "cuda":
                torch.cuda.synchronize(device)
        except Exception as error:
            if len(part) == 1:
                part[0].answer, part[0].asked = error, None
                return
            for one, before in zip(asked, pending, strict=True):
                for store, m in zip([] if one.cache is None else one.cache.layers, before, strict=True):
                    store.rollback(m)
            for member in part:
                self._run([member])
            return
        tops = [row_maxima(logits) for logits in answers]
        took = time.perf_counter() - began
        rows = sum(one.rows for one in asked)
        self.figures.passes.append(SharedPass(asked[0].decoder.spec.name, rows, len(part), took))
        for member, logits, top in zip(part, answers, tops, strict=True):
            member.answer, member.asked = PassResult(logits, took, len(part), top), None


def _model_size(same: Sequence[_Member]) -> int:
    asked = same[0].asked
    assert asked is not None
    return asked.decoder.spec.params


def _split_members(same: Sequence[_Member]) -> list[list[_Member]]:
    """Members in the order of their seats, in parts of at most ROWS rows, one member at least."""
    parts: list[list[_Member]] = []
    rows = ROWS
    for member in same:
        assert member.asked is not None
        rows += member.asked.rows
        if rows > ROWS:
            parts.append([])
            rows = member.asked.rows
        parts[-1].append(member)
    return parts


def decode_together(
    sessions: Iterable[Session | None],
    most: int = 8,
    *,
    each: Callable[[Session, Step], None] = lambda session, step: None,
    over: Callable[[Session, Exception | None], None] = lambda session, error: None,
    halted: Callable[[], bool] = lambda: False,
) -> SharedPassStats:
    """Decode sessions to their ends, at most `most` at a time, each made with a `SharedExecutor` for its executor.

    Where one ends, the next takes its place. A None among them says that none can begin until one ends. Each decodes as it
    would alone, to rounding, whatever the others do: with its own method, seed, caches and trace. So their methods may differ
    too.

    The sessions run by turns until all wait for a pass. Passes over one model then run as one
    (`engine/model/forward/batched.py`), over all layers for every row. Passes that leave out layers are run one by one.

    each:   called with every step of every session
    over:   called with a session that has ended, and the error if one was raised: it touches no other session
    halted: asked before each pass whether to stop: sessions that were begun end as stopped by the user
    """
    group, coming = _MemberGroup(each), iter(sessions)
    started, more = time.perf_counter(), True
    try:
        while not halted():
            while more and len(group.members) < most:
                session = next(coming, group)
                more = session is not group
                if session is None or isinstance(session, _MemberGroup):
                    break
                group.members.append(_Member(session, group))
            if not group.members:
                break
            group.advance_members()
            for member in [x for x in group.members if x.done]:
                group.members.remove(member)
                over(member.session, member.error)
            group.serve()
    finally:
        going = list(group.members)
        group.stop()
        for member in going:
            over(member.session, member.error)
    group.figures.wall_s = time.perf_counter() - started
    return group.figures
