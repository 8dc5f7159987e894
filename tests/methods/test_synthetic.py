"""Synthetic acceptance: drafts stay exactly as often as was set, whatever the distributions are, and everything says so."""

from __future__ import annotations

import pytest
import torch
import toys
from law.verdicts import judge

from decodescope.engine import MethodError
from decodescope.engine.decoding.bases.acceptance import Cursor
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.methods.acceptance.synthetic import Synthetic
from decodescope.engine.methods.samplers.greedy import Greedy
from decodescope.engine.session.replay.exact_distribution import EnumeratedChance
from decodescope.engine.trace import check
from decodescope.testing.chances import outcomes

CHAIN = ("draft_model", {"max_draft_tokens": 4})


def kept_shares(rule: Synthetic, length: int, greedy: bool, seed: int = 0) -> list[float]:
    """Per number of tokens from 1, the probability that at least so many stay, by counting every outcome."""
    g = torch.Generator().manual_seed(seed)
    p = (torch.randn(length + 1, 3, generator=g, dtype=torch.float64) * 3).softmax(-1)
    q = (torch.randn(length, 3, generator=g, dtype=torch.float64) * 3).softmax(-1)
    tokens = p[:length].argmin(-1).tolist()  # what the target would hardly write

    def step(chance: EnumeratedChance) -> int:
        if not greedy:
            return len(judge(rule, p, q, tokens, chance).path)
        at = Cursor(Draft.chain(tokens), p.log(), p.argmax(-1).tolist(), Greedy(), None, 0)
        return len(rule.verify(at.draft, at, chance).path)

    counts = [(weight, n) for weight, n in outcomes(step)]
    return [sum(weight for weight, n in counts if n >= i) for i in range(1, length + 1)]


@pytest.mark.parametrize("greedy", [False, True])
def test_the_shares_are_the_rates_whatever_the_models_say(greedy: bool) -> None:
    rates = (0.9, 0.6, 0.6, 0.1)
    for seed in range(3):
        assert kept_shares(Synthetic(acceptance_rates=rates), 4, greedy, seed) == pytest.approx(
            rates, abs=1e-12
        )
    assert kept_shares(Synthetic(acceptance_rates=(0.5,)), 3, greedy) == pytest.approx([0.5, 0, 0], abs=1e-12)
    assert kept_shares(Synthetic(acceptance_rates=(0.5, 0.0, 0.0)), 3, greedy)[1:] == [0.0, 0.0]


@pytest.mark.parametrize("length", [1.0, 2.4, 3.0, 5.0])
def test_the_mean_length_is_the_one_that_was_set(length: float) -> None:
    shares = kept_shares(Synthetic(acceptance_length=length), 4, greedy=False)
    assert 1 + sum(shares) == pytest.approx(length, abs=1e-12)
    assert sum(0 < x < 1 for x in shares) <= 1, "with the least variance"


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
def test_a_run_writes_so_many_tokens_a_step_and_is_labelled(sampler: str) -> None:
    session = toys.decode(
        toys.method(drafter=CHAIN, acceptance=("synthetic", {"acceptance_length": 3.0}), sampler=sampler),
        count=30,
    )
    assert {len(step.emitted) for step in session.sink.steps[:-2]} == {3}
    assert check(session.sink).ok and not session.header.lossless
    assert session.header.parts["acceptance"]["changes"].startswith("not the model's text")
    assert "not the model's" in Synthetic.caution


@pytest.mark.parametrize(
    ("knobs", "why"),
    [
        ({"acceptance_rates": [0.5, 0.8]}, "a rate is above the one before it"),
        ({"acceptance_length": 0.5}, "a step writes at least 1 token"),
    ],
)
def test_rates_that_no_run_can_have_are_refused(knobs: dict, why: str) -> None:
    with pytest.raises(MethodError, match=why):
        toys.open_session(toys.method(drafter=CHAIN, acceptance=("synthetic", knobs)))
