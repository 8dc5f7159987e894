"""Mirostat 1: the exponent and k by their formulas, mu by the surprises of a run, and a surprise that stays at its target."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
import toys

from decodescope.engine.decoding.bases.sampler import softmax
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.methods.samplers.mirostat1 import Mirostat1


def zipf(s: float, n: int = 2000) -> torch.Tensor:
    return -torch.arange(1, n + 1, dtype=torch.float64).log() * s


@pytest.mark.parametrize("s", [0.3, 0.9, 1.0, 1.2, 2.5])
def test_the_exponent_of_a_zipf_law_is_found_and_k_is_the_formula(s: float) -> None:
    sampler, n = Mirostat1(), 2000
    z = zipf(s)[torch.randperm(n, generator=torch.Generator().manual_seed(1))]
    assert sampler.exponent(z) == pytest.approx(s, abs=1e-9)
    for mu in (0.5, 2.0, 6.0, 9.0):
        eps = s - 1
        whole = (eps * 2**mu / (1 - n**-eps)) if eps else 2**mu / math.log(n)
        due = min(round(min(max(whole, 1e-300) ** (1 / s), n) if whole ** (1 / s) > 1 else 1) + 1, n)
        assert sampler.kept_count(s, mu, n) == due
        state = sampler.start([], n)._replace(mu=mu)
        assert int(torch.isfinite(sampler.warp(z, state)).sum()) == due
    near = [sampler.kept_count(1 + x, 6.0, n) for x in (-2e-6, -1e-7, 0.0, 1e-7, 2e-6)]
    assert len(set(near)) == 1, "the limit at s = 1 joins both sides"


def test_flat_laws_removed_tokens_and_small_vocabularies() -> None:
    sampler = Mirostat1(target_surprise=2.0)
    for z in (
        torch.zeros(7),
        torch.tensor([3.0]),
        torch.tensor([1.0, -torch.inf, -torch.inf]),
        zipf(1.0, 5).float(),
    ):
        state = sampler.start([], len(z))
        law = softmax(sampler.warp(z, state))
        assert torch.isfinite(law).all() and float(law.max()) > 0
        state = sampler.update(state, int(z.argmax()), z)
        assert -8 <= state.mu <= 8 and sampler.state_summary(state)["k"] == state.k
    assert sampler.kept_count(1e-12, 4.0, 7) == 7 and sampler.kept_count(math.inf, 4.0, 7) == 1


@pytest.mark.parametrize("tau", [3.0, 4.0])
def test_the_surprise_is_held(tau: float) -> None:
    """mu_T = mu_0 - eta * sum(surprise - tau), so the mean surprise is tau while mu stays bounded."""
    z = zipf(1.1)
    full, sampler, chance = -z.log_softmax(0) / math.log(2), Mirostat1(target_surprise=tau), Chance(3)
    state, total = sampler.start([], 2000), 0.0
    n = 1500
    for i in range(n):
        token = chance.draw(softmax(sampler.warp(z, state)), i).token
        total += float(full[token])
        state = sampler.update(state, token, z)
        assert state.mu == pytest.approx(2 * tau - (total - (i + 1) * tau), abs=1e-6), "and it is not clamped"
    assert abs(total / n - tau) < 0.05


def test_a_trace_tells_mu_and_what_moved_it() -> None:
    """From step to step mu moves by the recorded surprise."""
    method = toys.method(
        sampler=("mirostat1", {"target_surprise": 2.0, "learning_rate": 0.5, "zipf_tokens": 10})
    )
    shown = [step.sampler for step in toys.decode(method, count=30).sink.steps]
    assert shown[0] == {"mu": 4.0, "surprise": None, "exponent": None, "k": None}
    assert len({x["k"] for x in shown}) > 3
    for before, after in pairwise(shown):
        assert after["mu"] == pytest.approx(
            min(max(before["mu"] - 0.5 * (after["surprise"] - 2.0), -8.0), 8.0), abs=1e-12
        )
