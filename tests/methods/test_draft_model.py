"""Draft model: acceptance is the overlap of the two distributions, and the draft's cache follows what was accepted."""

from __future__ import annotations

import math

import numpy as np
import pytest
import toys

from decodescope.engine.trace.records.events import Tops


def overlap(tops: Tops, row: int) -> float:
    """sum min(p, q) = 1 - sum max(0, p - q), from the record alone."""
    shown = np.maximum(tops.p[row] - tops.q[row], 0).sum(dtype=np.float64)
    return 1.0 - float(shown + tops.rest[row, 2])


def sampled(length: int, runs: int = 4) -> list:
    parts = dict(
        drafter=("draft_model", {"max_draft_tokens": length}), sampler=("temperature", {"temperature": 1.0})
    )
    steps = []
    for seed in range(runs):
        steps += toys.decode(
            toys.method(**parts), count=200, seed=seed, pair=toys.pair(noise=0.05)
        ).sink.steps[:-3]
    return steps


def test_acceptance_is_the_overlap_and_tau_follows_from_it() -> None:
    """P(first drafted token is accepted) = sum min(p, q); E[tau] = 1 + sum over depths of the product of overlaps."""
    steps = sampled(length=3)
    seen = [(overlap(step.tops, 0), step.trials.ok[0]) for step in steps]
    expected, spread = sum(b for b, _ in seen), math.sqrt(sum(b * (1 - b) for b, _ in seen))
    assert abs(sum(ok for _, ok in seen) - expected) < 3 * spread and 0.2 < expected / len(seen) < 0.9

    reached, due = 1.0, 1.0  # reached: share of steps in which depth d was tried
    for depth in range(3):
        at = [overlap(step.tops, depth) for step in steps if len(step.trials.ok) > depth]
        reached *= sum(at) / len(at)
        due += reached
    tau = sum(len(step.emitted) for step in steps) / len(steps)
    assert abs(tau - due) < 0.05 * due


@pytest.mark.parametrize("width", [1, 3])
def test_a_draft_model_that_is_the_target_is_always_accepted(width: int) -> None:
    """The full-accept case: the draft lane lacks the last drafted token and catches up on two at the next call."""
    target, _ = toys.pair()
    session = toys.decode(
        toys.method(drafter=("draft_model", {"max_draft_tokens": 4, "width": width})),
        count=50,
        pair=(target, target),
    )
    assert [step.accepted for step in session.sink.steps] == [4] * 10
    assert session.end.tokens == toys.greedy_text(target.decoder, toys.PROMPT, 50)
    if width == 1:
        reads = [p.tokens for step in session.sink.steps[1:] for p in step.passes if p.phase == "catch_up"]
        assert set(reads) == {2}
    assert toys.matches_fresh_reading(session.lanes["draft"])


def test_chain_costs_one_draft_pass_a_token_and_a_tree_one_a_level() -> None:
    for width in (1, 4):
        session = toys.decode(
            toys.method(drafter=("draft_model", {"max_draft_tokens": 4, "width": width})), count=30
        )
        for step in session.sink.steps[:-4]:
            assert [p.tokens for p in step.passes if p.phase == "draft"] == [width] * 3
            assert step.drafted == 4 * width
