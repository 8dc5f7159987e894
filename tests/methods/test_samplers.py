"""Samplers: each distribution by its definition, their limits, their order, and draws that follow the distribution."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import toys
from markov import write_markov
from torch import Tensor

from decodescope.engine.core.component import build, registry
from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.bases.sampler import softmax
from decodescope.engine.decoding.values.alphabet import Alphabet
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.methods.samplers.chain import Chain

V = 50
LETTERS = [bytes([97 + i]) for i in range(V - 1)] + [b"<end>"]
ALPHABET = Alphabet(V, frozenset({V - 1}), frozenset({V - 1}), lambda: LETTERS)
STATEFUL = [name for name in registry("sampler") if build("sampler", name).stateful]


def made(name: str, **knobs):
    return build("sampler", name, knobs)


def logits(seed: int = 0, rows: int = 1) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(rows, V, generator=g, dtype=torch.float64).mul(2.5)[0 if rows == 1 else slice(None)]


def kept(warped: Tensor) -> set[int]:
    return set(torch.isfinite(warped).nonzero().flatten().tolist())


@pytest.mark.parametrize(
    ("name", "settings"), [*toys.variants("sampler"), ("top_p", {"p": 0.0}), ("min_p", {"p": 1.0})]
)
def test_sampler_is_pure_and_leaves_something(name: str, settings: dict, tmp_path: Path) -> None:
    """The input state and logits are unchanged, the distribution has a token, and the same question has the same answer."""
    if "markov_file" in settings:  # a file is of one alphabet
        settings = settings | {"markov_file": write_markov(tmp_path, ALPHABET)}
    sampler = build("sampler", name, settings)
    state = sampler.start([3, 1, 4], V, ALPHABET)
    for seed in range(20):
        z = logits(seed)
        before, was = z.clone(), repr(state)
        law = softmax(sampler.warp(z, state))
        assert (
            torch.equal(z, before)
            and repr(state) == was
            and torch.equal(law, softmax(sampler.warp(z, state)))
        )
        assert abs(float(law.sum()) - 1) < 1e-12 and float(law.max()) > 0
        after = sampler.update(state, int(law.argmax()), z)
        assert repr(state) == was and torch.equal(z, before)
        assert sampler.stateful or after == state, "who changes a state says so"
        state = after


def test_many_rows_at_once_are_the_rows_one_by_one() -> None:
    z = logits(1, rows=6)
    for name, settings in toys.variants("sampler"):
        sampler = build("sampler", name, settings)
        if not sampler.stateful:
            state = sampler.start([], V, ALPHABET)
            assert torch.equal(sampler.warp(z, state), torch.stack([sampler.warp(row, state) for row in z]))


def test_each_cut_keeps_what_its_words_say() -> None:
    for seed in range(10):
        z = logits(seed)
        p, order = softmax(z), softmax(z).argsort(descending=True).tolist()
        for k in (1, 3, 20):
            assert kept(made("top_k", k=k).warp(z, None)) == set(order[:k])
        for share in (0.01, 0.2, 0.9):
            assert kept(made("min_p", p=share).warp(z, None)) == {
                x for x in range(V) if p[x] >= share * p.max()
            }
        for mass in (0.3, 0.8, 0.99):
            count = next(n for n in range(1, V + 1) if float(p[order[:n]].sum()) >= mass)
            assert kept(made("top_p", p=mass).warp(z, None)) == set(order[:count])
        for mu in (0.5, 2.0, 4.0):
            rare = {x for x in range(V) if -math.log2(p[x]) <= mu}
            assert kept(made("mirostat").warp(z, mu)) == (rare or {order[0]})


def test_kept_sets_are_nested() -> None:
    z = logits(3)
    for name, knob, rising in (
        ("top_k", "k", [1, 2, 5, 20, V]),
        ("top_p", "p", [0.0, 0.2, 0.5, 0.9, 1.0]),
        ("min_p", "p", [1.0, 0.5, 0.1, 0.01, 0.0]),
    ):
        sets = [kept(made(name, **{knob: x}).warp(z, None)) for x in rising]
        assert all(a <= b for a, b in pairwise(sets)) and len(sets[0]) == 1 and len(sets[-1]) == V


def test_limits_are_greedy_and_identity() -> None:
    for seed in range(10):
        z = logits(seed)
        best = int(z.argmax())
        for sampler in (
            made("greedy"),
            made("temperature", temperature=0.0),
            made("top_k", k=1),
            made("top_p", p=0.0),
        ):
            assert kept(sampler.warp(z, None)) == {best}
        assert float(softmax(made("temperature", temperature=0.001).warp(z, None))[best]) > 1 - 1e-6
        for sampler in (
            made("temperature"),
            made("top_k", k=V),
            made("top_p", p=1.0),
            made("min_p", p=0.0),
            Chain(),
        ):
            assert torch.equal(sampler.warp(z, []), z)
        assert torch.equal(made("repetition_penalty", penalty=1.0).warp(z, frozenset({1, 2})), z)


@pytest.mark.parametrize("temperature", [1e-31, 5e-39, 5e-324])
def test_a_temperature_too_small_for_single_precision_is_refused(temperature: float) -> None:
    with pytest.raises(ParamError, match=r"must be 0, which is greedy, or at least 1e-30\.$"):
        made("temperature", temperature=temperature)
    for seed in range(10):
        p = softmax(made("temperature", temperature=1e-30).warp(logits(seed), None))
        assert torch.isfinite(p).all() and Chance(seed).draw(p, 0).token == int(logits(seed).argmax())


def test_ties_at_the_cut() -> None:
    """Equal logits: top-k keeps all that equal the k-th, top-p orders them by id, greedy takes the lowest id."""
    z = torch.tensor([1.0, 2.0, 2.0, 2.0, 0.0])
    assert kept(made("top_k", k=2).warp(z, None)) == {1, 2, 3}
    assert kept(made("top_p", p=0.3).warp(z, None)) == {1, 2}
    assert kept(made("greedy").warp(z, None)) == {1}


def test_order_of_a_chain_matters() -> None:
    """Logits (3, 2, 1), top-p 0.8, T = 0.5: temperature last keeps two tokens, temperature first one."""
    z, nucleus, cool = (
        torch.tensor([3.0, 2.0, 1.0]),
        made("top_p", p=0.8),
        made("temperature", temperature=0.5),
    )
    last, first = Chain(stages=[nucleus, cool]), Chain(stages=[cool, nucleus])
    assert kept(last.warp(z, [None] * 2)) == {0, 1} and kept(first.warp(z, [None] * 2)) == {0}


def test_stage_of_a_chain_sees_what_the_stages_before_left() -> None:
    """mu moves by the surprise under the distribution that entered mirostat, not under the raw one."""
    chain, z = (
        Chain(stages=[made("temperature", temperature=0.5), made("mirostat", target_surprise=2.0)]),
        logits(2),
    )
    state = chain.start([], V)
    alone = made("mirostat", target_surprise=2.0)
    for token in (3, 8, int(z.argmax())):
        assert chain.update(state, token, z)[1] == alone.update(state[1], token, z / 0.5)


def test_repetition_penalty_divides_and_multiplies() -> None:
    z = torch.tensor([2.0, -2.0, 0.0, 4.0, -4.0])
    warped = made("repetition_penalty", penalty=2.0).warp(z, frozenset({0, 1, 2}))
    assert warped.tolist() == [1.0, -4.0, 0.0, 4.0, -4.0]


@pytest.mark.parametrize("name", ["temperature", "top_k", "top_p", "min_p"])
def test_draws_follow_the_law(name: str) -> None:
    """Chi-square of 20,000 draws through Chance at the one-in-a-million level."""
    from scipy.stats import chi2

    law = softmax(build("sampler", name, toys.SETTINGS[name][0]).warp(logits(7), None))
    chance, n = Chance(5), 20_000
    counts = torch.bincount(torch.tensor([chance.draw(law, i).token for i in range(n)]), minlength=V)
    assert not counts[law == 0].any()
    common = law * n >= 5
    seen, due = counts[common].double(), law[common] * n
    rest = n - float(due.sum())
    statistic = float(((seen - due) ** 2 / due).sum()) + (
        (n - int(seen.sum()) - rest) ** 2 / rest if rest > 5 else 0.0
    )
    assert statistic < chi2.isf(1e-6, len(seen))


def zipf(exponent: float) -> Tensor:
    """Logits of a distribution in which rank r has a probability proportional to r^-exponent."""
    return -torch.arange(1, 2001, dtype=torch.float64).log() * exponent


@pytest.mark.parametrize("tau", [2.0, 3.0, 5.0])
def test_mirostat_holds_the_surprise(tau: float) -> None:
    """On a Zipf distribution the mean surprise is tau, and mu_T = mu_0 - eta * sum(surprise - tau) while mu is not clamped."""
    z = zipf(1.0 if tau == 5 else 1.5)
    sampler, chance = made("mirostat", target_surprise=tau, learning_rate=0.1), Chance(1)
    full = z.log_softmax(0) / math.log(2)
    mu, surprises = sampler.start([], 2000), []
    first = mu
    for i in range(3000):
        token = chance.draw(softmax(sampler.warp(z, mu)), i).token
        surprises.append(-float(full[token]))
        assert surprises[-1] <= mu or token == 0
        mu = sampler.update(mu, token, z)
        assert 0 <= mu <= 4 * tau
    assert mu == pytest.approx(first - 0.1 * sum(x - tau for x in surprises), abs=1e-6)
    assert abs(sum(surprises) / len(surprises) - tau) < 0.15


def test_mirostat_measured_on_what_was_kept_overshoots() -> None:
    z = zipf(1.5)
    full, means = -z.log_softmax(0) / math.log(2), {}
    for measure in ("full", "kept"):
        sampler, chance, total = made("mirostat", target_surprise=3.0, measure=measure), Chance(2), 0.0
        mu = sampler.start([], 2000)
        for i in range(1500):
            token = chance.draw(softmax(sampler.warp(z, mu)), i).token
            total += float(full[token])
            mu = sampler.update(mu, token, z)
        means[measure] = total / 1500
    assert means["kept"] > means["full"] + 0.1
