"""Side by side: the talks of several questions at once, whose sessions go together while their answers are written."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from decodescope.engine.model.forward.executor import EngineFault, Executor
from decodescope.engine.session.batch.in_step import SETS, in_step
from decodescope.engine.session.batch.together import Figures, Seat
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method, MethodError
from decodescope.engine.session.session import Session
from decodescope.engine.timing.energy import joules, used

from .figures.answers import Row
from .questions.questions import Question
from .talk import Answer, Speaker, Talk, Written


class Several(Speaker, Protocol):
    """What a bench is to those who put it several questions at once."""

    model: Model
    methods: dict[str, Method]

    def blank(self, prompt: list[int]) -> Answer:
        """An answer of which nothing is written yet."""
        ...

    def session(
        self, method: Method, prompt: list[int], longest: int, executor: Executor | None = None
    ) -> Session:
        """The session that decodes one answer of at most `longest` tokens. Raises MethodError where it cannot."""
        ...

    def too_long(self, question: Question) -> str:
        """Why the model cannot read the question's first turn; empty if it can."""
        ...

    def rows_of(self, question: Question, talks: Mapping[str, list[Answer]]) -> list[Row]:
        """The figures of the talks of every composition."""
        ...


def side_by_side(bench: Several, talks: Sequence[Talk], method: Method, most: int) -> Figures:
    """Let `method` answer every turn of the talks, at most `most` at a time; where an answer ends the next one is begun.

    Steps last until their tokens are there, what is done for others meanwhile included. So the seconds of an answer are made
    its share of the time that all took, in proportion to how long it was written, and energy is divided likewise; latency
    stays what whoever asked waits for.
    """
    ready, before = deque(talks), joules()
    going: dict[int, Written] = {}  # by id of a talk
    answers: list[Answer] = []

    def asking() -> Iterator[Talk | None]:
        while ready or going:
            yield ready.popleft() if ready else None

    def begin(talk: Talk) -> Session:
        assert talk.prompt is not None
        session = bench.session(method, talk.prompt, talk.longest, Seat(bench.model.decoder.device))
        going[id(talk)] = Written(bench.blank(talk.prompt), session)
        return session

    def over(talk: Talk, error: Exception | None) -> None:
        assert talk.prompt is not None
        one = going.pop(id(talk), None)
        answer = bench.blank(talk.prompt) if one is None else one.answer
        if isinstance(error, MethodError | EngineFault):
            answer.failed(error)
        elif error is not None:
            raise error
        elif one is not None:
            one.over()
            answer.spent["seconds"] = time.perf_counter() - one.began
        answers.append(answer)
        talk.add(answer)
        if talk.prompt is not None:
            ready.appendleft(talk)  # talks that were begun come first

    figures = in_step(asking(), begin, most, each=lambda talk, step: going[id(talk)].add(step), over=over)
    _divide(answers, figures.wall_s, used(before, joules()))
    return figures


def _divide(answers: Sequence[Answer], seconds: float, energy: float | None) -> None:
    """Give each answer its share of what all took, by how long it was written."""
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


class Ahead:
    """The rows of questions that are put to a bench in sets, `batch` answered at a time, and handed out one by one.

    Within a set each method answers all of it before the next one does; which comes first changes from set to set.
    """

    def __init__(self, bench: Several, questions: Sequence[Question], batch: int, say: Callable[[str], None]):
        self.bench = bench
        self.questions = questions
        self.batch = batch
        self.say = say
        self.ready: dict[object, list[Row]] = {}

    def rows(self, question: Question, number: int) -> list[Row]:
        """What every method made of the question that stands in place `number`; with it those behind it are answered."""
        if question.id not in self.ready:
            some = [
                x for x in self.questions[number : number + SETS * self.batch] if not self.bench.too_long(x)
            ]
            talks = self._talks(some, number // (SETS * self.batch))
            for i, one in enumerate(some):
                of = {name: each[i].answers for name, each in talks.items()}
                self.ready[one.id] = self.bench.rows_of(one, of)
        return self.ready.pop(question.id)

    def _talks(self, questions: Sequence[Question], turn: int) -> dict[str, list[Talk]]:
        names, talks = list(self.bench.methods), dict[str, list[Talk]]()
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            self.say(f"{name}: {len(questions)} questions, {self.batch} at a time")
            talks[name] = [Talk(self.bench, x) for x in questions]
            side_by_side(self.bench, talks[name], self.bench.methods[name], self.batch)
        return talks
