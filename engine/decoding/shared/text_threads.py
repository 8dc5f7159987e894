"""A run in which several threads write the text at once: each pass gives every thread a token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast

from torch import Tensor

from decodescope.engine.trace.details.declarations import Form, Sentence, ThreadsForm
from decodescope.engine.trace.details.shapes import Begun, Ended, ThreadsDetail
from decodescope.engine.trace.details.threads import TextThread, ThreadTree
from decodescope.engine.trace.records.events import EndReason

from ..bases.state import Move, State
from ..bases.strategy import Strategy
from ..record.plain_move import plain_move
from ..values.chance import Chance
from .branches import TextBranch, TextBranches
from .token_draw import draw_token

Why = Literal["stop_token", "max_new_tokens", "context_full", "outline"]
THREADS = ThreadsForm(
    title="A token of each thread",
    says=[
        Sentence("one thread wrote it", given={"threads": 1}),
        Sentence("{threads} threads wrote one each, the text takes them in order"),
    ],
    lines=[
        Sentence("One pass writes a token of every thread; none sees another's text behind where it forked.")
    ],
    card=[Sentence("Every thread reads its own text alone, and a pass writes a token of each.")],
    ends={
        "stop_token": "stop token",
        "max_new_tokens": "length",
        "context_full": "context full",
        "outline": "outline read",  # what it wrote was taken apart, and others go on
    },
    check="threads",
)


@dataclass(eq=False)
class ThreadState:
    """A text that is being written. most: tokens that it may write;  state: of the sampler"""

    strand: TextThread
    branch: TextBranch
    chance: Chance
    state: Any
    most: int

    @property
    def tokens(self) -> list[int]:
        """The tokens that it has written."""
        return self.strand.tokens

    def end(self, why: Why) -> None:
        """It writes no more, for the first reason that is given."""
        self.strand.why = self.strand.why or why


@dataclass
class ThreadWriter:
    """The threads of a run. Thread i draws the random numbers of a run with the seed s + i. So what it writes is the text of
    a run with everything before it as the prompt. Together the threads write at most `budget` tokens. If there is no room for
    a token of each, the threads that are last in the text end.

    alive: those that go on
    """

    branches: TextBranches
    order: ThreadTree
    budget: int
    alive: list[ThreadState] = field(default_factory=list)
    begun: list[Begun] = field(default_factory=list)

    @classmethod
    def start(cls, s: State) -> ThreadWriter:
        """Start without threads, after the part of the prompt that the target has read."""
        return cls(TextBranches(s.target, s.tokens), ThreadTree(s.stop.tokens), s.remaining_tokens)

    def begin(
        self,
        s: State,
        branch: TextBranch,
        *,
        parent: int = -1,
        at: int = 0,
        given: int = 0,
        most: int | None = None,
    ) -> ThreadState:
        """A thread that writes after `branch`; the last `given` tokens of `branch` were not written by any thread. It begins
        after the first `at` tokens of thread `parent`, or -1, after the prompt. most: tokens that it may write at most; None:
        as many as there is room for."""
        strand = self.order.begin(parent, at, branch.tokens[len(branch.tokens) - given :])
        first = strand.number == 0
        thread = ThreadState(
            strand,
            branch,
            s.chance if first else Chance(s.chance.seed + strand.number),
            s.sampler.start(list(branch.tokens), s.target.decoder.vocab, s.alphabet),
            self.budget if most is None else most,
        )
        self.alive.append(thread)
        self.begun.append(Begun(strand.number, parent, at, strand.given))
        return thread

    def fork(
        self, s: State, parent: ThreadState, at: int, behind: list[int], most: int | None = None
    ) -> ThreadState:
        """A thread after the first `at` tokens of `parent` and the tokens `behind`, which no thread wrote."""
        length = len(parent.branch.tokens) - len(parent.tokens) + at
        branch = self.branches.fork(parent.branch, length, behind)
        return self.begin(s, branch, parent=parent.strand.number, at=at, given=len(behind), most=most)

    def write_round(
        self,
        s: State,
        then: Callable[[list[ThreadState]], None] = lambda wrote: None,
        law: Callable[[Tensor, list[ThreadState]], Tensor] = lambda logits, writing: logits,
    ) -> Move:
        """One pass, which adds a token to each thread, and the part of the text that is now complete.

        then: called with the threads that have written, before those that ended leave: it may end some and begin others
        law:  logits [B, V] of the threads as they are drawn from
        """
        clock, wrote = s.target.executor, list(self.alive)
        started = clock.mark()
        logits = law(self.branches.step(), wrote)
        verified = clock.mark()
        before = wrote[0].state
        for i, (thread, best) in enumerate(zip(wrote, logits.argmax(-1).tolist(), strict=True)):
            place = len(thread.branch.tokens)
            token, thread.state = draw_token(
                logits[i : i + 1], best, s.sampler, thread.state, thread.chance, place
            )
            self._add(s, thread, token)
        then(wrote)
        self.budget -= len(wrote)
        self._end_excess()
        numbers, tokens = [x.strand.number for x in wrote], [x.tokens[-1] for x in wrote]
        record = ThreadsDetail("threads", numbers, tokens, self.begun)
        gone, self.begun = [x for x in self.alive if x.strand.why is not None], []
        self.alive = [x for x in self.alive if x.strand.why is None]
        record.ended = [Ended(x.strand.number, x.strand.why or "max_new_tokens") for x in gone]
        s.target.freed = [self.branches.end(x.branch) for x in gone] or None
        emitted = self.order.take()
        s.tokens += emitted
        return plain_move(
            s,
            emitted,
            None if self.alive else self._end_reason(),
            started,
            verified,
            details=[record],
            sampler_state=before,
        )

    def _add(self, s: State, thread: ThreadState, token: int) -> None:
        stops = s.stop.find_stop(thread.tokens, [token]) is not None
        thread.tokens.append(token)
        thread.branch.tokens.append(token)
        if stops:
            thread.end("stop_token")
        elif len(thread.tokens) >= thread.most:
            thread.end("max_new_tokens")
        elif len(thread.branch.tokens) >= s.limit:
            thread.end("context_full")

    def _end_excess(self) -> None:
        """End the threads that have no room for a next token."""
        going = sorted((x for x in self.alive if x.strand.why is None), key=lambda x: x.strand.place)
        for thread in going[self.budget :]:
            thread.end("max_new_tokens")

    def _end_reason(self) -> EndReason:
        """Why the text ends: the end reason of the last thread in it."""
        last = max(self.order.strands, key=lambda x: x.place).why
        return "max_new_tokens" if last is None or last == "outline" else cast(EndReason, last)


class ThreadedStrategy(Strategy):
    """Base of strategies that add text of their own after the prompt before their threads begin; it is read with the prompt."""

    details: ClassVar[Mapping[str, Form]] = {"threads": THREADS}

    def prefill(self, s: State) -> None:
        super().prefill(s)
        self.begin_threads(s)

    def begin(self, s: State) -> None:
        if s.scratch is None:  # a run that had another strategy before goes on with this one
            self.begin_threads(s)

    def begin_threads(self, s: State) -> None:
        """Read that text after the part that the target has read, and begin the first threads, held in the strategy's
        scratch."""
        raise NotImplementedError
