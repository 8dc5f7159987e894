"""Greedy identity: a lossless method writes the target's own greedy text; if floats tie, the tie rule applies."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import zip_longest
from typing import Any

import pytest
import torch
import toys
from sizes import sizes, thinned
from torch import Tensor

from decodescope.engine import Method, MethodError, Session
from decodescope.engine.bench.labbench import QUESTIONS, Bench
from decodescope.engine.bench.questions.questions import (
    BenchQuestion,
    count_kinds,
    read_questions,
    spread_over_kinds,
)
from decodescope.engine.core.component import registry
from decodescope.engine.decoding.values.tops import TIE
from decodescope.engine.kernels.choice import kernels_in_use, kernels_set_to
from decodescope.engine.methods.strategies.encode_once import EncodeOnce
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.batch.shared_passes import SharedExecutor
from decodescope.engine.session.load import Model, load

SETTINGS = {
    "lookup": dict(drafter=("prompt_lookup", {"max_draft_tokens": 8})),
    "lookup-first": dict(drafter=("prompt_lookup", {"max_draft_tokens": 3, "ngram": 1, "match": "first"})),
    "draft-1": dict(drafter=("draft_model", {"max_draft_tokens": 1})),
    "draft-5": dict(drafter=("draft_model", {"max_draft_tokens": 5})),
    "draft-8": dict(drafter=("draft_model", {"max_draft_tokens": 8}), acceptance="block"),
    "draft-tree": dict(drafter=("draft_model", {"max_draft_tokens": 4, "width": 4})),
    "recycling": dict(drafter=("token_recycling", {"nodes": "24"})),
    "skip": dict(drafter=("layer_skip", {"max_draft_tokens": 7, "min_probability": 0.0})),
    "skip-siblings": dict(
        drafter=("layer_skip", {"max_draft_tokens": 6, "skip_ratio": 0.5, "siblings": True}),
        acceptance="typical",
    ),
    "jacobi": dict(strategy=("jacobi", {"block": 8})),
    "jacobi-random": dict(strategy=("jacobi", {"initial_guess": "random"})),
    "jacobi-zero": dict(strategy=("jacobi", {"initial_guess": "zero"})),
    "jacobi-prompt": dict(strategy=("jacobi", {"initial_guess": "prompt"})),
    "jacobi-pad": dict(strategy=("jacobi", {"initial_guess": "pad"})),
    "jacobi-whole": dict(strategy=("jacobi", {"block": 0})),
    "jacobi-hybrid": dict(strategy=("jacobi", {"guessed_length": 20})),
    "lookahead": dict(drafter="lookahead"),
    "sjd": dict(drafter="sjd"),
    "samples": dict(strategy=("samples", {"samples": 2})),
    "encode-once": dict(strategy="encode_once"),
    "pearl": dict(strategy="pearl", drafter=("draft_model", {"max_draft_tokens": 4})),
    "predictive": dict(strategy=("predictive", {"branches": 2})),
    "speed": dict(strategy=("speed", {"layers": 1})),
    "llma": dict(drafter="llma"),
    "anpd": dict(drafter="anpd"),
    "aggressive": dict(drafter=("aggressive", {"max_draft_tokens": 8})),
    "trie": dict(drafter=("trie", {"nodes": 16})),
    "rest": dict(drafter=("rest", {"nodes": 16})),
    "swift": dict(drafter=("swift", {"window": 8, "min_probability": 0.3})),
    "early-exit": dict(drafter=("early_exit", {"layers": 1})),
    "early-criterion": dict(
        drafter=("early_exit", {"criterion": "confidence_exit threshold=0.6 min_layers=1"})
    ),
    "s2d": dict(drafter=("s2d", {"thresholds": [0.5]})),
    "sequoia": dict(drafter="sequoia"),
    "aded": dict(drafter=("aded", {"iterations": 30})),
    "dyspec": dict(drafter="dyspec"),
    "rsd-c": dict(drafter="rsd_c"),
    "rsd-s": dict(drafter="rsd_s"),
    "specinfer": dict(drafter="specinfer"),
    "staged": dict(drafter="staged"),
    "online": dict(drafter=("online", {"update_interval": 5})),
    "rasd": dict(drafter="rasd"),
    "propd": dict(drafter=("propd", {"layers": 1})),
}
# these need heads trained on the target; on the shipped model those that it has are compared
HEADS = {
    "medusa": dict(drafter=("medusa", {"nodes": 24})),
    "blockwise": dict(drafter="blockwise"),
    "mlp_speculator": dict(drafter="mlp_speculator"),
    "hydra": dict(drafter=("hydra", {"nodes": 24})),
    "eagle": dict(drafter=("eagle", {"nodes": 25})),
    "eagle2": dict(drafter="eagle2"),
    "eagle3": dict(drafter="eagle3"),
    "kangaroo": dict(drafter=("kangaroo", {"max_draft_tokens": 6, "min_probability": 0.3})),
}


def other(kind: str, base: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The parts of a kind that are not named above, with the settings of the toys: new methods are compared as well."""
    named = {
        x if isinstance(x, str) else x[0]
        for parts in [*SETTINGS.values(), *HEADS.values()]
        if (x := parts.get(kind))
    }
    # they change greedy text
    named |= {name for name, cls in registry(kind).items() if not getattr(cls, "matches", True)}
    return {part[0]: {**base, kind: part} for part in toys.representatives(kind) if part[0] not in named}


CHAIN = dict(drafter=("draft_model", {"max_draft_tokens": 6}))
METHODS: dict[str, dict[str, Any]] = {
    **SETTINGS,
    **HEADS,
    **other("drafter", {}),
    **{f"schedule {name}": parts for name, parts in other("schedule", CHAIN).items()},
    **{f"rule {name}": parts for name, parts in other("acceptance", CHAIN).items()},
}


# it has a model of its own, not the shipped `lab`; toys.py contains an independent reference for it
OWN: dict[str, dict[str, Any]] = {"block-transformer": dict(strategy="block_transformer")}

LONGEST = 48  # tokens of a text of the toy
# transforms that make the target of the long runs, joined with +
WEIGHTS = os.environ.get("DECODESCOPE_WEIGHTS", "")
# transforms of the toy: numbers in few bits, uneven groups of heads, missing blocks
MADE = (
    "int8 include_lm_head=true",
    "int4 group=32",
    "head_sensitivity cut_share=0.3 calibration_tokens=128 rounds=2",
    "cut_layers skip=a1,f2",
)
# one of each way to draft, with what it uses of the target; the long run tests every method
FEW = ("draft-tree", "skip", "early-exit", "eagle2", "medusa", "sjd")


@cache
def due(i: int, blocks: bool = False) -> tuple[list[int], list[int]]:
    prompt = toys.prompts(10, 12, seed=21)[i][: i + 3]
    return prompt, toys.greedy_text(
        (toys.block_target() if blocks else toys.pair()[0]).decoder, prompt, LONGEST
    )


@pytest.mark.parametrize("parts", [*METHODS.values(), *OWN.values()], ids=[*METHODS, *OWN])
@sizes("count, tokens", usual=(2, 24), full=(10, LONGEST))
def test_in_double_precision_the_text_is_the_same_always(parts: dict, count: int, tokens: int) -> None:
    """The first text is written by itself, the others in groups of three that run together, each shorter than the last one."""
    prompt, text = due(0, (method := toys.method(**parts)).strategy.writes == "blocks")
    session = toys.decode(method, prompt, tokens)
    assert session.end.tokens == text[:tokens] and session.header.lossless
    for i in range(1, count, 3):
        method = toys.method(**parts)
        target, models = toys.method_models(method)
        blocks, numbers = method.strategy.writes == "blocks", range(i, min(i + 3, count))
        some = [(*due(k, blocks), tokens - 5 * n) for n, k in enumerate(numbers)]
        made = [
            Session(target, method, x, max_new_tokens=most, models=models, executor=SharedExecutor("cpu"))
            for x, _, most in some
        ]
        figures = toys.decode_in_lockstep(made)
        for session, (_, text, most) in zip(made, some, strict=True):
            assert session.end.tokens == text[:most] and session.header.lossless, "of those that go together"
        assert figures.pass_counts[len(made)] or blocks


@cache
def made_of(weights: str) -> tuple[Model, list[list[int]]]:
    """The model that transforms make of the lively toy, and its greedy texts."""
    made = toys.model(toys.transformed_decoder(weights, toys.pair()[0].decoder))
    return made, [toys.greedy_text(made.decoder, due(i)[0], LONGEST) for i in range(4)]


def compare_made(weights: str, parts: dict[str, Any], count: int, tokens: int) -> None:
    """A method's texts on the transformed toy are that model's greedy texts."""
    made, texts = made_of(weights)
    for i, text in enumerate(texts[:count]):
        session = toys.decode(toys.method(**parts), due(i)[0], tokens, pair=(made, toys.pair()[1]))
        assert session.end.tokens == text[:tokens] and session.header.lossless


@pytest.mark.parametrize(("name", "weights"), thinned(3, FEW, MADE))
def test_on_a_model_made_of_another_the_text_is_that_models(name: str, weights: str) -> None:
    compare_made(weights, METHODS[name], 1, 24)


@pytest.mark.identity
@pytest.mark.parametrize("parts", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("weights", [WEIGHTS] if WEIGHTS else MADE)
def test_on_a_model_made_of_another_every_methods_text_is_that_models(
    weights: str, parts: dict[str, Any]
) -> None:
    compare_made(weights, parts, 4, LONGEST)


@pytest.mark.parametrize("weights", MADE)
def test_models_made_of_the_toy_write_other_texts(weights: str) -> None:
    assert any(text != due(i)[1] for i, text in enumerate(made_of(weights)[1])), "it is another model"


def test_every_drafter_rule_schedule_and_lossless_strategy_is_compared() -> None:
    compared = {
        part.name for parts in (METHODS | OWN).values() for part in toys.method(**parts).parts().values()
    }
    for kind in ("drafter", "acceptance", "schedule"):
        assert {name for name, cls in registry(kind).items() if getattr(cls, "matches", True)} <= compared
    assert {name for name, cls in registry("strategy").items() if cls.lossless} <= compared


@dataclass
class Tally:
    """Counts of compared texts.

    texts: pairs of method and prompt;  positions: tokens compared;  differing: texts that differ from the plain one, token by
    token;  exact: equal top two;  forgiven: within tau of the largest;  failures: neither;  largest: largest difference
    forgiven;  refused: method -> why this model cannot run it
    """

    texts: int = 0
    positions: int = 0
    differing: int = 0
    exact: int = 0
    forgiven: int = 0
    failures: int = 0
    largest: float = 0.0
    refused: dict[str, str] = field(default_factory=dict)

    def score(self, gap: Tensor, ties: int, differs: bool, tau: float) -> None:
        """Count one text: every token must be a largest one, up to tau."""
        self.texts += 1
        self.positions += len(gap)
        self.differing += differs
        self.exact += ties
        self.forgiven += int(((gap > 0) & (gap <= tau)).sum())
        self.failures += int((gap > tau).sum())
        self.largest = max(self.largest, float(gap[gap <= tau].max()))


@torch.inference_mode()
def read(model: Model, prompt: list[int], text: list[int]) -> tuple[Tensor, int]:
    """The whole text, fed to the target: float32 [tokens], each token's distance below the best; and how often two are best."""
    logits = model.decoder.forward(Feed.causal_chain([*prompt, *text], 0), None)[
        0, len(prompt) - 1 : -1
    ].float()
    top = logits.topk(2, -1).values
    return top[:, 0] - logits[range(len(text)), text], int((top[:, 0] == top[:, 1]).sum())


def prompts(model: Model, count: int) -> list[list[int]]:
    """Ids of the first turns of `count` LabBench questions: one of each kind in turns, spread over those of the kind."""
    questions, _ = read_questions(QUESTIONS)
    each: dict[str, list[BenchQuestion]] = defaultdict(list)
    for question in spread_over_kinds(questions, -(-count // len(count_kinds(questions)))):
        each[question.kind].append(question)
    bench = Bench(model, {})
    chosen = [question for turn in zip_longest(*each.values()) for question in turn if question is not None]
    return [bench.first_prompt(question) for question in chosen[:count]]


def written(target: Model, method: Method, prompt: list[int], tokens: int, draft: Model) -> list[int]:
    """The text of a run, which no stop token ends; raises MethodError if the models cannot run the method."""
    models = dict.fromkeys(method.lanes, draft)
    session = Session(target, method, prompt, models=models, max_new_tokens=tokens, stop_tokens=())
    for _ in session.stream():
        pass
    return session.end.tokens


def compare(
    count: int,
    tokens: int,
    longest: int | None = None,
    told: Callable[[str], None] = lambda line: None,
    methods: Mapping[str, dict[str, Any]] = METHODS,
    weights: str = "",
    in_turns: bool = False,
    dtype: str = "float32",
) -> Tally:
    """Compare every method's text of `tokens` tokens after `count` prompts of LabBench, of at most `longest` tokens each.

    `told` is called with a line for each prompt. weights: transforms that make the target;  in_turns: each method reads one of
    the prompts
    """
    target, draft = load("lab", dtype, "cpu", weights=weights), load("lab-draft", dtype, "cpu")
    tally = Tally()
    chosen = [prompt for prompt in prompts(target, count) if longest is None or len(prompt) <= longest]
    for number, prompt in enumerate(chosen, 1):
        plain = written(target, Method(), prompt, tokens, draft)
        scores: dict[tuple[int, ...], tuple[Tensor, int]] = {}  # most methods write the same text
        for turn, (name, parts) in enumerate(methods.items()):
            if name in tally.refused or (in_turns and turn % len(chosen) != number - 1):
                continue
            try:
                text = written(target, toys.method(**parts), prompt, tokens, draft)
            except MethodError as refusal:
                tally.refused[name] = str(refusal)
            else:
                if tuple(text) not in scores:
                    scores[tuple(text)] = read(target, prompt, text)
                tally.score(*scores[tuple(text)], text != plain, TIE[target.decoder.dtype])
        told(f"prompt {number}: {tally.texts} texts, {tally.positions} tokens, {tally.failures} failures")
    return tally


def holds(tally: Tally, methods: int = len(METHODS)) -> None:
    """No text differs, and only methods whose heads the shipped models lack were refused."""
    assert kernels_in_use() == "rows"
    assert tally.failures == tally.differing == 0, tally
    assert tally.positions > 20 * methods
    untrained = ("has no heads/", "drafts from mask tokens")
    assert all(any(x in why for x in untrained) for why in tally.refused.values()), tally.refused
    assert len(tally.refused) < methods / 2


@pytest.mark.parametrize(
    "dtype", ["bfloat16", *(pytest.param(x, marks=pytest.mark.nightly) for x in ("float32", "float16"))]
)
@sizes("tokens, longest", usual=(24, 50), full=(16, None))
def test_on_the_shipped_model_the_text_is_plain_decodings(
    tokens: int, longest: int | None, dtype: str
) -> None:
    """Token for token, in half types too. The small size reads one of the short prompts with each method."""
    holds(compare(8, tokens, longest, in_turns=longest is not None, dtype=dtype))


@sizes("tokens, longest", usual=(24, 30), full=(16, None))
def test_with_the_kernels_of_torch_the_text_is_greedy_up_to_ties(tokens: int, longest: int | None) -> None:
    """There a text may differ from plain decoding's, but only from a numerical tie on."""
    few = {name: METHODS[name] for name in ("lookup", "draft-5", "draft-tree", "recycling", "lookahead")}
    with kernels_set_to("torch"):
        tally = compare(8, tokens, longest, methods=few, in_turns=longest is not None, dtype="bfloat16")
    assert tally.failures == 0, tally
    assert tally.forgiven + tally.exact or not tally.differing


def compare_answers(count: int, tokens: int, longest: int | None = None) -> Tally:
    """As `compare`: `encode_once` answers two questions about each prompt, compared with a separate run for each question."""
    target, tally = load("lab", "float32", "cpu"), Tally()
    method = toys.method(strategy=("encode_once", {"questions": "What is it about?\nWhat comes next?"}))
    assert target.tokenizer is not None and isinstance(method.strategy, EncodeOnce)
    asked = [target.tokenizer.encode_plain(question) for question in method.strategy.question_texts]
    for prompt in (x for x in prompts(target, count) if longest is None or len(x) <= longest):
        text = written(target, method, prompt, tokens * len(asked), target)
        for i, question in enumerate(asked):
            answer, behind = text[i * tokens : (i + 1) * tokens], [*prompt, *question]
            tally.score(
                *read(target, behind, answer),
                answer != written(target, Method(), behind, tokens, target),
                tau=1e-3,
            )
    return tally


@sizes("tokens, longest", usual=(12, 40), full=(16, None))
def test_answers_that_are_written_side_by_side_are_greedy_up_to_ties(
    tokens: int, longest: int | None
) -> None:
    tally = compare_answers(8, tokens, longest)
    assert tally.failures == 0 and tally.positions > 20, tally


NAMED = os.environ.get("DECODESCOPE_METHODS", "")  # names of methods above, separated by commas; empty: all
PROMPTS = int(os.environ.get("DECODESCOPE_PROMPTS", 200))


@pytest.mark.identity
def test_on_the_shipped_model_over_two_hundred_prompts(capsys: pytest.CaptureFixture[str]) -> None:
    def told(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)

    methods = {name: METHODS[name] for name in NAMED.split(",")} if NAMED else METHODS
    tally = compare(PROMPTS, 64, told=told, methods=methods, weights=WEIGHTS)
    without = ", ".join(tally.refused)
    made = f" on lab@{WEIGHTS}" * bool(WEIGHTS)
    told(f"{len(methods)} methods{made}, without heads for {without or 'none'}: {replace(tally, refused={})}")
    holds(tally, len(methods))


@pytest.mark.identity
def test_answers_that_are_written_side_by_side_over_two_hundred_prompts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tally = compare_answers(200, 64)
    with capsys.disabled():
        print(f"encode_once: {tally}", flush=True)
    assert tally.failures == 0 and tally.positions == 200 * 2 * 64


def test_plain_decoding_is_what_the_others_are_compared_with() -> None:
    prompt, text = due(0)
    assert toys.decode(Method(), prompt, LONGEST).end.tokens == text
