"""What parallel decoding costs: questions with a rule, answered on a canvas by several selectors, in passes, rows and right
answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method, MethodError
from decodescope.engine.session.run import encode_text_or_ids
from decodescope.engine.session.session import Session
from decodescope.engine.trace.records.events import Step
from decodescope.engine.trace.records.phases import is_deciding_pass

from .figures.parallel import ONE, ParallelResult, ParallelRow
from .labbench import answer_text, describe_questions, require_tokenizer, run_environment
from .questions.columns import Meter, count_weight_bytes
from .questions.parallel_tasks import (
    LISTS,
    TASKS,
    Oracle,
    chance_at_once,
    is_right_text,
    make_questions,
    right_answers,
)
from .questions.parallel_tasks import ParallelQuestion as Task
from .questions.questions import BenchQuestion, LabBenchError
from .questions.result_file import measure_questions

COUNT, FEWER = 20, 4  # questions of a task, and in the short form
BLOCK = 64  # places: no answer is longer


def _canvas_method(
    selector: str, temperature: float = 0.0, cache: str = "none", block: int = BLOCK, **knobs: Any
) -> Method:
    """A canvas filled by a selector with these knobs, greedily or at a temperature."""
    sampler = {"sampler": "temperature"} if temperature else {}
    drawing = {"sampler": {"temperature": temperature}} if temperature else {}
    given = {"strategy": {"block": block, "cache": cache}, "unmasking": knobs, **drawing}
    return Method.from_names({"strategy": "masked", "unmasking": selector, **sampler}, given)


def default_methods(heads: Collection[str] = ()) -> dict[str, Method]:
    """What is measured unless methods are named, of a model with these heads. More steps than a block has places are one place
    a pass."""
    trained = {
        "learn2pd": _canvas_method("learn2pd"),
        "learn2pd (filter alone)": _canvas_method("learn2pd", cut_after_end=False),
    }
    return {
        ONE: _canvas_method("low_confidence", steps=1024),
        "random order": _canvas_method("random", steps=1024),
        "left to right": _canvas_method("low_confidence", block=1, steps=1),
        "four passes": _canvas_method("low_confidence", steps=4),
        "two passes": _canvas_method("low_confidence", steps=2),
        "all at once": _canvas_method("low_confidence", steps=1),
        "all at once (drawn)": _canvas_method("low_confidence", temperature=1.0, steps=1),
        "one place a pass (drawn)": _canvas_method("random", temperature=1.0, steps=1024),
        "threshold": _canvas_method("threshold"),
        "threshold 0.7": _canvas_method("threshold", tau=0.7),
        "threshold (factor 1)": _canvas_method("threshold", factor=1.0),
        "local_leap": _canvas_method("local_leap"),
        "explore": _canvas_method("explore"),
        "threshold (blocks of 4)": _canvas_method("threshold", block=4),
        "threshold (prefix cache)": _canvas_method("threshold", cache="prefix", block=4),
        "threshold (dual cache)": _canvas_method("threshold", cache="dual", block=4),
        **(trained if "learn2pd" in heads else {}),
    }


def all_methods() -> dict[str, Method]:
    """All that may be chosen by name: what is measured of a model with every head."""
    return default_methods(("learn2pd",))


class ParallelBench:
    """A model that reads both sides, and methods by name, the first of which is `ONE` unless they are given.

    count: questions of each task;  tasks: by id, made anew by rule.  Raises MethodError if a method cannot run here,
    LabBenchError if the model has no tokenizer.
    """

    def __init__(
        self, model: Model, methods: Mapping[str, Method] | None = None, *, count: int = COUNT, seed: int = 0
    ):
        self.model, self.seed = model, seed
        self.methods = default_methods(model.spec.heads) if methods is None else dict(methods)
        require_tokenizer(model)
        for method in self.methods.values():
            method.check(model.spec)
            if method.lanes:
                raise LabBenchError(
                    "bench parallel measures what one model writes: leave methods with a draft model out."
                )
        self.tasks: dict[str, Task] = {
            f"{x.task} {i + 1}": x for i, x in enumerate(make_questions(TASKS, count, seed))
        }

    def questions(self) -> list[BenchQuestion]:
        """What is asked, in the form of the other measurements."""
        return [BenchQuestion(name, task.task, (task.prompt,)) for name, task in self.tasks.items()]

    def settings(self) -> dict[str, Any]:
        """What the figures depend on, as plain data, and the closed form of each question."""
        chosen = {name: method.record() for name, method in self.methods.items()}
        weights = dict.fromkeys(self.methods, count_weight_bytes([self.model]))
        forms = {name: question_chance(task) for name, task in self.tasks.items()}
        settings = {
            **run_environment(self.model),
            "methods": chosen,
            "seed": self.seed,
            "at_once": forms,
            "weights": weights,
        }
        return {**settings, "chat": False}

    def rows(self, question: BenchQuestion, turn: int) -> list[ParallelRow]:
        """What every method makes of a question; they take turns beginning with number `turn`."""
        names = list(self.methods)
        shift = turn % len(names)
        rows = {name: self.row(question, name) for name in [*names[shift:], *names[:shift]]}
        return [rows[name] for name in names]

    @torch.inference_mode()
    def row(self, question: BenchQuestion, name: str) -> ParallelRow:
        """What one method makes of it, on a canvas with a place more than a right answer has, for the end."""
        task = self.tasks[str(question.id)]
        row = ParallelRow(question.id, task.task, name, task.length, task.slots)
        prompt = encode_text_or_ids(self.model, task.prompt)
        try:
            session = Session(
                self.model,
                self.methods[name],
                prompt,
                max_new_tokens=task.slots + 1,
                seed=self.seed,
                level="summary",
            )
            meter, steps = Meter(session.header), list[Step]()
            meter.add_prompt(session.start())
            for step in session.stream():
                meter.add(step)
                steps.append(step)
        except (EngineFault, MethodError) as error:
            return replace(row, fault=str(error))
        tokens = [token for step in steps for token in step.emitted]
        passes = [one for step in steps for one in step.passes if is_deciding_pass(one)]
        said = answer_text(self.model, tokens)
        return replace(
            row,
            tokens=len(tokens),
            right=is_right_text(task, said),
            said=said,
            passes=len(passes),
            fed=sum(one.tokens for one in passes),
            seconds=sum(step.wall_us for step in steps) / 1e6,
            spent=meter.totals(len(tokens)),
        )


def question_chance(task: Task) -> float:
    """The chance of a right answer when a perfect model of the right answers draws all slots at once. A shuffle's closed form
    is that of a model of all orders, the list's own among them."""
    if task.task in LISTS and task.task != "shuffle":
        return float(chance_at_once(task.task, task.length))
    return float(Oracle(right_answers(task)).chance_at_once(task))


def measure_parallel(
    bench: ParallelBench,
    *,
    out: Path | None = None,
    resume: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> ParallelResult:
    """Put every question to every method. The rest as for `gather`, which may be interrupted: what there is until then is
    returned."""
    asked = bench.questions()
    result = ParallelResult({**bench.settings(), "questions": describe_questions(asked, {})})

    def work(i: int, question: BenchQuestion) -> tuple[Sequence[ParallelRow], str]:
        return bench.rows(question, i), ""

    def ready(question: BenchQuestion) -> None:
        for name in bench.methods:
            bench.row(question, name)

    measure_questions(result, asked, work, ready=ready, out=out, resume=resume, say=say)
    return result
