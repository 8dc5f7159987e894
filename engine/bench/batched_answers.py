"""Side by side: the talks of several questions at once; their sessions run together while their answers are written."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from decodescope.engine.model.forward.executor import EngineFault, Executor
from decodescope.engine.session.batch.owner_sessions import SETS, decode_for_owners
from decodescope.engine.session.batch.shared_passes import SharedExecutor, SharedPassStats
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method, MethodError
from decodescope.engine.session.session import Session
from decodescope.engine.timing.energy import joules_between, read_joules

from .figures.labbench import LabBenchRow
from .questions.questions import BenchQuestion
from .talk import AnswerWriter, PromptRenderer, Talk, TurnAnswer


class BatchedBench(PromptRenderer, Protocol):
    """The bench's interface for asking several questions at once."""

    model: Model
    methods: dict[str, Method]

    def new_answer(self, prompt: list[int]) -> TurnAnswer:
        """A new answer with nothing written yet."""
        ...

    def session(
        self, method: Method, prompt: list[int], longest: int, executor: Executor | None = None
    ) -> Session:
        """The session that decodes one answer of at most `longest` tokens. Raises MethodError where it cannot."""
        ...

    def skip_reason(self, question: BenchQuestion) -> str:
        """Why the model cannot read the question's first turn; empty if it can."""
        ...

    def rows_from_talks(
        self, question: BenchQuestion, talks: Mapping[str, list[TurnAnswer]]
    ) -> list[LabBenchRow]:
        """The figures of the talks of every composition."""
        ...


def answer_in_batches(
    bench: BatchedBench, talks: Sequence[Talk], method: Method, most: int
) -> SharedPassStats:
    """Let `method` answer every turn of the talks, at most `most` at a time; where an answer ends the next one begins.

    A step lasts until its tokens are there, including work that is done for others meanwhile. So each answer gets a share of
    the time that all took, in proportion to how long it was written. Energy is divided likewise. Latency stays the time that
    the asker waits.
    """
    ready, before = deque(talks), read_joules()
    going: dict[int, AnswerWriter] = {}  # by id of a talk
    answers: list[TurnAnswer] = []

    def asking() -> Iterator[Talk | None]:
        while ready or going:
            yield ready.popleft() if ready else None

    def begin(talk: Talk) -> Session:
        assert talk.prompt is not None
        session = bench.session(method, talk.prompt, talk.longest, SharedExecutor(bench.model.decoder.device))
        going[id(talk)] = AnswerWriter(bench.new_answer(talk.prompt), session)
        return session

    def over(talk: Talk, error: Exception | None) -> None:
        assert talk.prompt is not None
        one = going.pop(id(talk), None)
        answer = bench.new_answer(talk.prompt) if one is None else one.answer
        if isinstance(error, MethodError | EngineFault):
            answer.record_fault(error)
        elif error is not None:
            raise error
        elif one is not None:
            one.finish()
            answer.spent["seconds"] = time.perf_counter() - one.began
        answers.append(answer)
        talk.add(answer)
        if talk.prompt is not None:
            ready.appendleft(talk)  # talks that were begun come first

    figures = decode_for_owners(
        asking(), begin, most, each=lambda talk, step: going[id(talk)].add(step), over=over
    )
    _divide_time(answers, figures.wall_s, joules_between(before, read_joules()))
    return figures


def _divide_time(answers: Sequence[TurnAnswer], seconds: float, energy: float | None) -> None:
    """Give each answer its share of the total time and energy, in proportion to how long it was written."""
    total = sum(x.prefill_s + x.decode_s for x in answers)
    for answer in answers:
        share = (answer.prefill_s + answer.decode_s) / total if total else 0.0
        scale = seconds / total if total else 0.0
        answer.prefill_s, answer.decode_s = answer.prefill_s * scale, answer.decode_s * scale
        if answer.spent:
            answer.spent |= {
                "decode_s": answer.decode_s,
                "joules": None if energy is None else energy * share,
            }


class BatchedRows:
    """The rows of questions that are given to a bench in sets, answered `batch` at a time, and handed out one by one.

    Within a set each method answers all of it before the next method does; the first method changes from set to set.
    """

    def __init__(
        self, bench: BatchedBench, questions: Sequence[BenchQuestion], batch: int, say: Callable[[str], None]
    ):
        self.bench = bench
        self.questions = questions
        self.batch = batch
        self.say = say
        self.ready: dict[object, list[LabBenchRow]] = {}

    def rows(self, question: BenchQuestion, number: int) -> list[LabBenchRow]:
        """The results of every method for question `number`; the questions of its set are answered with it."""
        if question.id not in self.ready:
            some = [
                x
                for x in self.questions[number : number + SETS * self.batch]
                if not self.bench.skip_reason(x)
            ]
            talks = self._answer_talks(some, number // (SETS * self.batch))
            for i, one in enumerate(some):
                of = {name: each[i].answers for name, each in talks.items()}
                self.ready[one.id] = self.bench.rows_from_talks(one, of)
        return self.ready.pop(question.id)

    def _answer_talks(self, questions: Sequence[BenchQuestion], turn: int) -> dict[str, list[Talk]]:
        names, talks = list(self.bench.methods), dict[str, list[Talk]]()
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            self.say(f"{name}: {len(questions)} questions, {self.batch} at a time")
            talks[name] = [Talk(self.bench, x) for x in questions]
            answer_in_batches(self.bench, talks[name], self.bench.methods[name], self.batch)
        return talks
