"""The cost and savings of fewer layers: every depth rule, lossy and checked, on questions with known answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from decodescope.engine.core.component import parse_component, registry
from decodescope.engine.core.roles import TARGET
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.cost.cost import DTYPE_BITS, cost_of
from decodescope.engine.decoding.bases.adaptive_depth import AdaptiveDepth
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method, MethodError
from decodescope.engine.trace.records.events import Pass, Step
from decodescope.engine.trace.records.passes import resolve_layers
from decodescope.engine.trace.records.phases import is_deciding_pass

from .figures.depth import CHECKED, STAIRS, DepthResult, DepthRow
from .figures.labbench import BASELINE
from .labbench import Bench, ask_questions, describe_questions
from .questions.questions import BenchQuestion, LabBenchError
from .talk import RecordedAnswer, TurnAnswer

SHORT = 2  # questions of a kind in the short form


def depth_rules(spec: ModelSpec) -> dict[str, str]:
    """Name -> the words of a rule, for every rule that changes texts, with its default knobs unless others are given."""
    n = spec.n_layers
    few = round(0.6 * n)
    first = few - few // 2  # of the layers left out
    fixed = "skip=" + ",".join(f"l{i}" for i in range(first, first + n - few))
    lossy = [
        name
        for name, part in registry("adaptive_depth").items()
        if part.listed and not cast(type[AdaptiveDepth], part).exact
    ]
    return {
        **{name: name for name in lossy if name not in ("skipdecode", "layer_plan")},
        "confidence_exit every 2nd": "confidence_exit interval=2",
        "confidence_exit once": f"confidence_exit min_layers={max(1, 3 * n // 4)} interval={min(64, n)}",
        "confidence_exit 0.7": "confidence_exit threshold=0.7",
        "confidence_exit, trained exits": "confidence_exit heads=exits",
        "confidence_exit, classifier": "confidence_exit criterion=meta heads=exits",
        STAIRS: f"skipdecode min_layers={few} max_layers={few}",
        "layer_plan 60 %": f"layer_plan {fixed}",
    }


def default_methods(model: Model) -> tuple[dict[str, Method], dict[str, str]]:
    """Every rule of `depth_rules` as `measure_depth`, and as `early_exit.criterion`; and why some cannot run here."""
    methods: dict[str, Method] = {}
    left_out: dict[str, str] = {}
    for name, words in depth_rules(model.spec).items():
        lossy: dict[str, Any] = {"adaptive_depth": parse_component("adaptive_depth", words, name)}
        checked = {"drafter": "early_exit"}, {"drafter": {"criterion": words}}
        makers: dict[str, Callable[[], Method]] = {
            name: partial(Method, **lossy),
            name + CHECKED: partial(Method.from_names, *checked),
        }
        for called, make in makers.items():
            try:
                method = make()
                method.check(model.spec)
            except MethodError as error:
                left_out[called] = str(error)
            else:
                methods[called] = method
    return methods, left_out


class DepthBench(Bench):
    """A model, and methods by name, compared with plain decoding; all rules unless methods are given.

    left_out: name -> why a rule cannot run here. Raises MethodError if a given method cannot run, LabBenchError if the model
    has no tokenizer, or a method reads a further model.
    """

    def __init__(
        self,
        model: Model,
        methods: Mapping[str, Method] | None = None,
        *,
        seed: int = 0,
        new_tokens: int | None = None,
    ):
        chosen, self.left_out = default_methods(model) if methods is None else (dict(methods), {})
        if any(method.lanes for method in chosen.values()):
            raise LabBenchError(
                "bench depth measures what one model writes: leave methods with a draft model out."
            )
        super().__init__(model, chosen, seed=seed, new_tokens=new_tokens)

    def new_answer(self, prompt: list[int]) -> TurnAnswer:
        return RecordedAnswer(prompt)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "left_out": self.left_out}

    def figures(self, question: BenchQuestion, turn: int) -> list[DepthRow]:
        """The rows of every method for a question; for `turn` see `talks`."""
        talks = self.talks(question, turn)
        return [self._row(question, name, talks[name], talks[BASELINE]) for name in self.methods]

    def _row(
        self, question: BenchQuestion, name: str, talk: list[TurnAnswer], plain: list[TurnAnswer]
    ) -> DepthRow:
        whole = self.row(question, name, talk, plain)
        fault = next((x.fault for x in talk if x.fault), "")
        row = DepthRow(question.id, question.kind, name, whole.score, fault=fault)
        if fault:
            return row
        steps = [step for x in talk if isinstance(x, RecordedAnswer) for step in x.records]
        passes = [(one, step) for step in steps for one in step.passes if one.lane == TARGET]
        pairs = [*zip(talk, plain, strict=False)]
        return replace(
            row,
            tokens=sum(len(x.tokens) for x in talk),
            equal=sum(a == b for x, y in pairs for a, b in zip(x.tokens, y.tokens, strict=False)),
            longer=sum(max(len(x.tokens), len(y.tokens)) for x, y in pairs),
            layers=sum(layer_rows(self.model.spec, one) for one, _ in passes),
            flops=float(sum(self._flops(one, step) for one, step in passes)),
            passes=sum(is_deciding_pass(one) for one, _ in passes),
            seconds=sum(x.decode_s for x in talk),
            spent=whole.spent,
        )

    def _flops(self, one: Pass, step: Step) -> int:
        tree = step.draft if is_deciding_pass(one) and step.draft is not None and step.draft.parents else None
        bits = DTYPE_BITS[str(self.model.decoder.dtype).removeprefix("torch.")]
        return cost_of(self.model.spec, one, draft=tree, bits=bits).flops


def layer_rows(spec: ModelSpec, one: Pass) -> float:
    """Rows times layers that a pass ran; an attention or a feed-forward block counts as a half."""
    rows = one.rows or [one.tokens] * spec.n_layers
    ran = [resolve_layers(x, range(spec.n_layers)) for x in (one.attn, one.ffn)]
    return sum(rows[i] for part in ran for i in part) / 2


def measure_depth(
    bench: DepthBench,
    questions: Sequence[BenchQuestion],
    *,
    asked: Mapping[str, Any] | None = None,
    out: Path | None = None,
    resume: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> DepthResult:
    """Put every question to every method.

    Other arguments are those of `gather`, which may be interrupted: then the result so far is returned.
    """
    result = DepthResult({**bench.settings(), "questions": describe_questions(questions, asked)})
    ask_questions(bench, result, questions, bench.figures, out=out, resume=resume, say=say)
    return result
