"""On the real model every drafter that needs no trained weights writes plain decoding's text, which is that of transformers."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import toys
from real import CUT, GROUP, INT4, PROMPTS, Answer, chat_ids
from sizes import by_turns, first_of, sizes, thinned

from decodescope.engine import Method, MethodError, Session
from decodescope.engine.core.component import registry
from decodescope.engine.decoding.values.tops import TIE
from decodescope.engine.kernels.choice import kernels_in_use
from decodescope.engine.session.batch.shared_passes import SharedExecutor

pytestmark = GROUP

# fewer rows a pass than the defaults: the processor computes each of them
SETTINGS: dict[str, dict[str, Any]] = {name: {} for name in registry("drafter")} | {
    "aded": dict(iterations=20, max_paths=4),
    "aggressive": dict(max_draft_tokens=8),
    "early_exit": dict(max_draft_tokens=2, layers=8),
    "layer_skip": dict(max_draft_tokens=2),
    "lookahead": dict(window=4, ngram=3, guesses=4, pool_from_prompt=True),
    "propd": dict(tree_drafter="token_recycling nodes=16", layers=6, top_k=16),
    "rest": dict(nodes=12),
    "s2d": dict(max_draft_tokens=2, exits=[10, 20], thresholds=[0.5]),
    "sjd": dict(window=8),
    "token_recycling": dict(nodes="16"),
    "trie": dict(nodes=12),
    "dyspec": dict(nodes=8),
    "rasd": dict(nodes=8, depth=3, retrieved_nodes=4),
    "sequoia": dict(nodes=8, depth=4),
    "specinfer": dict(branching="2,1,1"),
    "rsd_c": dict(branching="2,1,1"),
    "rsd_s": dict(width=2, depth=3),
    "chains": dict(max_draft_tokens=3, chains=2),
    "online": dict(max_draft_tokens=3, update_interval=4, window=16),
}
UNTRAINED = toys.toy_spec(heads=(), n_layers=30)


def refusal(name: str) -> str:
    """Why a drafter cannot run on a model without heads, with draft models in every role it asks for; empty: it can."""
    method = method_of(name)
    try:
        method.check(UNTRAINED, method.lanes)
    except MethodError as error:
        return str(error)
    return ""


def method_of(name: str) -> Method:
    """The method with this drafter."""
    return toys.method(drafter=(name, SETTINGS[name]))


DRAFTERS = [name for name in registry("drafter") if name != "none" and not refusal(name)]
ALONE = [name for name in DRAFTERS if not method_of(name).lanes]
LEARNS = "online"  # its draft model learns, so it is a smaller one, and each prompt has its own
WITH_DRAFT = [name for name in DRAFTERS if method_of(name).lanes and name != LEARNS]
SMALL = f"cut_layers skip={','.join(f'l{i}' for i in range(9, 21))}"
Texts = Callable[..., list[list[int]]]


@pytest.fixture(scope="module")
def plain(real_models: Callable[..., Any]) -> Texts:
    """plain(count, tokens, dtype): the texts of plain decoding, each prompt by itself."""

    @cache
    def texts(count: int, tokens: int, dtype: str = "float32") -> list[list[int]]:
        model = real_models(dtype)
        return [toys.finish_session(x).end.tokens for x in opened(model, Method(), None, count, tokens)]

    return texts


def add_mask_token(model: Any) -> Any:
    """The same model with a mask token that it never learnt, for drafters that ask for one."""
    decoder = copy(model.decoder)
    decoder.spec = replace(decoder.spec, mask_token=0)
    return replace(model, spec=decoder.spec, decoder=decoder)


def opened(model: Any, method: Method, draft: Any, count: int, tokens: int) -> list[Session]:
    """A session for each of the first prompts, which no stop token ends."""
    return [
        Session(
            model,
            method,
            chat_ids(model, text),
            models=dict.fromkeys(method.lanes, draft),
            max_new_tokens=tokens,
            stop_tokens=(),
            executor=SharedExecutor("cpu"),
        )
        for text in PROMPTS[:count]
    ]


def together(model: Any, method: Method, draft: Any, count: int, tokens: int) -> list[Session]:
    """The same sessions at their ends; their passes ran as one."""
    sessions = opened(model, method, draft, count, tokens)
    toys.decode_in_lockstep(sessions)
    return sessions


def assert_identical(sessions: list[Session], due: list[list[int]], answers: list[Answer]) -> None:
    """The texts are those of plain decoding, bit for bit in every pass that decides, and those of transformers."""
    assert kernels_in_use() == "rows"
    for session, text, answer in zip(sessions, due, answers, strict=True):
        assert session.header.lossless and session.end.tokens == text
        assert answer.differs(session.end.tokens, TIE[session.target.decoder.dtype]) == ""


SIZES = sizes("count, tokens", usual=(2, 24), full=(8, 64))
DUE = Callable[[int, int], list[Answer]]


@SIZES
def test_plain_decoding_writes_what_transformers_writes(
    count: int, tokens: int, plain: Texts, real_answers: DUE
) -> None:
    answers, texts = real_answers(count, tokens), plain(count, tokens)
    tie = TIE[answers[0].logits.dtype]
    assert [x.differs(text, tie) for x, text in zip(answers, texts, strict=True)] == [""] * count
    assert "is" in answers[0].differs(texts[1], tie), "the guard: another text is found out"
    assert len(set(map(tuple, texts))) == count and min(len(set(x)) for x in texts) > 4


@pytest.mark.parametrize("name", by_turns(3, ALONE))
@SIZES
def test_a_drafter_without_another_model_writes_the_same_text(
    name: str,
    count: int,
    tokens: int,
    real_models: Callable[..., Any],
    plain: Texts,
    real_answers: DUE,
) -> None:
    sessions = together(real_models(), method_of(name), None, count, tokens)
    assert_identical(sessions, plain(count, tokens), real_answers(count, tokens))


@pytest.mark.parametrize(("name", "weights"), by_turns(3, thinned(2, WITH_DRAFT, (INT4, CUT))))
@SIZES
def test_a_drafter_with_a_draft_made_of_the_model_writes_the_same_text(
    name: str,
    weights: str,
    count: int,
    tokens: int,
    real_models: Callable[..., Any],
    plain: Texts,
    real_answers: DUE,
) -> None:
    draft = add_mask_token(real_models("float32", weights))
    sessions = together(real_models(), method_of(name), draft, count, tokens)
    assert_identical(sessions, plain(count, tokens), real_answers(count, tokens))
    steps = sum(session.steps for session in sessions)
    assert steps < count * tokens, "the test needs guesses that are right"


@sizes("count, tokens", usual=(1, 16), full=(4, 32))
def test_a_drafter_whose_draft_model_learns_writes_the_same_text(
    count: int, tokens: int, real_models: Callable[..., Any], plain: Texts, real_answers: DUE
) -> None:
    draft = real_models("float32", SMALL)
    sessions = [
        toys.finish_session(x) for x in opened(real_models(), method_of(LEARNS), draft, count, tokens)
    ]
    known = (2, 24) if count == 1 else (8, 64)  # the sizes of the tests above
    due, answers = ([x[:tokens] for x in plain(*known)], [x.begin(tokens) for x in real_answers(*known)])
    assert_identical(sessions, due[:count], answers[:count])
    assert any(
        x.draft.notes["online"]["updates"] for one in sessions for x in one.sink.steps if x.draft.notes
    )


@pytest.mark.parametrize("name", first_of("token_recycling", *(x for x in ALONE if x != "token_recycling")))
@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=pytest.mark.nightly)])
def test_in_half_types_drafts_change_no_token(
    name: str, dtype: str, real_models: Callable[..., Any], plain: Texts
) -> None:
    """A prompt by itself, as people run it."""
    (session,) = [toys.finish_session(x) for x in opened(real_models(dtype), method_of(name), None, 1, 32)]
    assert session.header.lossless and [session.end.tokens] == plain(1, 32, dtype)


def test_every_drafter_is_compared_or_needs_trained_weights() -> None:
    rest = set(registry("drafter")) - {*ALONE, *WITH_DRAFT, LEARNS, "none"}
    needs = ("has no heads/", "the model was tuned with")  # heads, or a target that knows a mask token
    assert all(any(x in refusal(name) for x in needs) for name in rest) and len(ALONE) >= 14
