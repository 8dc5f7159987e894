"""LabBench: the gains and losses of each composition of methods on questions with known answers, all in one run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.values.tops import TIE
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.methods.samplers.greedy import Greedy
from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.model.forward.executor import EngineFault, Executor
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import SHIPPED, Model
from decodescope.engine.session.method import Method, MethodError
from decodescope.engine.session.run import encode_text_or_ids
from decodescope.engine.session.session import Session
from decodescope.engine.timing.measure import machine_name
from decodescope.engine.trace.records.events import Level

from .batched_answers import BatchedRows
from .clock.contest import common_prefix_length
from .figures.labbench import BASELINE, LabBenchResult, LabBenchRow, sum_by_depth
from .questions.columns import count_weight_bytes, measured_peak, sum_costs
from .questions.questions import BenchQuestion, LabBenchError
from .questions.result_file import BenchResult, R, measure_questions
from .questions.score import score
from .talk import AnswerWriter, Talk, TurnAnswer

QUESTIONS = SHIPPED.parent / "bench" / "labbench.jsonl"
SHORT = 8  # questions of a kind in the short form
ROOM = 16  # tokens that an answer may have beyond its reference
# kind -> longest answer in tokens; more where the reference needs more
LONGEST = {
    "chat": 64, "translation": 96, "summary": 64, "qa": 32, "math": 96, "retrieval": 32, "copy": 160, "edit": 160,
    "lists": 96, "json": 128, "expression": 96, "code": 96,
}  # fmt: skip
OTHERS = 256  # of a kind that is not ours
REMEMBERED = 1024  # rendered prompts
COMPOSITIONS: dict[str, tuple[dict[str, str], dict[str, dict[str, Any]]]] = {
    BASELINE: ({}, {}),
    "prompt_lookup": ({"drafter": "prompt_lookup"}, {}),
    "draft_model": ({"drafter": "draft_model"}, {}),
    "layer_skip": ({"drafter": "layer_skip"}, {}),
    "token_recycling": ({"drafter": "token_recycling"}, {}),
    "streaming_llm": ({"policy": "streaming_llm"}, {"policy": {"recent": 124}}),
    "h2o": ({"policy": "h2o"}, {}),
    "confidence_exit": ({"adaptive_depth": "confidence_exit"}, {}),
}


def default_methods(drafted: bool = True) -> dict[str, Method]:
    """The methods that are compared unless others are named; those with a draft model only if there is one (`drafted`)."""
    methods = {name: Method.from_names(*parts) for name, parts in COMPOSITIONS.items()}
    return {name: method for name, method in methods.items() if drafted or "draft" not in method.lanes}


def with_baseline(methods: Mapping[str, Method], temperature: float) -> dict[str, Method]:
    """The same with plain decoding in front, all with one sampler: greedy at temperature 0."""
    if methods.get(BASELINE, Method()) != Method():
        raise LabBenchError(
            f"The name {BASELINE} is that of plain decoding, which all are compared with: use another."
        )
    sampler = Temperature(temperature) if temperature else Greedy()
    return {
        name: replace(method, sampler=sampler) for name, method in {BASELINE: Method(), **methods}.items()
    }


class Bench:
    """A model, a draft model or none, and compositions by name, which all get the same sampler: greedy, or `temperature`.

    The plain one is always among them. further: more draft models, by role. Raises MethodError if one of the methods cannot
    run here, LabBenchError if the model has no tokenizer.
    """

    def __init__(
        self,
        model: Model,
        methods: Mapping[str, Method] | None = None,
        draft: Model | None = None,
        *,
        temperature: float = 0.0,
        seed: int = 0,
        new_tokens: int | None = None,
        further: Mapping[str, Model] | None = None,
    ):
        require_tokenizer(model)
        self.model = model
        self.draft = draft
        self.seed = seed
        self.new_tokens = new_tokens
        self.temperature, self.further = temperature, dict(further or {})
        self.methods: dict[str, Method] = with_baseline(
            default_methods(draft is not None) if methods is None else methods, temperature
        )
        for method in self.methods.values():
            method.check(model.spec, self.models(method))
        self._ids: dict[tuple[str, ...], list[int]] = {}

    def settings(self) -> dict[str, Any]:
        """What the figures depend on, as plain data."""
        return {
            **run_environment(self.model),
            "draft": None if self.draft is None else self.draft.name,
            "draft_fingerprint": None if self.draft is None else self.draft.fingerprint,
            "further": {
                role: {"name": x.name, "fingerprint": x.fingerprint} for role, x in self.further.items()
            },
            "temperature": self.temperature,
            "seed": self.seed,
            "new_tokens": self.new_tokens,
            "chat": bool(self.model.tokenizer and self.model.tokenizer.has_chat),
            "methods": {name: method.record() for name, method in self.methods.items()},
            "exactness": {name: method.exactness for name, method in self.methods.items()},
            "weights": {
                name: count_weight_bytes([self.model, *self.models(x).values()])
                for name, x in self.methods.items()
            },
        }

    def models(self, method: Method) -> dict[str, Model]:
        """The draft models that `method` reads, by role, as far as they are given."""
        given = self.further | ({} if self.draft is None else {"draft": self.draft})
        return {role: given[role] for role in method.lanes if role in given}

    # ---- one question

    def rows(self, question: BenchQuestion, turn: int = 0) -> list[LabBenchRow]:
        """The rows of every composition for the question, in their order; for `turn` see `talks`."""
        return self.rows_from_talks(question, self.talks(question, turn))

    def rows_from_talks(
        self, question: BenchQuestion, talks: Mapping[str, list[TurnAnswer]]
    ) -> list[LabBenchRow]:
        """The figures of the talks of every composition."""
        return [self.row(question, name, talks[name], talks[BASELINE]) for name in self.methods]

    def talks(self, question: BenchQuestion, turn: int) -> dict[str, list[TurnAnswer]]:
        """The answers of every composition, which take turns beginning with number `turn`.

        So whatever else the machine does meets them all.
        """
        names = list(self.methods)
        shift = turn % len(names)
        return {name: self.talk(question, self.methods[name]) for name in names[shift:] + names[:shift]}

    def talk(
        self, question: BenchQuestion, method: Method, new_tokens: int | None = None
    ) -> list[TurnAnswer]:
        """The answers to all turns; later prompts contain the model's own answers. A fault ends the talk."""
        talk = Talk(self, question, new_tokens)
        while (prompt := talk.prompt) is not None:
            talk.add(self.answer(method, prompt, talk.longest))
        return talk.answers

    def answer(self, method: Method, prompt: list[int], longest: int) -> TurnAnswer:
        """Decode one answer of at most `longest` tokens."""
        answer = self.new_answer(prompt)
        try:
            written = AnswerWriter(answer, self.session(method, prompt, longest))
            for step in written.session.stream():
                written.add(step)
            written.finish()
        except (MethodError, EngineFault) as error:
            answer.record_fault(error)
        return answer

    def session(
        self, method: Method, prompt: list[int], longest: int, executor: Executor | None = None
    ) -> Session:
        """The session that decodes one answer of at most `longest` tokens. Raises MethodError where it cannot."""
        models, level = self.models(method), self.trace_level(method)
        more: dict[str, Any] = dict(seed=self.seed, level=level, executor=executor)
        return Session(self.model, method, prompt, models=models, max_new_tokens=longest, **more)

    def trace_level(self, method: Method) -> Level:
        """The trace level that a method needs."""
        return "decisions" if "drafter" in method.strategy.uses and method.drafter.drafts else "summary"

    def new_answer(self, prompt: list[int]) -> TurnAnswer:
        """A new answer with nothing written yet."""
        return TurnAnswer(prompt)

    def max_answer_tokens(self, question: BenchQuestion) -> int:
        """The most tokens that an answer to the question may have."""
        if self.new_tokens is not None:
            return self.new_tokens
        needed = max((len(encode_text_or_ids(self.model, x)) + ROOM for x in question.references), default=0)
        return max(LONGEST.get(question.kind, OTHERS), needed)

    def first_prompt(self, question: BenchQuestion) -> list[int]:
        """Token ids of the prompt of its first turn."""
        return self.prompt(question, [{"role": "user", "content": question.turns[0]}])

    def skip_reason(self, question: BenchQuestion) -> str:
        """Why the model cannot read the question's first turn; empty if it can."""
        length, spec = len(self.first_prompt(question)), self.model.spec
        return (
            ""
            if length < spec.max_positions
            else f"The prompt has {length} tokens, and the model {spec.reading_limit}."
        )

    def prompt(self, question: BenchQuestion, said: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a talk up to where the model answers: by its chat template, else as plain text.

        Rendering takes longer than a short answer, so the last REMEMBERED prompts are kept.
        """
        assert self.model.tokenizer is not None
        key = tuple(x["content"] for x in said)
        if key not in self._ids:
            chat = self.model.tokenizer.has_chat
            ids = (
                self.model.tokenizer.chat([dict(x) for x in said])
                if chat
                else encode_text_or_ids(self.model, "\n\n".join(key) + "\n\n")
            )
            self._ids[key] = ids
            if len(self._ids) > REMEMBERED:
                del self._ids[next(iter(self._ids))]
        return list(self._ids[key])

    def text(self, tokens: list[int]) -> str:
        """The text of an answer, without what ends it."""
        return answer_text(self.model, tokens)

    def row(
        self, question: BenchQuestion, name: str, talk: list[TurnAnswer], plain: list[TurnAnswer]
    ) -> LabBenchRow:
        """The figures of a talk; `plain`: of the same question by plain decoding."""
        said = [self.text(x.tokens) for x in talk]
        whole = [text for x, text in zip(talk, said, strict=True) if not x.fault]
        method = self.methods[name]
        return LabBenchRow(
            question=question.id,
            kind=question.kind,
            scorer=question.scorer,
            tags=dict(question.tags),
            method=name,
            said=said,
            scores=score_turns(question, whole),
            ends=[x.end for x in talk],
            fault=next((x.fault for x in talk if x.fault), ""),
            prompt_tokens=[len(x.prompt) for x in talk],
            tokens=sum(len(x.tokens) for x in talk),
            kv_bytes=max(x.kv_bytes for x in talk),
            step_kv_bytes=max(x.step_kv_bytes for x in talk),
            identity=self.identity(method, talk, plain) if not self.temperature else None,
            alike=count_matching_tokens(talk, plain),
            steps=sum(x.steps for x in talk),
            passes=sum(x.passes for x in talk),
            drafted=sum(x.drafted for x in talk),
            accepted=sum(x.accepted for x in talk),
            prefill_s=sum(x.prefill_s for x in talk),
            decode_s=sum(x.decode_s for x in talk),
            offered=sum_by_depth(x.offered for x in talk),
            reached=sum_by_depth(x.reached for x in talk),
            spent=sum_costs([x.spent for x in talk if x.spent]),
        )

    def identity(self, method: Method, talk: list[TurnAnswer], plain: list[TurnAnswer]) -> str | None:
        """ "equal" to plain decoding, "tied" (an exact method that parted from it where two logits tie) or "parted"; None
        if one of them did not come to its end."""
        if any(x.fault for x in (*talk, *plain)):
            return None
        if [x.tokens for x in talk] == [x.tokens for x in plain]:
            return "equal"
        tied = method.is_exact and all(is_greedy_up_to_ties(self.model, x.prompt, x.tokens) for x in talk)
        return "tied" if tied else "parted"


def require_tokenizer(model: Model) -> None:
    """Raise LabBenchError for a model without a tokenizer."""
    if model.tokenizer is None:
        raise LabBenchError(
            f"{model.name} has no tokenizer.json, so it cannot read a question: add it to its folder."
        )


def run_environment(model: Model) -> dict[str, Any]:
    """The model and what it ran on, as plain data."""
    device = model.decoder.device
    return {
        "model": model.name,
        "fingerprint": model.fingerprint,
        "machine": machine_name(device),
        "device": str(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "dtype": str(model.decoder.dtype).removeprefix("torch."),
        "peak": measured_peak(model),
    }


def answer_text(model: Model, tokens: Sequence[int]) -> str:
    """The text of an answer of a model with a tokenizer, without what ends it."""
    assert model.tokenizer is not None
    stops = set(model.stop_tokens)
    end = next((i for i, x in enumerate(tokens) if x in stops), len(tokens))
    return model.tokenizer.decode(list(tokens[:end]), specials=False)


def score_turns(question: BenchQuestion, said: Sequence[str]) -> list[float] | None:
    """The score of every turn; of one that was not answered 0; None if the question is not judged."""
    if question.scorer is None:
        return None
    scores = [score(question.scorer, text, due) for text, due in zip(said, question.references, strict=False)]
    return scores + [0.0] * (len(question.references) - len(said))


def count_matching_tokens(talk: list[TurnAnswer], plain: list[TurnAnswer]) -> int:
    """Tokens that are the same as those of plain decoding, from the beginning of the talk until it parts."""
    count = 0
    for mine, theirs in zip(talk, plain, strict=False):
        count += common_prefix_length(mine.tokens, theirs.tokens)
        if mine.tokens != theirs.tokens:
            break
    return count


@torch.inference_mode()
def is_greedy_up_to_ties(model: Model, prompt: list[int], tokens: list[int], chunk: int = 128) -> bool:
    """Whether each of `tokens` has a largest logit after `prompt` and the tokens before it, up to the tie bound of the type.

    The text is read again, without any method, `chunk` tokens a pass.
    """
    bound = TIE[model.decoder.dtype]
    lane = Lane("target", model.decoder, KeepAll())
    if len(prompt) > 1:
        lane.read(prompt[:-1])
    fed = [prompt[-1], *tokens[:-1]]
    for at in range(0, len(fed), chunk):
        rows, due = fed[at : at + chunk], tokens[at : at + chunk]
        logits = lane.forward(Feed.causal_chain(rows, len(prompt) - 1 + at, model.decoder.device))[
            0
        ].float()  # [T, V]
        lane.commit(list(range(len(rows))))
        if bool((logits.amax(-1) - logits[range(len(due)), due] > bound).any()):
            return False
    return True


def answer_losses(lane: Lane, prompt: Sequence[int], answer: Sequence[int]) -> torch.Tensor:
    """float64 [T]: -ln p of each token of an answer behind a prompt. The lane holds all of the prompt but its last token.

    What is fed is left pending.
    """
    fed = [prompt[-1], *answer[:-1]]
    logits = lane.forward(Feed.causal_chain(fed, len(prompt) - 1, lane.decoder.device), "score")[0]  # [T, V]
    due = torch.tensor(answer, device=logits.device)
    return -logits.log_softmax(-1).gather(1, due[:, None])[:, 0].double()


def ask_questions(
    bench: Bench,
    result: BenchResult[R],
    questions: Sequence[BenchQuestion],
    rows: Callable[[BenchQuestion, int], Sequence[R]],
    *,
    out: Path | None = None,
    resume: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Put the questions to all methods of a bench.

    `rows` turns one question, and its number, into what `result` keeps; questions that are too long are skipped. Other
    arguments are those of `gather`.
    """

    def work(i: int, question: BenchQuestion) -> tuple[Sequence[R], str]:
        why = bench.skip_reason(question)
        return ([], why) if why else (rows(question, i), "")

    def ready(question: BenchQuestion) -> None:
        for method in bench.methods.values():
            bench.talk(replace(question, turns=question.turns[:1]), method, 8)

    measure_questions(result, questions, work, ready=ready, out=out, resume=resume, say=say)


def measure_labbench(
    bench: Bench,
    questions: Sequence[BenchQuestion],
    *,
    asked: Mapping[str, Any] | None = None,
    batch: int = 1,
    out: Path | None = None,
    resume: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> LabBenchResult:
    """Put every question to every composition.

    `asked`: the record of the questions' source;  batch: answers that a method writes at a time (`batched_answers.py`). Other
    arguments are those of `gather`, which may be interrupted: then the result so far is returned.
    """
    result = LabBenchResult(
        {**bench.settings(), "batch": batch, "questions": describe_questions(questions, asked)}
    )
    rows = bench.rows if batch == 1 else BatchedRows(bench, questions, batch, say).rows
    ask_questions(bench, result, questions, rows, out=out, resume=resume, say=say)
    return result


def describe_questions(questions: Sequence[BenchQuestion], asked: Mapping[str, Any] | None) -> dict[str, Any]:
    """The record of the questions: `asked`, their number, the number of turns behind the first ones, and a hash of them."""
    later = {
        "later_turns": sum(len(x.turns) - 1 for x in questions),
        "with_later": sum(len(x.turns) > 1 for x in questions),
    }
    key = json.dumps([asdict(x) for x in questions], sort_keys=True).encode("utf-8", "backslashreplace")
    return {**(asked or {}), "count": len(questions), **later, "sha256": hashlib.sha256(key).hexdigest()}
