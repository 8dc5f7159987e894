"""Ensemble: a drafted place has the mixture's distribution exactly, at the distance and the acceptance that the paper gives."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import toys
from law.verdicts import judge
from torch import Tensor

from decodescope.engine.decoding.bases.acceptance import Cursor
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.methods.acceptance.static_ensemble import StaticEnsemble
from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.session.replay.exact_distribution import EnumeratedChance
from decodescope.engine.trace import check
from decodescope.testing.chances import outcomes


def pairs(count: int, vocab: int = 5) -> Tensor:
    """float64 [count, 2, V]: random distributions p and q."""
    g = torch.Generator().manual_seed(5)
    return (torch.randn(count, 2, vocab, generator=g, dtype=torch.float64) * 2).softmax(-1)


def first_token(w: float, p: Tensor, q: Tensor, onehot: bool) -> tuple[Tensor, float]:
    """(float64 [V]: distribution of the first token, share of steps that accept) for one token drafted from q."""
    rule, logits = StaticEnsemble(target_weight=w), p.log().expand(2, len(p))

    def step(chance: EnumeratedChance) -> tuple[int, bool]:
        if onehot:
            x = int(q.argmax())
            at = Cursor(Draft.chain([x]), logits, [0, 0], Temperature(temperature=1.0), None, 0)
            verdict = rule.verify(at.draft, at, chance)
        else:
            x = chance.draw(q, 0, "draft").token
            verdict = judge(rule, p.expand(2, len(p)), q[None], [x], chance)
        return (x, True) if verdict.path else (verdict.token, False)  # type: ignore[return-value] # a text goes on

    law, share = torch.zeros(len(p), dtype=torch.float64), 0.0
    for weight, (token, accepted) in outcomes(step):
        law[token] += weight
        share += weight * accepted
    return law, share


@pytest.mark.parametrize("onehot", [False, True])
@pytest.mark.parametrize("w", [0.0, 0.3, 0.8, 1.0])
def test_a_drafted_place_has_the_mixture_and_its_acceptance(w: float, onehot: bool) -> None:
    """v = w p + (1 - w) q: accepted with 1 - w TV(p, q), and at the distance (1 - w) TV(p, q) to p."""
    for p, q in pairs(12):
        if onehot:
            q = torch.eye(len(q), dtype=torch.float64)[int(q.argmax())]
        law, share = first_token(w, p, q, onehot)
        far = float((p - q).abs().sum()) / 2
        assert float((law - (w * p + (1 - w) * q)).abs().max()) < 1e-12 and far > 0.05
        assert share == pytest.approx(1 - w * far, abs=1e-12)
        assert float((law - p).abs().sum()) / 2 == pytest.approx((1 - w) * far, abs=1e-12)


def test_all_weight_on_the_target_is_the_lossless_rule() -> None:
    """Same seed, same uniforms: the same tests and text."""
    parts = dict(drafter=("draft_model", {"max_draft_tokens": 3}), sampler="temperature")
    plain = toys.decode(toys.method(**parts), seed=4)
    mixed = toys.decode(toys.method(acceptance=("static_ensemble", {"target_weight": 1.0}), **parts), seed=4)
    assert mixed.tokens == plain.tokens
    pairs_of = zip(mixed.sink.steps, plain.sink.steps, strict=True)
    assert all((a.trials and replace(a.trials, num=None)) == b.trials for a, b in pairs_of)


def test_the_header_calls_it_lossy_and_the_record_tells_each_verdict_again() -> None:
    parts = dict(drafter=("draft_model", {"max_draft_tokens": 3}), sampler="temperature")
    session = toys.decode(
        toys.method(acceptance=("static_ensemble", {"target_weight": 0.4}), **parts), seed=1
    )
    assert not session.header.lossless and check(session.sink).ok
    kept = [
        ok and u * q >= r
        for step in session.sink.steps
        if (t := step.trials) is not None
        for ok, u, q, r in zip(t.ok, t.u, t.q, t.r, strict=True)
    ]
    assert sum(kept) > 2, "the test needs guesses that the lossless rule would have refused"
