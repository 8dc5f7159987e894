"""GEAR: three parts of an error, each smaller than the one before, and outliers that are restored exactly."""

from __future__ import annotations

import pytest
import torch
import toys

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.methods.kv_compression.gear import Gear, factor_low_rank
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.method import MethodError

SIDES = ("keys", "values")


def gear(**knobs) -> Gear:
    return build("kv_compression", "gear", dict(group=8, buffer=16, **knobs))


def entries(length: int = 32) -> torch.Tensor:
    """float64 [2, 3, length, 8]: noise with heavy tails."""
    x = torch.randn(2, 3, length, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return x * x.abs()


def error(codec: Gear, x: torch.Tensor, side: str) -> torch.Tensor:
    return codec.decode(codec.encode(x, side), side) - x


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("bits", ["2", "4"])
def test_error_falls_with_each_part(side: str, bits: str) -> None:
    x = entries()
    parts = (dict(sparsity=0.0, rank=0), dict(sparsity=0.1, rank=0), dict(sparsity=0.1, rank=3))
    errors = [error(gear(bits=bits, **knobs), x, side).norm().item() for knobs in parts]
    assert errors[0] > 1.2 * errors[1] > 1.2 * 1.2 * errors[2], errors


@pytest.mark.parametrize("side", SIDES)
def test_everything_kept_or_a_full_rank_is_exact(side: str) -> None:
    x = entries()
    assert torch.equal(error(gear(sparsity=1.0, rank=0), x, side), torch.zeros_like(x))
    assert error(gear(sparsity=0.0, rank=8), x, side).abs().max() < 1e-12
    assert error(gear(sparsity=0.0, rank=7), x, side).abs().max() > 1e-3


@pytest.mark.parametrize("side", SIDES)
def test_outliers_are_exact_where_they_are_put_back_last(side: str) -> None:
    x = entries()
    x[0, 1, 5, 2], x[1, 2, 9, 7] = 100, -100
    last, first = (
        error(gear(sparsity=0.05, rank=2, outlier_order=where), x, side) for where in ("last", "first")
    )
    assert last[0, 1, 5, 2] == last[1, 2, 9, 7] == 0
    assert min(first[0, 1, 5, 2].abs(), first[1, 2, 9, 7].abs()) > 1e-6, "the low rank was added to them"
    assert last.norm() < first.norm()


def test_fit_of_low_rank_is_a_projection_and_near_the_best_one() -> None:
    x = entries()
    rest = [x.norm()]
    for rank in (1, 3, 8):
        q, p = factor_low_rank(x, rank, 20)
        assert torch.allclose(q.mT @ q, torch.eye(rank, dtype=x.dtype).expand(2, 3, -1, -1), atol=1e-9)
        rest.append((x - q @ p.mT).norm())
        best = torch.linalg.svdvals(x)[..., rank:].norm()
        assert best - 1e-9 <= rest[-1] <= 1.05 * best + 1e-9
    assert rest == sorted(rest, reverse=True)
    assert all(
        torch.equal(a, b) for a, b in zip(factor_low_rank(x, 2, 3), factor_low_rank(x, 2, 3), strict=True)
    ), "no chance in it"


@torch.inference_mode()
def test_bytes_are_measured_and_a_prompt_has_a_rank_of_its_own() -> None:
    codec = gear(sparsity=0.1, rank=3, decode_rank=1)
    made = Lane("target", toys.pair()[0].decoder, KeepAll(), kv_compression=codec)
    made.read(toys.PROMPT * 3)  # 45 tokens
    for token in toys.PROMPT[:5]:
        made.forward(Feed.causal_chain([token], len(made.tokens)))
        made.commit([0])
    long, short = made.cache.layers[0].blocks
    assert (long.first, long.stop, short.stop) == (0, 32, 48)
    assert [x.parts[side]["q"].shape[3] for x in (long, short) for side in SIDES] == [3, 3, 1, 1]
    assert short.nbytes == 2 * 2 * 16 * 8 * codec.mean_stored_bits(toys.SPEC, 64) / 8


def test_groups_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        MethodError, match=r"^gear packs whole .* buffer = 40 is no multiple of group = 64; set it to 64\.$"
    ):
        toys.method(kv_compression=("gear", dict(buffer=40))).check(toys.SPEC)
