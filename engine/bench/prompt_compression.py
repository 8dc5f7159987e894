"""Prompt compressions: what each reads of a prompt, the price of the right answer then, and the time to the first token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from decodescope.engine.cost.cost import DTYPE_BITS, cost_of
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.policy import CachePolicy
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method, MethodError
from decodescope.engine.session.session import Session
from decodescope.engine.trace.records.events import Prefill

from .figures.prompt_compression import PromptCompressionResult, PromptCompressionRow
from .labbench import Bench, answer_losses, ask_questions, describe_questions
from .questions.questions import BenchQuestion

SHORT = 2  # questions of a kind in the short form
LEAST = 64  # tokens of a prompt that it is worth to shorten
SHARES = (0.75, 0.5, 0.25)
# context -> its knobs for a share of the prompt that is read
CONTEXTS: dict[str, Callable[[float], dict[str, Any]]] = {
    "selective_context": lambda share: {"prompt_compression.reduce_ratio": round(1 - share, 4)},
    "llmlingua": lambda share: {"prompt_compression.keep_rate": share},
    "specpc": lambda share: {"prompt_compression.budget_share": share},
    "gemfilter": lambda share: {"prompt_compression.budget_share": share},
}


def default_methods() -> dict[str, Method]:
    """The methods that are measured unless methods are given: each prompt compression at each share."""
    methods: dict[str, Method] = {}
    for context, knobs in CONTEXTS.items():
        methods |= {
            f"{context} {share:g}": Method.from_names({"prompt_compression": context}, knobs(share))
            for share in SHARES
        }
    return methods


class PromptCompressionBench(Bench):
    """A model, further ones by role, and methods by name, compared with one that reads the whole prompt.

    It has all of CONTEXTS unless some are given. left_out: name -> why one of those cannot run here. Raises MethodError if a
    given method cannot run, LabBenchError if the model has no tokenizer.
    """

    def __init__(
        self,
        model: Model,
        methods: Mapping[str, Method] | None = None,
        further: Mapping[str, Model] | None = None,
        *,
        seed: int = 0,
    ):
        super().__init__(model, {}, seed=seed, further=further)
        self.left_out: dict[str, str] = {}
        for name, method in (default_methods() if methods is None else methods).items():
            try:
                method.check(model.spec, self.models(method))
            except MethodError as error:
                if methods is not None:
                    raise
                self.left_out[name] = str(error)
            else:
                self.methods[name] = method

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "left_out": self.left_out}

    def skip_reason(self, question: BenchQuestion) -> str:
        short = len(self.first_prompt(question)) < LEAST
        return f"Its prompt has fewer than {LEAST} tokens." if short else super().skip_reason(question)

    def figures(self, question: BenchQuestion, turn: int) -> list[PromptCompressionRow]:
        """The rows of every method for the question's first turn; they take turns beginning with number `turn`."""
        names = list(self.methods)
        shift, prompt = turn % len(names), self.first_prompt(question)
        rows = {name: self._row(question, name, prompt) for name in names[shift:] + names[:shift]}
        return [rows[name] for name in names]

    def _row(self, question: BenchQuestion, name: str, prompt: list[int]) -> PromptCompressionRow:
        method, row = self.methods[name], PromptCompressionRow(question.id, question.kind, name, len(prompt))
        models = self.models(method)
        try:
            session = Session(
                self.model, method, prompt, models=models, max_new_tokens=1, seed=self.seed, level="summary"
            )
            began = session.start()
            first = session.step()
        except (MethodError, EngineFault) as error:
            row.fault = str(error)
            return row
        row.read, row.first_s = session.prompt, (began.wall_us + first.wall_us) / 1e6
        row.look_s = sum(x.wall_us for x in began.passes if x.phase == "score") / 1e6
        row.flops = self._flops(method, began)
        row.nats = self.reference_nats(question, session.tokens[: session.prompt])
        return row

    def _flops(self, method: Method, began: Prefill) -> float:
        """Operations of all passes that read the prompt, the looks included, by the cost model."""
        specs = {"target": self.model.spec} | {role: x.spec for role, x in self.models(method).items()}
        bits = DTYPE_BITS[str(self.model.decoder.dtype).removeprefix("torch.")]
        return float(sum(cost_of(specs[x.lane], x, bits=bits).flops for x in began.passes))

    @torch.inference_mode()
    def reference_nats(self, question: BenchQuestion, prompt: list[int]) -> float | None:
        """-ln p a token of the first reference behind a prompt, by the model itself; None without one."""
        assert self.model.tokenizer is not None
        answer = self.model.tokenizer.encode_plain(question.references[0]) if question.references else []
        if not answer:
            return None
        lane = Lane("target", self.model.decoder, CachePolicy())
        if len(prompt) > 1:
            lane.read(prompt[:-1])
        return float(answer_losses(lane, prompt, answer).mean())


def measure_prompt_compression(
    bench: PromptCompressionBench,
    questions: Sequence[BenchQuestion],
    *,
    asked: Mapping[str, Any] | None = None,
    out: Path | None = None,
    resume: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> PromptCompressionResult:
    """Put every question to every method.

    Other arguments are those of `gather`, which may be interrupted: then the result so far is returned.
    """
    result = PromptCompressionResult({**bench.settings(), "questions": describe_questions(questions, asked)})
    ask_questions(bench, result, questions, bench.figures, out=out, resume=resume, say=say)
    return result
