"""How many tokens are accepted: the exact distribution of the count, and block verification against the token-wise rule."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from law.cases import SAMPLERS, worlds
from law.proposals import Independent

from decodescope.engine.methods.acceptance.block import Block
from decodescope.engine.methods.acceptance.lossless import Lossless
from decodescope.engine.methods.drafters.draft_model.draft_model import DraftModel
from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.session.method import Method
from decodescope.testing.tables import KINDS, constant_logits, table_model
from decodescope.testing.walk import Walk

V, START = 4, [1, 0, 1]


def accepted(rule, target, draft, sampler, length: int, vocab: int = V) -> list[float]:
    """P(count = 0), P(count = 1), ... of the first step, for drafts of `length`."""
    method = Method(drafter=DraftModel(max_draft_tokens=length), acceptance=rule, sampler=sampler)
    walk = Walk(
        method,
        {"target": table_model(target, vocab), "draft": table_model(draft, vocab)},
        length + 1,
        prompt=START,
    )
    law = [0.0] * (length + 1)
    for weight, move in walk.step_outcomes():
        law[move.accepted_count] += weight
    return law


def laws(kind: str, sampler: str, path: tuple[int, ...]) -> tuple[list[float], list[float]]:
    """p and q after `path`."""
    warp = SAMPLERS[sampler][1]
    target, draft = worlds(V, kind)
    text = [*START, *path]
    return warp.next_distribution(target, text, len(START)), warp.next_distribution(draft, text, len(START))


def tails(kind: str, sampler: str, room: int, follow: Callable[[float, float], float]) -> list[float]:
    """P(count >= 1), P(count >= 2), ...: the sum over drafts of q(x_1..x_i) w_i, w_i = follow(w_{i-1}, p / q)."""
    made = [0.0] * room

    def go(path: tuple[int, ...], mass: float, w: float) -> None:
        if len(path) == room:
            return
        p, q = laws(kind, sampler, path)
        for x in range(V):
            if q[x] > 0:
                after = follow(w, p[x] / q[x])
                made[len(path)] += mass * q[x] * after
                go((*path, x), mass * q[x], after)

    go((), 1.0, 1.0)
    return made


@pytest.mark.parametrize("sampler", ["T=0.7", "top-p 0.8"])
@pytest.mark.parametrize("kind", KINDS)
def test_kept_counts_follow_their_formulas(kind, sampler):
    shipped = SAMPLERS[sampler][0]
    token, block = (accepted(rule, *worlds(V, kind), shipped, 2) for rule in (Lossless(), Block()))
    p, q = laws(kind, sampler, ())
    assert sum(token[1:]) == pytest.approx(sum(map(min, p, q)), abs=1e-12)
    by_token = tails(kind, sampler, 2, lambda w, ratio: w * min(1.0, ratio))
    by_block = tails(kind, sampler, 2, lambda w, ratio: min(1.0, w * ratio))
    assert [sum(token[i:]) for i in (1, 2)] == pytest.approx(by_token, abs=1e-12)
    assert [sum(block[i:]) for i in (1, 2)] == pytest.approx(by_block, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampler", ["T=0.7", "T=1.5", "top-k 3", "mirostat"])
def test_block_verification_never_keeps_less(kind, sampler):
    shipped = SAMPLERS[sampler][0]
    token, block = (accepted(rule, *worlds(V, kind), shipped, 2) for rule in (Lossless(), Block()))
    assert _mean(block) >= _mean(token) - 1e-12


def test_worked_example_of_block_verification():
    target, draft = constant_logits(1 / 3, 2 / 3), constant_logits(2 / 3, 1 / 3)
    one = Temperature(temperature=1.0)
    assert _mean(accepted(Lossless(), target, draft, one, 2, vocab=2)) == pytest.approx(10 / 9, abs=1e-12)
    assert _mean(accepted(Block(), target, draft, one, 2, vocab=2)) == pytest.approx(11 / 9, abs=1e-12)


@pytest.mark.parametrize("kind", ["mixed", "independent", "support"])
def test_more_siblings_are_never_worse_and_draws_without_replacement_beat_draws_with(kind):
    target, draft = worlds(V, kind)
    models = {"target": table_model(target, V), "draft": table_model(draft, V)}

    def rate(drafter) -> float:
        walk = Walk(Method(drafter=drafter, sampler=Temperature(temperature=1.0)), models, 2)
        return sum(weight for weight, move in walk.step_outcomes() if move.accepted_count)

    without = [rate(DraftModel(max_draft_tokens=1, width=k)) for k in (1, 2, 3)]
    drawn = [rate(Independent(length=1, width=k)) for k in (1, 2, 3)]
    assert without == sorted(without) and drawn == sorted(drawn)
    assert without[0] == pytest.approx(drawn[0], abs=1e-12)
    assert all(a >= b - 1e-12 for a, b in zip(without, drawn, strict=True))


def _mean(law: list[float]) -> float:
    return float(sum(i * p for i, p in enumerate(law)))
