"""Relaxed acceptance: a token stays if its rank and its distance to the best token allow it, and nothing is drawn to decide."""

from __future__ import annotations

import pytest
import torch
import toys
from law.verdicts import judge

from decodescope.engine.decoding.bases.acceptance import Cursor, match_greedy
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.methods.acceptance.relaxed import Relaxed
from decodescope.engine.methods.samplers.greedy import Greedy
from decodescope.engine.trace import check

V = 8


def chains(count: int, length: int = 4) -> list[tuple[torch.Tensor, list[int]]]:
    """(float64 [length + 1, V]: distributions, drafted tokens, each among the four likeliest)."""
    g = torch.Generator().manual_seed(2)
    p = (torch.randn(count, length + 1, V, generator=g, dtype=torch.float64) * 1.5).softmax(-1)
    ranks = torch.randint(4, (count, length, 1), generator=g)
    tokens = p[:, :length].argsort(-1, descending=True).gather(-1, ranks)[..., 0]
    return [*zip(p, tokens.tolist(), strict=True)]


@pytest.mark.parametrize(("top_k", "delta"), [(1, 1.0), (2, 0.3), (3, 0.15), (8, 0.0), (8, 1.0), (20, 1.0)])
@pytest.mark.parametrize("greedy", [False, True])
def test_kept_is_what_the_two_conditions_keep(top_k: int, delta: float, greedy: bool) -> None:
    """By sorting: rank below k, and at most delta below the best. A greedy sampler changes nothing but the last token."""
    lengths = set()
    for p, tokens in chains(60):
        rule, draft = Relaxed(top_k=top_k, delta=delta), Draft.chain(tokens)
        if greedy:
            at = Cursor(draft, p.log(), p.argmax(-1).tolist(), Greedy(), None, 0)
            verdict = rule.verify(draft, at, Chance(0))
        else:
            verdict = judge(rule, p, torch.full((4, V), 1 / V, dtype=torch.float64), tokens, Chance(0))
        due = 0
        for row, token in zip(p.tolist(), tokens, strict=False):
            rank = sorted(row, reverse=True).index(row[token])
            if rank >= top_k or row[token] < max(row) - delta:
                break
            due += 1
        assert verdict.path == list(range(due))
        assert verdict.token == int(p[due].argmax()) and verdict.u is None
        lengths.add(due)
    assert len(lengths) > 2 or (top_k > V - 1 and delta == 1.0), "the test needs both outcomes"


@pytest.mark.parametrize("knobs", [dict(top_k=1), dict(delta=0.0)])
def test_the_best_token_alone_is_exact_matching(knobs: dict) -> None:
    for p, tokens in chains(40):
        draft = Draft.chain(tokens)
        at = Cursor(draft, p.log(), p.argmax(-1).tolist(), Greedy(), None, 0)
        own, exact = Relaxed(**knobs).verify(draft, at, Chance(0)), match_greedy(draft, at)
        assert (own.path, own.token, own.origin) == (exact.path, exact.token, exact.origin)


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
def test_a_run_keeps_more_and_says_that_it_is_lossy(sampler: str) -> None:
    parts = dict(drafter=("draft_model", {"max_draft_tokens": 4, "draft_temperature": 0.0}), sampler=sampler)
    runs = [
        toys.decode(toys.method(acceptance=rule, **parts), seed=3, count=40)
        for rule in ("lossless", ("relaxed", {"top_k": 4, "delta": 0.5}))
    ]
    assert not runs[1].header.lossless and check(runs[1].sink).ok
    assert len(runs[1].sink.steps) < len(runs[0].sink.steps)
    assert runs[1].tokens != runs[0].tokens, "the text changes, also under a greedy sampler"


def test_a_token_that_the_sampler_removed_never_stays() -> None:
    """With fewer tokens left than top_k, the k-th probability is 0."""
    session = toys.decode(
        toys.method(
            drafter=("draft_model", {"max_draft_tokens": 4, "draft_temperature": 0.0}),
            acceptance=("relaxed", {"top_k": 9, "delta": 1.0, "next_token": "drawn"}),
            sampler=("top_k", {"k": 2}),
        )
    )
    kept = [
        (p, ok) for step in session.sink.steps if (t := step.trials) for p, ok in zip(t.p, t.ok, strict=True)
    ]
    assert all(ok == (p > 0) for p, ok in kept) and {ok for _, ok in kept} == {True, False}
