"""The cost and gain of two models: every router at several thresholds, on questions with known answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from decodescope.engine.core.roles import TARGET
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.cost.cost import cost_of, look_ops
from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method, MethodError
from decodescope.engine.trace.details.looks import Look
from decodescope.engine.trace.records.events import Level, Pass

from .cascade_grid import KEPT, WARM, HeldOutAnswers, router_method
from .figures.cascade import SMALL, CascadeResult, CascadeRow
from .figures.labbench import BASELINE
from .labbench import Bench, describe_questions, with_baseline
from .questions.questions import BenchQuestion, LabBenchError
from .questions.result_file import measure_questions
from .talk import RecordedAnswer, TurnAnswer

SHORT = 2  # questions of a kind in the short form
# (strategy, router) -> thresholds: of answers where no question was held out
THRESHOLDS: dict[tuple[str, str], tuple[float, ...]] = {
    ("switch", "entropy"): (0.5, 1.0, 2.0, 4.0),
    ("switch", "fallback"): (0.3, 0.5, 0.7, 0.9),
    ("cascade", "entropy"): (0.1, 0.25, 0.5, 1.0),
    ("cascade", "answer_confidence"): (0.6, 0.8, 0.9, 0.95),
    ("cascade", "trained_confidence"): (0.3, 0.5, 0.7, 0.9),
    ("cascade", "agreement"): (0.4, 0.6, 0.8, 1.0),
    ("cascade", "references"): (0.25, 0.5, 0.75, 1.0),
    ("cascade", "expected_cost"): (0.25, 0.5, 1.0, 2.0),
}
FIRST = ", small first"  # the switch that begins with the small model
UNPAIRED = (
    "references compares with labelled pairs, and too few questions were held out: give some as router.pairs."
)


class CascadeBench(Bench):
    """A large and a small model, and routed methods by name, compared with the large model alone.

    It has all routers unless methods are given. All methods are greedy except those whose samples vote. held: questions that
    are not asked; they show which thresholds the answers need, and give labelled pairs. left_out: name -> why a method cannot
    run here. Raises MethodError if a given method cannot run, LabBenchError if the model has no tokenizer, or a method does not
    let two models write.
    """

    def __init__(
        self,
        model: Model,
        draft: Model,
        methods: Mapping[str, Method] | None = None,
        *,
        held: Sequence[BenchQuestion] = (),
        seed: int = 0,
        new_tokens: int | None = None,
    ):
        alone = [name for name, method in (methods or {}).items() if "router" not in method.strategy.uses]
        if alone:
            raise LabBenchError(
                f"bench cascade measures what a router decides: leave {alone[0]} out, or give it one."
            )
        super().__init__(model, methods or {}, draft, seed=seed, new_tokens=new_tokens)
        self.left_out: dict[str, str] = {}
        self.held = HeldOutAnswers(self, held)
        if methods is None:
            self.methods |= with_baseline(self._default_methods(), self.temperature)
        for method in self.methods.values():
            if method.lanes:
                method.check_models({"draft": draft.spec})
        voting = {
            name for name, x in self.methods.items() if "router" in x.strategy.uses and x.router.copies > 1
        }
        self.methods |= {name: replace(self.methods[name], sampler=Temperature(WARM)) for name in voting}

    def _default_methods(self) -> dict[str, Method]:
        """The small model alone, and every router at its thresholds; `left_out` gets the reasons why some cannot run here."""
        alone = {
            "tau": 0.0,
            "samples": 1,
            "second_prompt_suffix": "",
        }  # one answer, which stays and is looked at by nobody
        methods = {SMALL: router_method("cascade", "agreement", alone)}
        for (strategy, router), taus in THRESHOLDS.items():
            knobs = (
                {"pairs": pairs} if router == "references" and (pairs := self.held.labelled_pairs()) else {}
            )
            name = f"{strategy}: {router}"
            if router == "references" and not knobs:
                self.left_out[name] = UNPAIRED
                continue
            try:
                method = router_method(strategy, router, knobs)
                method.check(self.model.spec, self.models(method))
                method.check_models({"draft": self._small_spec})
            except MethodError as error:
                self.left_out[name] = str(error)
                continue
            held = self.held.thresholds(router, knobs) if strategy == "cascade" else []
            methods |= {
                f"{name} {tau:g}": router_method(strategy, router, {**knobs, "tau": tau})
                for tau in held or taus
            }
            if router == "entropy" and strategy == "switch":
                small = {**knobs, "first_model": "small"}
                methods |= {
                    f"{name} {tau:g}{FIRST}": router_method(strategy, router, {**small, "tau": tau})
                    for tau in taus
                }
        return methods

    def new_answer(self, prompt: list[int]) -> TurnAnswer:
        return RecordedAnswer(prompt)

    def trace_level(self, method: Method) -> Level:
        """Record decisions too: what a router looked at is priced from them."""
        return "decisions" if "router" in method.strategy.uses else "summary"

    def settings(self) -> dict[str, Any]:
        held = {"questions": [x.id for x in self.held.held], "kept": KEPT}
        return {**super().settings(), "left_out": self.left_out, "held": held}

    def figures(self, question: BenchQuestion) -> list[CascadeRow]:
        """The rows of every method for a question."""
        talks = {name: self.talk(question, method) for name, method in self.methods.items()}
        return [self._row(question, name, talk, talks[BASELINE]) for name, talk in talks.items()]

    def _row(
        self, question: BenchQuestion, name: str, talk: list[TurnAnswer], plain: list[TurnAnswer]
    ) -> CascadeRow:
        whole = self.row(question, name, talk, plain)
        fault = next((x.fault for x in talk if x.fault), "")
        row = CascadeRow(question.id, question.kind, name, whole.score, fault=fault)
        if fault:
            return row
        counted = [x for x in talk if isinstance(x, RecordedAnswer)]
        passes = [
            one for x in counted for one in (*x.read, *(one for step in x.records for one in step.passes))
        ]
        looks = [look for x in counted for step in x.records for look in step.looks or ()]
        origins = [origin for x in counted for step in x.records for origin in step.origins]
        return replace(
            row,
            tokens=len(origins),
            spent=whole.spent,
            theirs=origins.count(TARGET),
            large=_flops(
                self.model.spec,
                [x for x in passes if x.lane == TARGET],
                [x for x in looks if x.lane == TARGET],
            ),
            small=_flops(
                self._small_spec,
                [x for x in passes if x.lane != TARGET],
                [x for x in looks if x.lane != TARGET],
            ),
        )

    @property
    def _small_spec(self) -> Any:
        assert self.draft is not None
        return self.draft.spec


def _flops(spec: ModelSpec, passes: Sequence[Pass], looks: Sequence[Look]) -> float:
    """FLOPs of a model's passes, and of what a router computed from its distributions and states."""
    return float(
        sum(cost_of(spec, x).flops for x in passes) + sum(op.flops for x in looks for op in look_ops(spec, x))
    )


def measure_cascade(
    bench: CascadeBench,
    questions: Sequence[BenchQuestion],
    *,
    asked: Mapping[str, Any] | None = None,
    out: Path | None = None,
    resume: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> CascadeResult:
    """Put every question to every method.

    Other arguments are those of `gather`, which may be interrupted: then the result so far is returned.
    """
    result = CascadeResult({**bench.settings(), "questions": describe_questions(questions, asked)})

    def work(i: int, question: BenchQuestion) -> tuple[Sequence[CascadeRow], str]:
        why = bench.skip_reason(question)
        return ([], why) if why else (bench.figures(question), "")

    measure_questions(result, questions, work, ready=lambda question: None, out=out, resume=resume, say=say)
    return result
