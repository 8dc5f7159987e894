"""FLy: a rejection is forgiven where the target is unsure and the next tokens pass, and nowhere else."""

from __future__ import annotations

import pytest
import torch
import toys
from law.verdicts import judge, rows

from decodescope.engine.decoding.bases.acceptance import Cursor
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.methods.acceptance.fly import FLy
from decodescope.engine.methods.acceptance.lossless import Lossless
from decodescope.engine.methods.samplers.greedy import Greedy
from decodescope.engine.session.replay.whatif import WhatIfChange, derive
from decodescope.engine.trace import check

V, N = 5, 7


def chain(seed: int) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """(p [N + 1, V], q [N, V], N tokens drawn from q): distributions that are alike, some of them flat."""
    g = torch.Generator().manual_seed(seed)
    z = (
        torch.randn(N + 1, V, generator=g, dtype=torch.float64)
        * torch.tensor([0.5, 4.0])[torch.randint(2, (N + 1, 1), generator=g)]
    )
    q = (z[:N] + torch.randn(N, V, generator=g, dtype=torch.float64)).softmax(-1)
    return z.softmax(-1), q, torch.multinomial(q, 1, generator=g)[:, 0].tolist()


def expected_path(passes: list[bool], entropy: list[float], theta: float, window: int) -> int:
    """How many tokens stay, from the tests of all tokens: the pattern (no, yes, ..., yes) is forgiven where it is unsure."""
    for i in range(N):
        after = passes[i + 1 : i + 1 + window]
        if not passes[i] and not (entropy[i] > theta and len(after) == window and all(after)):
            return i
    return N


def top_entropy(p: torch.Tensor, k: int) -> float:
    best = sorted(p.tolist(), reverse=True)[:k]
    return -sum(x * torch.tensor(x).log().item() for x in best if x > 0)


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize(("theta", "window", "k"), [(0.3, 2, 3), (0.0, 1, 5), (0.6, 1, 2)])
def test_the_path_is_that_of_the_pattern(greedy: bool, theta: float, window: int, k: int) -> None:
    rule, forgiven = FLy(threshold=theta, window=window, entropy_top_k=k), 0
    for seed in range(120):
        p, q, tokens = chain(seed)
        if greedy:
            at = Cursor(Draft.chain(tokens), p.log(), p.argmax(-1).tolist(), Greedy(), None, 0)
            verdict = rule.verify(at.draft, at, Chance(seed))
            passes = [x == best for x, best in zip(tokens, p.argmax(-1).tolist(), strict=False)]
        else:
            verdict = judge(rule, p, q, tokens, Chance(seed))
            us = [Chance(seed).uniform(i, "accept") for i in range(N)]
            passes = [
                u * float(q[i, x]) < float(p[i, x]) for i, (u, x) in enumerate(zip(us, tokens, strict=True))
            ]
        due = expected_path(passes, [top_entropy(row, k) for row in p], theta, window)
        assert verdict.path == list(range(due))
        assert [trial.ok for trial in verdict.trials] == [True] * due + [False] * (due < N)
        forgiven += sum(not ok for ok in passes[:due])
    assert forgiven > 10, "the test needs rejections that are forgiven"


def test_worked_example() -> None:
    """The target hesitates at the first place and is sure at the others: the second choice there is forgiven, a wrong one later
    is not."""
    unsure, sure = [0.4, 0.35, 0.25], [0.0, 0.02, 0.98]
    p = rows(unsure, sure, sure, sure)
    at = Cursor(Draft.chain([1, 2, 2]), p.log(), p.argmax(-1).tolist(), Greedy(), None, 0)
    assert FLy(window=2).verify(at.draft, at, Chance(0)).path == [0, 1, 2]
    assert FLy(window=3).verify(at.draft, at, Chance(0)).path == [], "nothing follows that could pass"
    assert FLy(window=2, threshold=1.1).verify(at.draft, at, Chance(0)).path == [], "H = 1.08"
    late = Cursor(Draft.chain([0, 1, 2]), p.log(), p.argmax(-1).tolist(), Greedy(), None, 0)
    assert FLy(window=1).verify(late.draft, late, Chance(0)).path == [0], "the target was sure"


def test_with_a_gate_that_never_opens_it_is_the_lossless_rule() -> None:
    for seed in range(40):
        p, q, tokens = chain(seed)
        own, exact = (
            judge(x, p, q, tokens, Chance(seed)) for x in (FLy(threshold=12.0, window=1), Lossless())
        )
        assert (own.path, own.token, own.trials) == (exact.path, exact.token, exact.trials)


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
def test_a_run_counts_what_it_forgave_and_is_lossy(sampler: str) -> None:
    parts = dict(drafter=("draft_model", {"max_draft_tokens": 6}), sampler=sampler)
    session = toys.decode(
        toys.method(acceptance=("fly", {"window": 1, "threshold": 0.1}), **parts),
        count=80,
        pair=toys.pair(noise=0.05),
    )
    steps = [step for step in session.sink.steps if step.rule]
    assert check(session.sink).ok and not session.header.lossless
    assert any(
        run >= 1 and ok for step in steps for run, ok in zip(step.rule["run"], step.trials.ok, strict=True)
    )


def test_a_draft_that_is_too_short_for_the_window_is_told() -> None:
    session = toys.decode(
        toys.method(drafter=("draft_model", {"max_draft_tokens": 4}), acceptance="fly"), count=20
    )
    assert any("no place with 6 tokens after it" in one for one in session.end.notes)


def test_what_happened_is_derived_again_though_tests_ahead_took_uniforms() -> None:
    """A place whose test was made ahead of time, and then again in the next step, has used two uniforms."""
    session = toys.decode(
        toys.method(
            drafter=("draft_model", {"max_draft_tokens": 4}),
            acceptance=("fly", {"window": 1}),
            sampler="temperature",
        ),
        count=24,
        seed=2,
    )
    steps = session.sink.steps
    for step in steps:
        if step.draft is not None:
            again = derive(session.header, steps[: step.step], step, 0, WhatIfChange())
            assert again.emitted == step.emitted and not again.missing
    assert any(step.rule and step.rule["ahead"] for step in steps), "the test needs tests ahead"
