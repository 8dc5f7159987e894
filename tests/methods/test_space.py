"""SPACE: masks behind root and candidates guess ahead in the pass that verifies; a tuned model guesses better than its base."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import toys
from drafting import path_of

from decodescope.engine import MethodError, Session, run
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import load
from decodescope.engine.session.replay.exact_distribution import exact_distribution

RECORD = '{"id": 507, "name": "Bertha", "city": "Toronto", "tags": ["silver"], "active": true}\nRepeat this.'
PAD = 1  # `lab+lud` was tuned to guess from rows of padding
MASK = 12
V5 = toys.model(toys.decoder(toys.toy_spec(vocab=5), 3, torch.float64, sharp=2.0))


@torch.inference_mode()
def guesses_behind(text: list[int], count: int) -> torch.Tensor:
    """float64 [count, V]: the lively target's output in masks after a text, all ids read as one plain sequence."""
    feed = Feed.causal_chain([*text, *[MASK] * count], 0)
    return toys.pair()[0].decoder.forward(feed, None)[0, len(text) :]


def test_each_group_of_masks_reads_its_path_alone_and_the_last_one_drafts() -> None:
    method = toys.method(drafter=("space", {"mask_token": MASK, "max_draft_tokens": 3}))
    session = Session(toys.pair()[0], method, toys.PROMPT, seed=5)
    session.start()
    observe, seen = session.drafter.observe, []
    session.drafter.observe = lambda outcome: (seen.append(outcome), observe(outcome))[1]  # type: ignore[method-assign]
    drafted = 0
    for i in range(10):
        text = list(session.tokens)
        session.step()
        outcome = seen[-1]
        draft = outcome.draft
        assert draft.notes["slots"] == [3] * (len(draft) + 1) and len(draft) == (3 if i else 0)
        if i:  # from masks behind the token before the root, which they do not see
            assert draft.tokens == guesses_behind(text[:-1], 3).argmax(-1).tolist()
        for place in range(len(draft) + 1):
            due = guesses_behind([*text, *path_of(draft, place - 1)], 3)
            assert torch.allclose(outcome.slots[3 * place : 3 * place + 3], due, atol=1e-9)
        drafted += len(draft)
    assert drafted > 20
    assert (
        session.tokens[session.prompt :]
        == toys.cached_greedy_text(toys.pair()[0], toys.PROMPT)[: len(session.tokens) - session.prompt]
    )


def test_distribution_is_the_targets_by_counting_every_outcome() -> None:
    knobs = {"temperature": {"temperature": 1.0}, "top_k": {"k": 2}}
    names = {"sampler": ["temperature", "top_k"]}
    plain = toys.Method.from_names(names, knobs)
    masked = {**knobs, "drafter": {"mask_token": 4, "max_draft_tokens": 2}}
    drafted = toys.Method.from_names({**names, "drafter": "space"}, masked)
    due = exact_distribution(V5, plain, [1, 2, 1, 3], 4)
    assert len(due) >= 8
    assert exact_distribution(V5, drafted, [1, 2, 1, 3], 4) == pytest.approx(due, abs=1e-12)


def test_a_tuned_model_has_more_accepted_than_its_base() -> None:
    """`lab+lud` learnt to guess from padding. Its greedy text stays its own."""
    masked = toys.method(drafter=("space", {"mask_token": PAD, "max_draft_tokens": 4}))
    steps = {}
    for name in ("lab+lud", "lab"):
        model = load(name, "float32", "cpu")
        drafted = run(model, masked, RECORD, chat=True, max_new_tokens=36).trace.end
        steps[name] = drafted.steps
        if name == "lab+lud":
            assert (
                drafted.tokens
                == run(model, toys.Method(), RECORD, chat=True, max_new_tokens=36).trace.end.tokens
            )
    assert steps["lab+lud"] < 0.9 * steps["lab"], steps


def test_a_model_without_a_mask_is_refused_with_what_to_set() -> None:
    with pytest.raises(MethodError, match=r"names none: set drafter\.mask_token to the id"):
        toys.method(drafter="space").check(toys.SPEC)
    with pytest.raises(MethodError, match=r"mask_token is 13, and toy knows 13 ids"):
        toys.method(drafter=("space", {"mask_token": 13})).check(toys.SPEC)
    assert toys.method(drafter="space").check(replace(toys.SPEC, mask_token=MASK)) is None
    with pytest.raises(MethodError, match=r"^space puts trained tokens into the check"):
        toys.method(drafter=("space", {"mask_token": 1}), adaptive_depth="confidence_exit").check(toys.SPEC)
