"""Leniency: lossless at epsilon 1, easier below it, and linear leniency makes no token more than 1 / l times as likely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
import toys
from law.verdicts import rows
from torch import Tensor

from decodescope.engine import Session
from decodescope.engine.decoding.bases.acceptance import Cursor
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.methods.acceptance.leniency import Leniency
from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.session.replay.exact_distribution import EnumeratedChance
from decodescope.engine.trace import check
from decodescope.testing.chances import outcomes

FORMS = ("linear", "square", "exponential")
DRAFTERS: dict[str, Any] = {
    "chain": ("draft_model", {"max_draft_tokens": 3}),
    "tree": ("draft_model", {"max_draft_tokens": 3, "width": 3}),
    "lookup": "prompt_lookup",
}


def first_token(rule: Leniency, p: Tensor, q: Tensor, siblings: int = 1) -> tuple[Tensor, float]:
    """(float64 [V]: distribution of the first token, share of steps that accept) with `siblings` independent draws from q."""

    def step(chance: EnumeratedChance) -> tuple[int, bool]:
        tokens = [chance.draw(q, 0, "draft").token for _ in range(siblings)]
        draft = Draft(tokens, [ROOT] * siblings, "iid", q[None], [0] * siblings, [None] * siblings)
        logits = p.log().expand(siblings + 1, len(p))
        verdict = rule.verify(
            draft, Cursor(draft, logits, [0] * (siblings + 1), Temperature(temperature=1.0), None, 0), chance
        )
        return (tokens[verdict.path[0]], True) if verdict.path else (verdict.token, False)

    law, share = torch.zeros(len(p), dtype=torch.float64), 0.0
    for weight, (token, accepted) in outcomes(step):
        law[token] += weight
        share += weight * accepted
    return law, share


def pairs(count: int, vocab: int = 4, seed: int = 0) -> Sequence[Tensor]:
    """float64 [count, 2, V]: random distributions p and q."""
    g = torch.Generator().manual_seed(seed)
    return (torch.randn(count, 2, vocab, generator=g, dtype=torch.float64) * 2).softmax(-1)


@pytest.mark.parametrize(
    ("form", "f"),
    [
        ("linear", [0.4, 0.6, 1.0]),
        ("square", [0.8, 1.2, 2.0]),
        ("exponential", [0.2**0.5, 0.3**0.5, 0.5**0.5]),
    ],
)
def test_worked_example(form: str, f: list[float]) -> None:
    """p = (0.2, 0.3, 0.5), q = (0.6, 0.4, 0), epsilon = 0.5.

    Token 0 is kept with min(1, f / 0.6), and token 1 always. A refusal leaves f1 - 0.4 and f2: under linear this is a fifth of
    all steps, shared 1 to 5.
    """
    law, share = first_token(Leniency(form=form, epsilon=0.5), *rows([0.2, 0.3, 0.5], [0.6, 0.4, 0.0]))
    refused = max(0.0, 0.6 - f[0])
    one, two = (x * refused / (f[1] - 0.4 + f[2]) for x in (f[1] - 0.4, f[2]))
    assert law.tolist() == pytest.approx([0.6 - refused, 0.4 + one, two]) and share == pytest.approx(
        1 - refused
    )
    if form == "linear":
        assert law.tolist() == pytest.approx([0.4, 0.4 + 0.2 / 6, 0.2 * 5 / 6])


@pytest.mark.parametrize("siblings", [1, 2])
def test_no_token_becomes_more_than_one_over_l_times_as_likely(siblings: int) -> None:
    closest = 0.0
    for i, (p, q) in enumerate(pairs(300 if siblings == 1 else 60, seed=siblings)):
        l = (0.9, 0.5, 0.2)[i % 3]  # noqa: E741 # the paper's letter
        law, _ = first_token(Leniency(epsilon=l), p, q, siblings)
        assert float(law.sum()) == pytest.approx(1) and bool((law <= p / l + 1e-12).all())
        closest = max(closest, float((law * l / p).max()))
    assert closest > 0.999, "the bound is reached"


@pytest.mark.parametrize("form", FORMS)
def test_acceptance_grows_and_the_law_moves_away_as_epsilon_falls(form: str) -> None:
    moved = 0
    for p, q in pairs(25, seed=3):
        found = [first_token(Leniency(form=form, epsilon=x), p, q) for x in (1.0, 0.8, 0.5, 0.2)]
        far = [float((law - p).abs().sum()) / 2 for law, _ in found]
        shares = [share for _, share in found]
        assert far[0] < 1e-12 and shares[0] == pytest.approx(float(torch.minimum(p, q).sum()))
        assert all(a <= b + 1e-12 for a, b in pairwise(shares))
        moved += shares[-1] > shares[0] + 0.05 and far[-1] > 0.05
    assert moved > 10, "the rule is labelled lossy and should be seen to be"


def drawn(drafter: str, **rule: Any) -> Session:
    """A sampled run of one of DRAFTERS."""
    return toys.decode(
        toys.method(drafter=DRAFTERS[drafter], sampler="temperature", **rule), count=40, seed=4
    )


drawn_losslessly = cache(drawn)


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("form", FORMS)
def test_epsilon_one_is_the_lossless_rule(form: str, drafter: str) -> None:
    """Same seed, same uniforms: the same verdicts, tests and text."""
    plain = drawn_losslessly(drafter)
    kind = drawn(drafter, acceptance=("leniency", {"form": form, "epsilon": 1.0}))
    assert kind.tokens == plain.tokens
    for a, b in zip(kind.sink.steps, plain.sink.steps, strict=True):
        assert a.path == b.path and (a.trials and replace(a.trials, num=None)) == b.trials
        assert not a.trials or a.trials.num == b.trials.r
    assert sum(len(x.trials.ok) for x in plain.sink.steps if x.trials) > 20, "the test needs guesses"


@pytest.mark.parametrize("form", FORMS)
def test_the_record_tells_each_verdict_again(form: str) -> None:
    """f follows from r and the knobs; ok is u * q < f; the threshold is f / q."""
    raise_r = {"linear": lambda r: r / 0.4, "square": lambda r: r / 0.16, "exponential": lambda r: r**0.4}[
        form
    ]
    parts = dict(drafter=("draft_model", {"max_draft_tokens": 3, "width": 2}), sampler="temperature")
    session = toys.decode(
        toys.method(acceptance=("leniency", {"form": form, "epsilon": 0.4}), **parts), count=100, seed=1
    )
    assert not session.header.lossless and check(session.sink).ok
    spared = 0
    for step in session.sink.steps:
        if step.trials is not None:
            t, f = step.trials, step.trials.num
            assert f == pytest.approx([raise_r(r) for r in t.r])
            assert t.ok == [u * q < f_x for u, q, f_x in zip(t.u, t.q, f, strict=True)]
            assert t.threshold == pytest.approx([f_x / q for f_x, q in zip(f, t.q, strict=True)])
            spared += sum(ok and u * q >= r for ok, u, q, r in zip(t.ok, t.u, t.q, t.r, strict=True))
    assert spared > 5, "the test needs guesses that the lossless rule would have refused"
