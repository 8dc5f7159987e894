"""Adaptive verification: the verified prefix has the most expected tokens per time, and no token decides about itself."""

from __future__ import annotations

import random

import pytest
import toys

from decodescope.engine.decoding.shared.pass_time import LinearPassTime
from decodescope.engine.methods.schedules.adaptive_verification import (
    AdaptiveVerification,
    convex_hull,
    is_worth_row,
)
from decodescope.engine.session.method import MethodError
from decodescope.engine.trace import check
from decodescope.testing.contracts.drafters import read_alone


def chosen_length(confidences: list[float], us: list[float]) -> int:
    """How many tokens are verified if each is asked for in its turn."""
    kept: list[float] = []
    for c in confidences:
        survival = (kept[-1] if kept else 1.0) * c
        if not is_worth_row(kept, survival, us):
            break
        kept.append(survival)
    return len(kept)


def rate(confidences: list[float], us: list[float], k: int) -> float:
    """Expected tokens of a step that verifies k, per microsecond, by summing over how many are accepted."""
    expected, reached = 0.0, 1.0
    for accepted in range(k + 1):
        stops = 1 - confidences[accepted] if accepted < k else 1.0
        expected += reached * stops * (accepted + 1)
        reached *= confidences[accepted] if accepted < k else 0.0
    return expected / us[k]


def test_the_verified_prefix_is_the_best_of_all() -> None:
    """Brute force over all prefixes, for costs that are lines, or convex; every length comes up."""
    draw, lengths = random.Random(5), set()
    for _ in range(400):
        confidences = [draw.choice([0.05, 0.4, 0.9, 0.99, 1.0, 1.0]) for _ in range(6)]
        first, row = draw.uniform(1, 60), sorted(draw.uniform(0.1, 8) for _ in range(6))
        us = [first + sum(row[:k]) for k in range(7)]
        k = chosen_length(confidences, us)
        rates = [rate(confidences, us, n) for n in range(7)]
        assert rates[k] == pytest.approx(max(rates), rel=1e-12)
        lengths.add(k)
    assert lengths == {*range(7)}


def test_by_hand() -> None:
    """1 / 10, 1.9 / 12, 2.71 / 14, 3.035 / 16 tokens a microsecond: 0.1, 0.158, 0.194, 0.190."""
    assert chosen_length([0.9, 0.9, 0.4, 1.0], [10.0, 12.0, 14.0, 16.0, 18.0]) == 2


def test_hull_is_the_largest_convex_curve_below() -> None:
    assert convex_hull([10.0, 14.0, 14.0, 15.0, 30.0]) == pytest.approx([10, 10 + 5 / 3, 10 + 10 / 3, 15, 30])
    line = [3.0 + 2 * k for k in range(6)]
    assert convex_hull(line) == pytest.approx(line) and convex_hull([7.0]) == [7.0]


def adaptive_session(monkeypatch: pytest.MonkeyPatch, row: float, sampler: str = "greedy", **more: int):
    """A finished run in which a pass costs 10 + `row` for each of its rows, whoever's it is; drafts are free."""
    times = iter([LinearPassTime(10.0, row, 0.0), LinearPassTime(0.0, 0.0, 0.0)])
    monkeypatch.setattr(LinearPassTime, "from_profile", classmethod(lambda *_: next(times)))
    return toys.decode(
        toys.method(
            drafter=("draft_model", {"max_draft_tokens": 4}),
            schedule=("adaptive_verification", more),
            sampler=sampler,
        ),
        count=24,
        seed=2,
    )


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
def test_a_run_verifies_what_its_notes_find_best(monkeypatch: pytest.MonkeyPatch, sampler: str) -> None:
    """Survival is read again from the draft model alone; a longer prefix would not have been better."""
    session = adaptive_session(monkeypatch, 3.0, sampler, max_draft_tokens=6)
    assert check(session.sink).ok
    draft, lengths = session.models["draft"].decoder, set()
    for step in session.sink.steps:
        if not step.draft:
            continue
        note, text = step.draft.notes["schedule"], session.tokens[: step.n]
        texts = [[*text, *step.draft.tokens[:i]] for i in range(len(step.draft.tokens) + 1)]
        c = read_alone(draft, texts).softmax(-1).amax(-1).tolist()
        survival = [c[0]]
        for x in c[1:]:
            survival.append(survival[-1] * x)
        assert note["survival"] == pytest.approx(survival[:-1], abs=1e-4)
        us, k = note["us"], len(step.draft.tokens)
        assert us == pytest.approx([10 + 3.0 * (n + 1) for n in range(7)])
        if note["refused"]:
            assert note["refused"] == pytest.approx(survival[-1], abs=1e-4)
            assert chosen_length(c, us) == k
        lengths.add(k)
    assert len(lengths) > 2, "the test needs drafts of several lengths"


def test_free_rows_are_all_verified_and_dear_ones_never(monkeypatch: pytest.MonkeyPatch) -> None:
    free = adaptive_session(monkeypatch, 0.0, max_draft_tokens=5)
    drafted = [step.drafted for step in free.sink.steps if step.n < free.prompt + 16]
    assert set(drafted) == {5}
    dear = adaptive_session(monkeypatch, 1e6)
    assert not any(step.drafted for step in dear.sink.steps) and dear.end.tokens == free.end.tokens
    assert any("held every draft back" in x for x in dear.end.notes)


def test_a_larger_batch_never_verifies_more() -> None:
    spec = toys.toy_spec(d_model=4096, d_ff=16384)
    target, draft = LinearPassTime(50.0, 0.2, 0.0), LinearPassTime(4.0, 0.02, 0.0)
    assert spec.d_model == 4096
    sizes = [
        chosen_length([0.8] * 8, AdaptiveVerification(batch=b).step_times(target, draft, 100))
        for b in (1, 32, 256, 4096)
    ]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 2 and sizes[-1] <= 1


@pytest.mark.parametrize("drafter", ["prompt_lookup", "medusa", "early_exit"])
def test_drafts_without_a_draft_models_confidence_are_refused(drafter: str) -> None:
    with pytest.raises(
        MethodError, match=f"and {drafter} drafts without one, as set; choose the drafter draft_model"
    ):
        toys.decode(toys.method(drafter=drafter, schedule="adaptive_verification"), count=2)
