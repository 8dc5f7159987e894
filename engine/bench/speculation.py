"""Speculation: the gain of every method that writes several tokens a pass, and where its time goes, all in one run."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from decodescope.engine.core.component import registry
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method, MethodError
from decodescope.engine.session.session import Session

from .clock.contest import Contestant, common_prefix_length, engine_contestant, run_round
from .clock.head_clock import HeadClock, attach_clock
from .clock.speed import Reference
from .figures.labbench import BASELINE, sum_by_depth
from .figures.speculation import SpecResult, SpecRow
from .labbench import Bench, describe_questions
from .questions.columns import Spent, count_weight_bytes, sum_costs
from .questions.questions import BenchQuestion
from .questions.result_file import measure_questions
from .questions.spec_bench import is_spec_bench
from .talk import Talk, TurnAnswer

PER_KIND, SHORT = 2, 1  # questions of a kind, and in the short form
NEW_TOKENS, REPEATS = 40, 3
DRAWN = 0.8  # temperature of the methods that draw
WARM = 8  # tokens
Parts = tuple[dict[str, str], dict[str, dict[str, Any]]]


def _drafter_parts(name: str, acceptance: str = "", **knobs: Any) -> Parts:
    """The parts of a drafter with some knobs, under the rule `acceptance`."""
    return {"drafter": name, **({"acceptance": acceptance} if acceptance else {})}, {
        "drafter": knobs
    } if knobs else {}


# In addition to every drafter and every lossless strategy with its defaults (one that drafts, with draft_model), and
# draft_model under every schedule.
VARIANTS: dict[str, Parts] = {
    "draft_model (tree)": _drafter_parts("draft_model", width=3),
    "sequoia (fitted)": _drafter_parts("sequoia", acceptance_rates="measured", hardware_aware=True),
    "layer_skip (siblings)": _drafter_parts("layer_skip", siblings=True),
    "specinfer (two models)": _drafter_parts("specinfer", models=2),
    "early_exit (confident)": _drafter_parts("early_exit", criterion="confidence_exit"),
    "prompt_lookup (length 4)": _drafter_parts("prompt_lookup", max_draft_tokens=4),
    "token_recycling (24 nodes)": _drafter_parts("token_recycling", nodes="24"),
    # few nodes: drafts that papers size for a GPU cost a small model on a CPU more than they gain
    "trie (8 nodes)": _drafter_parts("trie", nodes=8),
    "llma (length 5)": _drafter_parts("llma", max_draft_tokens=5),
    "medusa (8 nodes)": _drafter_parts("medusa", nodes=8),
    "hydra (8 nodes)": _drafter_parts("hydra", nodes=8),
    "eagle (4 nodes)": _drafter_parts("eagle", nodes=4, depth=4),
}
# Where tokens are drawn, rules and shapes of trees differ that are the same under a greedy sampler.
DRAWING: dict[str, Parts] = {
    "draft_model": _drafter_parts("draft_model"),
    "draft_model (block)": _drafter_parts("draft_model", "block"),
    "draft_model (leniency)": _drafter_parts("draft_model", "leniency"),
    "chains": _drafter_parts("chains"),
    "chains (spectr)": _drafter_parts("chains", "spectr"),
    "sequoia": _drafter_parts("sequoia"),
    "dyspec": _drafter_parts("dyspec"),
    "rsd_c": _drafter_parts("rsd_c"),
    "rsd_s": _drafter_parts("rsd_s"),
    "specinfer": _drafter_parts("specinfer"),
    "medusa": _drafter_parts("medusa"),
    "medusa (typical)": _drafter_parts("medusa", "typical"),
    "eagle": _drafter_parts("eagle"),
}


def default_methods(bench: Bench) -> dict[str, Method]:
    """The methods that are measured greedily unless others are named, for the model of `bench`; some may not run on it."""
    drafters: dict[str, Parts] = {
        name: _drafter_parts(name) for name in registry("drafter") if name != Method().drafter.name
    }
    drafters["aggressive"] = ({"drafter": "aggressive"}, {"drafter": template_lengths(bench)})
    alone: dict[str, Parts] = {}
    for name, part in registry("strategy").items():
        if getattr(part, "lossless", True) and name != Method().strategy.name:
            drafts = {"drafter": "draft_model"} if "drafter" in part.uses else {}  # type: ignore[attr-defined] # a Strategy's
            alone[name] = ({"strategy": name, **drafts}, {})
    schedules = [x for x in registry("schedule") if x != Method().schedule.name]
    timed: dict[str, Parts] = {
        f"draft_model ({x})": ({"drafter": "draft_model", "schedule": x}, {}) for x in schedules
    }
    return {
        name: Method.from_names(*parts) for name, parts in {**drafters, **VARIANTS, **timed, **alone}.items()
    }


def template_lengths(bench: Bench) -> dict[str, int]:
    """As knobs of `aggressive`: how many tokens of a prompt the template puts before and after the user's text."""
    one, other = (bench.first_prompt(BenchQuestion(text, "", (text,))) for text in "ab")
    return {
        "tokens_before_input": common_prefix_length(one, other),
        "tokens_after_input": common_prefix_length(one[::-1], other[::-1]),
    }


def drawn_name(name: str) -> str:
    """The name of a method where it draws: "x (drawn)", or "x (y, drawn)"."""
    return f"{name[:-1]}, drawn)" if name.endswith(")") else f"{name} (drawn)"


@dataclass(frozen=True)
class SpecEntry:
    """A method of ours, and the bench that counts what it does; `plain`: the name of the decoding that it is compared with."""

    bench: Bench
    method: Method
    plain: str


class SpeculationBench:
    """A model, draft models by role, methods, and transformers on the same weights, if there is a `reference`.

    methods: name -> method, measured greedily; None: `default_methods`, and those of DRAWING at `temperature`, unless it is 0
    left_out: name -> why it cannot run here
    clock, result: what times heads, and what keeps the rows;  turns: which of a question are asked
    """

    clock: type[HeadClock] = HeadClock
    turns: str = "all"
    result: type[SpecResult] = SpecResult

    def __init__(
        self,
        model: Model,
        drafts: Mapping[str, Model] | None = None,
        methods: Mapping[str, Method] | None = None,
        reference: Reference | None = None,
        *,
        new_tokens: int = NEW_TOKENS,
        repeats: int = REPEATS,
        temperature: float = DRAWN,
        seed: int = 0,
    ):
        self.model = model
        self.drafts = dict(drafts or {})
        self.reference = reference
        self.new_tokens = new_tokens
        self.repeats = repeats
        self.temperature = temperature
        self.seed = seed
        self.greedy = self._bench(0.0)
        self.left_out: dict[str, str] = {}
        self.entries: dict[str, SpecEntry] = {}
        self._add_entries(self.greedy, default_methods(self.greedy) if methods is None else methods)
        if methods is None and temperature:
            self._add_entries(
                self._bench(temperature), {name: Method.from_names(*parts) for name, parts in DRAWING.items()}
            )

    def _bench(self, temperature: float) -> Bench:
        given = dict(seed=self.seed, new_tokens=self.new_tokens)
        first = self.drafts.get("draft")
        further = {role: x for role, x in self.drafts.items() if role != "draft"}
        return Bench(self.model, {}, first, temperature=temperature, further=further, **given)

    def _add_entries(self, bench: Bench, methods: Mapping[str, Method]) -> None:
        """Take in the methods that can run, and plain decoding before them."""
        sampler = bench.methods[BASELINE].sampler
        call = drawn_name if bench.temperature else str
        for name, method in {BASELINE: Method(), **methods}.items():
            drawing = replace(method, sampler=sampler)
            try:
                Session(self.model, drawing, [0], models=bench.models(drawing), max_new_tokens=1)
            except MethodError as error:
                self.left_out[call(name)] = str(error)
            else:
                self.entries[call(name)] = SpecEntry(bench, drawing, call(BASELINE))

    def settings(self) -> dict[str, Any]:
        """What the figures depend on, as plain data."""
        settings = self.greedy.settings()
        del settings["methods"], settings["exactness"]
        theirs = [] if self.reference is None else self.reference.contestants(self.new_tokens)
        return {
            **settings,
            "drafts": {role: x.name for role, x in self.drafts.items()},
            "temperature": self.temperature,
            "repeats": self.repeats,
            "transformers": None if self.reference is None else self.reference.version,
            "set_aside": {} if self.reference is None else self.reference.set_aside,
            "turns": self.turns,
            "contestants": {
                **{name: self._describe_entry(name, entry) for name, entry in self.entries.items()},
                **{one.name: _describe_theirs(one) for one in theirs},
            },
            "weights": {
                name: count_weight_bytes([self.model, *x.bench.models(x.method).values()])
                for name, x in self.entries.items()
            },
            "left_out": self.left_out,
        }

    @staticmethod
    def _describe_entry(name: str, entry: SpecEntry) -> dict[str, Any]:
        """`method`: the name of the part that makes it another method than plain decoding."""
        method = entry.method
        part = method.drafter if method.strategy == Method().strategy else method.strategy
        return {
            "side": "decodescope",
            "method": part.name,
            "against": entry.plain,
            "plain": name == entry.plain,
            "drawn": not method.sampler.greedy,
            "exactness": method.exactness,
            "parts": {kind: x for kind, x in method.record().items() if x != Method().record()[kind]},
        }

    # ---- one question

    def rows(self, question: BenchQuestion, turn: int, clock: HeadClock) -> Sequence[SpecRow]:
        """The rows of all contestants for the question: counted once, then timed in turns.

        The prompt of a later turn contains the contestant's own earlier answers. `turn`: number of the question; it continues
        the order. Where plain decoding does not come to the end, its row alone, with the fault.
        """
        talks = {name: x.bench.talk(question, x.method, self.new_tokens) for name, x in self.entries.items()}
        if first_fault(talks[BASELINE]):
            return [_row(question, BASELINE, talks[BASELINE], None, None)]
        field = self.contestants(
            [name for name, talk in talks.items() if not first_fault(talk)], self.new_tokens, clock
        )
        theirs = {
            one.name: Talk(self.greedy, question, self.new_tokens) for one in field if one.name not in talks
        }
        for t in range(len(question.turns)):
            prompts = [
                theirs[x.name].current_prompt if x.name in theirs else talks[x.name][t].prompt for x in field
            ]
            for i in range(self.repeats):
                run_round(field, str(t), prompts, turn * self.repeats + i, self.model.decoder.device)
            for one, prompt in zip(field, prompts, strict=True):
                if one.name in theirs:
                    theirs[one.name].add(TurnAnswer(prompt, one.last_results[str(t)].tokens))
        timed = {one.name: one for one in field}
        rows = []
        for name, talk in {**talks, **{name: x.answers for name, x in theirs.items()}}.items():
            # what theirs write is compared with our greedy text
            entry = self.entries.get(name, self.entries[BASELINE])
            identity = None
            if entry.method.sampler.greedy:
                identity = entry.bench.identity(entry.method, talk, talks[entry.plain])
            rows.append(_row(question, name, talk, timed.get(name), identity))
        return rows

    def warm_up(self, question: BenchQuestion) -> None:
        """Let everyone write a few tokens."""
        prompt = self.greedy.first_prompt(question)
        for x in self.entries.values():
            x.bench.answer(x.method, prompt, WARM)
        for one in [] if self.reference is None else self.reference.contestants(WARM):
            one.write(prompt)

    def contestants(self, names: Sequence[str], new: int, clock: HeadClock) -> list[Contestant]:
        """Ours of these names and all of theirs, each to write up to `new` tokens."""
        contestants = []
        for name in names:
            method, stop = self.entries[name].method, self.model.stop_tokens
            models = {role: clock.drafts[role] for role in self.entries[name].bench.models(method)}
            contestants.append(
                engine_contestant(
                    name, clock.model, method, new, models=models, stop=stop, seed=self.seed, heads=clock
                )
            )
        return contestants + ([] if self.reference is None else self.reference.contestants(new))


def _describe_theirs(one: Contestant) -> dict[str, Any]:
    about = {
        "side": one.side,
        "method": one.name,
        "against": BASELINE,
        "plain": False,
        "drawn": False,
        "exactness": "lossless",
    }
    return {**about, "parts": one.settings}


def first_fault(talk: Sequence[TurnAnswer]) -> str:
    """Why a talk has no whole answer to each turn; empty if it has."""
    return next((x.fault for x in talk if x.fault), "")


def _row(
    question: BenchQuestion,
    name: str,
    talk: Sequence[TurnAnswer],
    timed: Contestant | None,
    identity: str | None,
) -> SpecRow:
    """The figures of a talk that was counted, and of the calls that were timed, all turns together; None: it had a fault."""
    row = SpecRow(
        question.id,
        question.kind,
        name,
        first_fault(talk),
        sum(len(x.prompt) for x in talk),
        sum(len(x.tokens) for x in talk),
        sum(x.steps for x in talk),
        sum(x.passes for x in talk),
        sum(x.drafted for x in talk),
        sum(x.accepted for x in talk),
        sum_by_depth(x.offered for x in talk),
        sum_by_depth(x.reached for x in talk),
        identity,
        spent=sum_costs([x.spent for x in talk if x.spent]),
    )
    if timed is None:
        return row
    turns = [str(t) for t in range(len(talk))]
    calls = [call for turn in turns for call in timed.calls[turn]]
    steps = [(step, us) for call in calls for step, us in zip(call.steps, call.heads_us, strict=True)]
    spent = sum_costs([_timed_cost(answer, timed, turn) for answer, turn in zip(talk, turns, strict=True)])
    row = replace(row, seconds=sum_by_round([timed.seconds[turn] for turn in turns]), spent=spent)
    if not steps:
        return row
    passes = [sum(p.wall_us for p in step.passes) for step, _ in steps]
    own = [step.wall_us - inside - us for (step, us), inside in zip(steps, passes, strict=True)]
    return replace(
        row,
        decode_s=sum_by_round([[call.decode_s for call in timed.calls[turn]] for turn in turns]),
        draft_s=sum(step.draft_us for step, _ in steps) / 1e6,
        step_us=statistics.median(step.wall_us for step, _ in steps),
        pass_us=statistics.median(passes),
        head_us=statistics.median(us for _, us in steps),
        own_us=statistics.median(own),
    )


def sum_by_round(turns: Sequence[Sequence[float]]) -> list[float]:
    """The sum over the turns for each round; turns: of each the figures of its rounds."""
    return [sum(each) for each in zip(*turns, strict=True)]


def _timed_cost(answer: TurnAnswer, timed: Contestant, turn: str) -> Spent:
    """The cost of an answer, with the medians of the rounds instead of the times of the counted one.

    For transformers nobody sees the passes: it has what is known.
    """
    whole = statistics.median(timed.seconds[turn])
    steps = [x.decode_s for x in timed.calls[turn] if x.decode_s]
    blank: Spent = {"tokens": len(answer.tokens), "flops": None, "kv_bytes": None, "joules": None}
    return {
        **blank,
        **answer.spent,
        "seconds": whole,
        "decode_s": statistics.median(steps) if steps else whole,
    }


def measure_speculation(
    bench: SpeculationBench,
    questions: Sequence[BenchQuestion],
    *,
    asked: Mapping[str, Any] | None = None,
    out: Path | None = None,
    resume: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> SpecResult:
    """Put all turns of every question to every contestant.

    `asked`: the record of the questions' source. Other arguments are those of `gather`, which may be interrupted: then the
    result so far is returned.
    """
    asked = {**(asked or {}), "spec_bench": is_spec_bench(questions)}
    result = bench.result({**bench.settings(), "questions": describe_questions(questions, asked)})
    for name, why in bench.left_out.items():
        say(f"left out: {name}: {why}")
    with attach_clock(bench.clock(bench.model, bench.drafts)) as clock:

        def work(i: int, question: BenchQuestion) -> tuple[Sequence[SpecRow], str]:
            why = bench.greedy.skip_reason(question)
            rows = [] if why else bench.rows(question, i, clock)
            why = why or next((x.fault for x in rows if x.fault and x.method == BASELINE), "")
            return ([], why) if why else (rows, "")

        gc.collect()
        gc.freeze()  # the many objects of both libraries need not be looked at before every call
        try:
            measure_questions(result, questions, work, ready=bench.warm_up, out=out, resume=resume, say=say)
        finally:
            gc.unfreeze()
    return result
