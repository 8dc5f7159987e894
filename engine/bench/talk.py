"""Talk: a question's turns and their answers, and an answer while a session writes it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.session.method import MethodError
from decodescope.engine.session.session import Session
from decodescope.engine.trace.records.auxiliary_nodes import drafted_depths
from decodescope.engine.trace.records.events import Pass, Prefill, Step
from decodescope.engine.trace.records.phases import is_deciding_pass

from .questions.columns import Meter, Spent
from .questions.questions import BenchQuestion


@dataclass
class TurnAnswer:
    """One turn's answer and its cost.

    offered, reached: by depth in the draft, from 1: steps whose draft was so deep, and steps that accepted so far
    kv_bytes: the most that all caches held after the prompt or a step; step_kv_bytes: after a step
    fault: why there is no whole answer;  spent: of a whole answer, the measurements from which the six columns follow
    """

    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    end: str = ""
    fault: str = ""
    steps: int = 0
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    offered: list[int] = field(default_factory=list)
    reached: list[int] = field(default_factory=list)
    kv_bytes: int = 0
    step_kv_bytes: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    spent: Spent = field(default_factory=dict)

    def add_prompt(self, began: Prefill) -> None:
        """Count the cost of the prompt."""
        self.prefill_s = began.wall_us / 1e6
        self.kv_bytes = sum(c.held_bytes for c in began.cache)

    def add(self, step: Step, last: bool) -> None:
        """Count a step; in the `last` one the part of the draft behind the text's end was never tried."""
        self.steps += 1
        self.tokens += step.emitted
        self.passes += sum(map(is_deciding_pass, step.passes))
        self.drafted += step.drafted
        self.accepted += step.accepted
        deep = max(drafted_depths(step.draft), default=0)
        deep = min(deep, len(step.emitted)) if last else deep
        for counts, reach in ((self.offered, deep), (self.reached, min(step.accepted, deep))):
            counts += [0] * (deep - len(counts))
            for i in range(reach):
                counts[i] += 1
        self.step_kv_bytes = max(self.step_kv_bytes, sum(c.held_bytes for c in step.cache))
        self.kv_bytes = max(self.kv_bytes, self.step_kv_bytes)
        self.decode_s += step.wall_us / 1e6

    def record_fault(self, error: MethodError | EngineFault) -> None:
        """Record why there is no whole answer."""
        self.end, self.fault = getattr(error, "reason", "bad_input"), str(error)


@dataclass
class RecordedAnswer(TurnAnswer):
    """An answer that keeps its passes, so that they can be priced.

    read: the passes that read the prompt;  records: the steps
    """

    read: list[Pass] = field(default_factory=list)
    records: list[Step] = field(default_factory=list)

    def add_prompt(self, began: Prefill) -> None:
        """Count the cost of the prompt, and keep its passes."""
        super().add_prompt(began)
        self.read += began.passes

    def add(self, step: Step, last: bool) -> None:
        """Count a step, and keep it."""
        super().add(step, last)
        self.records.append(step)


class PromptRenderer(Protocol):
    """Renders prompts, and decodes answers."""

    def prompt(self, question: BenchQuestion, said: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a talk up to where the model answers."""
        ...

    def text(self, tokens: list[int]) -> str:
        """The text of an answer, without what ends it."""
        ...

    def max_answer_tokens(self, question: BenchQuestion) -> int:
        """The most tokens that an answer to the question may have."""
        ...


class Talk:
    """A question's talk, turn by turn: later prompts contain the model's own answers, and a fault ends it.

    prompt: token ids that ask for the next answer; None: it is over
    """

    def __init__(self, bench: PromptRenderer, question: BenchQuestion, longest: int | None = None):
        self.bench = bench
        self.question = question
        self.longest = longest or bench.max_answer_tokens(question)
        self.said: list[dict[str, str]] = []
        self.answers: list[TurnAnswer] = []
        self.prompt: list[int] | None = None
        self._ask()

    @property
    def current_prompt(self) -> list[int]:
        """The prompt, of a talk that is not over."""
        assert self.prompt is not None
        return self.prompt

    def _ask(self) -> None:
        self.said.append({"role": "user", "content": self.question.turns[len(self.answers)]})
        self.prompt = self.bench.prompt(self.question, self.said)

    def add(self, answer: TurnAnswer) -> None:
        """Take an answer, and go on to the next turn if there is one."""
        self.answers.append(answer)
        self.prompt = None
        if not answer.fault and len(self.answers) < len(self.question.turns):
            self.said.append({"role": "assistant", "content": self.bench.text(answer.tokens)})
            self._ask()


class AnswerWriter:
    """An answer while its session writes it."""

    def __init__(self, answer: TurnAnswer, session: Session):
        self.answer = answer
        self.session = session
        self.began = time.perf_counter()
        self.meter = Meter(session.header)

    def add(self, step: Step) -> None:
        """Count a step; with the first one also the cost of the prompt."""
        if not self.answer.steps:
            assert self.session.prefilled is not None
            self.meter.add_prompt(self.session.prefilled)
            self.answer.add_prompt(self.session.prefilled)
        self.answer.add(step, self.session.is_done)
        self.meter.add(step)

    def finish(self) -> None:
        """Record why it ended, and its cost."""
        assert self.session.end is not None
        self.answer.end = self.session.end.reason
        self.answer.spent = self.meter.totals(len(self.answer.tokens))
