"""Sampled on the real model, the first two tokens have the distribution that transformers computes from the same file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
import toys
from law.statistics import alarms
from real import CUT, GROUP, transformers_model

from decodescope.engine import Session
from decodescope.engine.session.batch.shared_passes import SharedExecutor, decode_together

pytestmark = [pytest.mark.nightly, GROUP]

TEXTS = int(os.environ.get("DECODESCOPE_REAL_TEXTS", 1024))  # of each method
BEGINNING = "A cat, a dog and a cat, a"
SAMPLER = ("top_k", {"k": 6})
TOGETHER = 32  # texts whose passes run as one
METHODS: dict[str, dict[str, Any]] = {
    "chain": dict(drafter=("draft_model", {"max_draft_tokens": 2})),
    "block": dict(drafter=("draft_model", {"max_draft_tokens": 2}), acceptance="block"),
    "rsd_s": dict(drafter=("rsd_s", {"width": 2, "depth": 2})),
    "specinfer": dict(drafter=("specinfer", {"branching": "2,1"})),
    "prompt_lookup": dict(drafter=("prompt_lookup", {"max_draft_tokens": 2, "ngram": 1})),
    "token_recycling": dict(drafter=("token_recycling", {"nodes": "16"})),
}


@pytest.fixture(scope="module")
def due(real_model: Path, real_models: Callable[..., Any]) -> dict[tuple[int, ...], float]:
    """(first token, second token) -> probability, from the logits of transformers in double precision."""
    model = real_models()
    prompt, k = model.tokenizer.encode(BEGINNING), SAMPLER[1]["k"]
    theirs = transformers_model(real_model, model.path)
    with torch.inference_mode():
        first = theirs(torch.tensor([prompt])).logits[0, -1].double().topk(k)
        rows = torch.tensor([[*prompt, x] for x in first.indices.tolist()])
        second = theirs(rows).logits[:, -1].double().topk(k)
    p = first.values.softmax(0)[:, None] * second.values.softmax(1)
    return {
        (x, y): float(p[i, j])
        for i, x in enumerate(first.indices.tolist())
        for j, y in enumerate(second.indices[i].tolist())
    }


@pytest.mark.parametrize("name", METHODS)
def test_the_first_two_tokens_have_the_law_of_transformers(
    name: str, due: dict[tuple[int, ...], float], real_models: Callable[..., Any]
) -> None:
    model, method = real_models(), toys.method(**METHODS[name], sampler=SAMPLER)
    prompt = model.tokenizer.encode(BEGINNING)
    texts, drafted, accepted = Counter[tuple[int, ...]](), 0, 0

    def sessions() -> Iterator[Session]:
        draft = real_models("float32", CUT) if method.lanes else None
        more = dict(models=dict.fromkeys(method.lanes, draft), max_new_tokens=2, stop_tokens=())
        for seed in range(TEXTS):
            yield Session(model, method, prompt, seed=seed, executor=SharedExecutor("cpu"), **more)

    def count(session: Session, step: Any) -> None:
        nonlocal drafted, accepted
        drafted, accepted = drafted + step.drafted, accepted + step.accepted

    def over(session: Session, error: Exception | None) -> None:
        if error is not None:
            raise error
        texts[tuple(session.end.tokens)] += 1

    decode_together(sessions(), TOGETHER, each=count, over=over)
    assert texts.total() == TEXTS and 0 < accepted < drafted, "the test needs right and wrong guesses"
    assert alarms(texts, due) == []


def test_a_law_that_differs_in_the_second_token_is_found_out(due: dict[tuple[int, ...], float]) -> None:
    """The statistic itself: second tokens drawn regardless of the first one."""
    k = SAMPLER[1]["k"]
    shifted = [*islice(due.values(), k, None), *islice(due.values(), k)]
    counts = Counter({text: round(p * TEXTS) for text, p in zip(due, shifted, strict=True)})
    assert alarms(counts, due)
