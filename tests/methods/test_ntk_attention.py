"""NTK-Attention: the state equals the kernel prefix that it represents; without a state the model is unchanged."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import toys

from decodescope.engine.model.attention.attention import attention_weights
from decodescope.engine.model.attention.linear_segment import LinearSegment, feature_map
from decodescope.engine.model.attention.segments import DenseSegment, attend_segments
from decodescope.engine.session.method import Method, MethodError

H_KV, G, D, SCALE = 2, 2, 8, 8**-0.5


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    """float64, random."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("m", [1, 7, 300])
def test_the_state_is_attention_over_the_prefix_that_it_stands_for(m: int) -> None:
    """Compared with the two sums written out, with phi(q) . phi(k_i) for every one of m prefix entries."""
    q, k, v = drawn(3, H_KV, G, 5, D), drawn(3, H_KV, 6, D, seed=1), drawn(3, H_KV, 6, D, seed=2)
    prefix, values = drawn(H_KV, G, m, D, seed=3), drawn(H_KV, G, m, D, seed=4)
    far = feature_map(prefix, SCALE)
    state = LinearSegment(z=far.mT @ values, k=far.sum(2))
    mine = attend_segments([DenseSegment(k=k, v=v), state], {"original": q}, SCALE)
    near = (q @ k.mT[:, :, None] * SCALE).exp()
    kernel = feature_map(q, SCALE) @ far.mT  # [3, H_kv, g, 5, m]
    due = (near @ v[:, :, None] + kernel @ values) / (near.sum(-1) + kernel.sum(-1))[..., None]
    assert torch.allclose(mine, due, atol=1e-12)
    assert not torch.allclose(mine, attention_weights(q, k, None, SCALE) @ v[:, :, None], atol=1e-3), (
        "the prefix counts"
    )


def test_phi_is_that_of_the_paper() -> None:
    x = drawn(4, D)
    assert torch.allclose(feature_map(x, SCALE), torch.nn.ELU()(x / D**0.25) + 1)
    assert bool((feature_map(100 * x, SCALE) >= 0).all())


def test_zeros_are_the_model_alone() -> None:
    """In float64 up to rounding, and with large scores: 0 is added to both sums."""
    q, k, v = 30 * drawn(1, H_KV, G, 5, D), drawn(1, H_KV, 6, D, seed=1), drawn(1, H_KV, 6, D, seed=2)
    state = LinearSegment(z=torch.zeros(H_KV, G, D, D), k=torch.zeros(H_KV, G, D))
    mine = attend_segments([DenseSegment(k=k, v=v), state], {"original": q}, SCALE)
    assert torch.allclose(mine, attention_weights(q, k, None, SCALE) @ v[:, :, None], atol=1e-12)


def test_a_negative_vector_counts_as_its_absolute_value() -> None:
    q, k = drawn(1, H_KV, G, 5, D), drawn(H_KV, G, D, seed=5)
    z = torch.zeros(H_KV, G, D, D, dtype=torch.float64)
    parts = [LinearSegment(z=z, k=x).attend(q, None, SCALE) for x in (k, k.abs())]
    assert torch.equal(parts[0].denominator, parts[1].denominator) and bool((parts[0].denominator > 0).all())


def test_without_strength_the_run_is_plain_bit_for_bit_and_with_it_is_not() -> None:
    plain = toys.decode(Method(), count=24)
    off = toys.decode(toys.method(prompt_compression=("ntk_attention", {"strength": 0.0})), count=24)
    on = toys.decode(toys.method(prompt_compression="ntk_attention"), count=24)
    assert off.tokens == plain.tokens and off.target.cache.nbytes == plain.target.cache.nbytes
    for a, b in zip(off.target.cache.layers, plain.target.cache.layers, strict=True):
        assert torch.equal(a.k, b.k) and torch.equal(a.v, b.v)
    assert on.tokens != plain.tokens, "the test needs a state that says something"
    assert on.target.cache.nbytes == plain.target.cache.nbytes, "it holds no entries"


def test_drafts_change_no_text() -> None:
    plain = toys.decode(toys.method(prompt_compression="ntk_attention"), count=30)
    drafted = toys.decode(toys.method(prompt_compression="ntk_attention", drafter="draft_model"), count=30)
    assert drafted.tokens == plain.tokens and sum(step.drafted for step in drafted.sink.steps) > 20


def test_a_model_without_a_state_is_refused_with_the_command_that_trains_one() -> None:
    big, _ = toys.pair()
    with pytest.raises(MethodError, match=r"training\.cacheparts ntk_attention --within 10"):
        toys.method(prompt_compression="ntk_attention").check(replace(big.spec, heads=()))
