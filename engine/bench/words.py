"""The effect of samplers and searches on a model's words.

It measures right answers, answers in the requested form, repetition, how surprising the words are, and their cost.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from decodescope.engine.core.arithmetic import evaluate_expression
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.policy import CachePolicy
from decodescope.engine.decoding.bases.sampler import Sampler
from decodescope.engine.methods.samplers.chain import chain_samplers
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method, MethodError
from decodescope.engine.trace.query.repeats import GRAM, repeated_share
from decodescope.engine.trace.records.events import Level
from decodescope.engine.trace.records.phases import is_deciding_pass

from .figures.labbench import BASELINE
from .figures.words import WordsResult, WordsRow
from .labbench import Bench, answer_losses, ask_questions, describe_questions
from .questions.questions import BenchQuestion
from .questions.score import parse_json
from .talk import RecordedAnswer, TurnAnswer

SHORT = 2  # questions of a kind in the short form
# name -> parts by kind, and knobs: a method a line, each with its usual knobs unless some are said
METHODS: dict[str, tuple[dict[str, str | Iterable[str]], dict[str, Any]]] = {
    "temperature": ({"sampler": "temperature"}, {"sampler.temperature": 1.0}),
    "temperature 0.5": ({"sampler": "temperature"}, {"sampler.temperature": 0.5}),
    "top_p": ({"sampler": "top_p"}, {}),
    "min_p": ({"sampler": "min_p"}, {}),
    "locally_typical": ({"sampler": "locally_typical"}, {}),
    "mirostat": ({"sampler": "mirostat"}, {}),
    "mirostat1": ({"sampler": "mirostat1"}, {}),
    "momentum": ({"sampler": "momentum"}, {}),
    "grammar": ({"sampler": ("grammar", "greedy")}, {}),
    "grammar (drawn)": ({"sampler": "grammar"}, {}),
    "aligned": ({"strategy": "aligned", "sampler": "grammar"}, {}),
    "contrastive": ({"guidance": "contrastive"}, {}),
    "contrastive_search": ({"strategy": "contrastive_search"}, {}),
    "beam": ({"strategy": "beam"}, {}),
    "diverse_beam": ({"strategy": "diverse_beam"}, {}),
    "consensus": ({"strategy": "consensus", "sampler": "temperature"}, {}),
    "exact_extract": ({"strategy": "exact_extract"}, {}),
    "planned": ({"strategy": "planned"}, {}),
}


@dataclass(frozen=True)
class AnswerForm:
    """The form of an answer of a kind, as a grammar in its dialect.

    A question asks for it if its references have it.
    """

    dialect: str
    text: str

    def fits(self, said: str) -> bool:
        """Whether a text has the form, checked by other means than those that constrain a text to it."""
        if self.dialect == "json":
            value = parse_json(said)
            return value is not None and isinstance(value[0], dict)
        return re.fullmatch(self.text, said) is not None


FORMS = {
    "math": AnswerForm("regex", r"\d+ [+*/-] \d+ = \d+(, \d+ [+*/-] \d+ = \d+)*(\. Answer: \d+)?"),
    "retrieval": AnswerForm("regex", r"[a-z0-9]+(, [a-z0-9]+)*"),
    "lists": AnswerForm("regex", r"[A-Za-z0-9]+(, [A-Za-z0-9]+)*"),
    "expression": AnswerForm("regex", r"[0-9 ()+*/=.-]+(\n[0-9 ()+*/=.-]+)*"),
    "json": AnswerForm("json", json.dumps({"type": "object"})),
}
FILLED = ("dialect", "definition")  # the knobs of a sampler that takes a grammar
TESTS = "tests"  # the knob of a strategy that looks for a text by tests
ANY = AnswerForm("regex", r"(.|\n)*")  # of a question that asks for no form


def question_form(question: BenchQuestion) -> AnswerForm | None:
    """The form that a question asks for; None: for none."""
    form = FORMS.get(question.kind)
    return (
        form
        if form is not None and question.references and all(map(form.fits, question.references))
        else None
    )


def with_form(method: Method, form: AnswerForm | None) -> Method:
    """The method with the grammar of the form, if it has a grammar that nobody has written."""
    if not method.sampler.constrains:
        return method
    return replace(
        method, sampler=chain_samplers([_fill_stage(stage, form or ANY) for stage in method.sampler.in_order])
    )


def _fill_stage(stage: Sampler, form: AnswerForm) -> Sampler:
    """The stage with the grammar of the form, if nobody has written its grammar; other stages unchanged."""
    usual = {knob.name: knob.default for knob in stage.params()}
    if not {*FILLED} <= {*usual} or any(getattr(stage, name) != usual[name] for name in FILLED):
        return stage
    filled = copy(stage)
    for name, value in zip(FILLED, (form.dialect, form.text), strict=True):
        setattr(filled, name, value)
    return filled


def with_tests(method: Method, question: BenchQuestion) -> Method:
    """The method with tests for this question, if it has tests that nobody has written.

    The tests are the value of the answer's expression; none where no expression is asked for.
    """
    knobs = {knob.name: knob.default for knob in method.strategy.params()}
    written = TESTS not in knobs or getattr(method.strategy, TESTS) != knobs[TESTS]
    if written or question.scorer != "expression" or len(question.turns) > 1:
        return method
    filled = copy(method.strategy)
    setattr(filled, TESTS, str(evaluate_expression(question.references[0])))
    return replace(method, strategy=filled)


def default_methods() -> dict[str, Method]:
    """All that is measured unless methods are named."""
    return {name: Method.from_names(*parts) for name, parts in METHODS.items()}


class WordsBench(Bench):
    """A model, further ones by role, and methods by name, compared with plain greedy decoding.

    Each method has samplers of its own. It has all of METHODS unless some are given. left_out: name -> why one of those cannot
    run here. Raises MethodError if a given method cannot run, LabBenchError if the model has no tokenizer.
    """

    def __init__(
        self,
        model: Model,
        methods: Mapping[str, Method] | None = None,
        further: Mapping[str, Model] | None = None,
        *,
        seed: int = 0,
        new_tokens: int | None = None,
    ):
        super().__init__(model, {}, seed=seed, new_tokens=new_tokens, further=further)
        self.left_out: dict[str, str] = {}
        for name, method in (default_methods() if methods is None else methods).items():
            try:
                with_form(method, None).check(model.spec, self.models(method))
            except MethodError as error:
                if methods is not None:
                    raise
                self.left_out[name] = str(error)
            else:
                self.methods[name] = method
        self._lanes: tuple[Any, dict[tuple[int, ...], Lane]] = (None, {})

    def settings(self) -> dict[str, Any]:
        forms = {kind: [form.dialect, form.text] for kind, form in FORMS.items()}
        return {**super().settings(), "left_out": self.left_out, "forms": forms}

    def new_answer(self, prompt: list[int]) -> TurnAnswer:
        return RecordedAnswer(prompt)

    def trace_level(self, method: Method) -> Level:
        """Record decisions where masks are made: they hold the time of the masks."""
        return "decisions" if method.sampler.constrains else "summary"

    def talk(
        self, question: BenchQuestion, method: Method, new_tokens: int | None = None
    ) -> list[TurnAnswer]:
        return super().talk(
            question, with_tests(with_form(method, question_form(question)), question), new_tokens
        )

    def figures(self, question: BenchQuestion, turn: int) -> list[WordsRow]:
        """The rows of every method for a question; for `turn` see `talks`."""
        talks = self.talks(question, turn)
        return [self._row(question, name, talks[name], talks[BASELINE]) for name in self.methods]

    def _row(
        self, question: BenchQuestion, name: str, talk: list[TurnAnswer], plain: list[TurnAnswer]
    ) -> WordsRow:
        whole, form = self.row(question, name, talk, plain), question_form(question)
        row = WordsRow(question.id, question.kind, name, whole.score, fault=whole.fault)
        if whole.fault:
            return replace(row, fits=None if form is None else False)
        steps = [step for x in talk if isinstance(x, RecordedAnswer) for step in x.records]
        passes = [one for step in steps for one in step.passes]
        masks = [x["mask_us"] for step in steps if (x := step.sampler) is not None and "mask_us" in x]
        grams = [max(0, len(x.tokens) - GRAM + 1) for x in talk]
        return replace(
            row,
            tokens=whole.tokens,
            fits=None if form is None else all(map(form.fits, whole.said)),
            grams=sum(grams),
            again=sum(round(n * repeated_share(x.tokens)) for n, x in zip(grams, talk, strict=True)),
            bits=sum(self.surprise(question, x) for x in talk),
            passes=sum(map(is_deciding_pass, passes)),
            fed=sum(one.tokens * one.batch for one in passes),
            mask_s=sum(masks) / 1e6 if masks else None,
            seconds=whole.decode_s,
            spent=whole.spent,
        )

    @torch.inference_mode()
    def surprise(self, question: BenchQuestion, answer: TurnAnswer) -> float:
        """-log2 of the probability of an answer under the model's own distribution, whatever it was written with.

        A prompt is read once for all methods of a question.
        """
        if self._lanes[0] != question.id:
            self._lanes = (question.id, {})
        lane = self._lanes[1].get(key := tuple(answer.prompt))
        if lane is None:
            lane = self._lanes[1][key] = Lane("target", self.model.decoder, CachePolicy())
            if len(answer.prompt) > 1:
                lane.read(answer.prompt[:-1])
        if not answer.tokens:
            return 0.0
        losses = answer_losses(lane, answer.prompt, answer.tokens)
        lane.rollback()
        return float(losses.sum()) / math.log(2)


def measure_words(
    bench: WordsBench,
    questions: Sequence[BenchQuestion],
    *,
    asked: Mapping[str, Any] | None = None,
    out: Path | None = None,
    resume: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> WordsResult:
    """Put every question to every method.

    Other arguments are those of `gather`, which may be interrupted: then the result so far is returned.
    """
    result = WordsResult({**bench.settings(), "questions": describe_questions(questions, asked)})
    ask_questions(bench, result, questions, bench.figures, out=out, resume=resume, say=say)
    return result
