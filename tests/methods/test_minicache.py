"""MiniCache: one direction for two layers, each with its own length; the most different entries stay unmerged."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
import toys

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.methods.kv_compression.minicache import MiniCache, slerp
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import PAGE
from decodescope.engine.session.method import MethodError

SIDES = ("keys", "values")


def minicache(**knobs) -> MiniCache:
    return build("kv_compression", "minicache", dict(buffer=20, **knobs))


def entries(seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """[2, 3, 20, 8]: entries of a layer."""
    return torch.randn(2, 3, 20, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(
        dtype
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_equal_layers_come_back_and_so_do_lengths(dtype: torch.dtype) -> None:
    x, eps = entries(0, dtype), torch.finfo(dtype).eps
    x[0, 0, 3] = 0
    one = minicache(retention=0.0)
    merged = one.merge(x, 3 * x, "keys")
    lower, upper = (one.decode(parts, "keys") for parts in (merged.lower, merged.upper))
    assert torch.allclose(lower, x, rtol=4 * eps, atol=0) and torch.allclose(
        upper, 3 * x, rtol=4 * eps, atol=0
    )
    layers = entries(0, dtype), entries(1, dtype)
    merged = one.merge(*layers, "keys")
    for parts, was in zip((merged.lower, merged.upper), layers, strict=True):
        assert torch.allclose(one.decode(parts, "keys").norm(dim=-1), was.norm(dim=-1), rtol=8 * eps)
        assert not torch.allclose(one.decode(parts, "keys"), was, rtol=0.1), "they point elsewhere"


def test_direction_has_length_one_and_divides_the_angle() -> None:
    u, v = (F.normalize(entries(seed), dim=-1) for seed in (0, 1))
    u[0, 0, 0], v[0, 0, 0] = v[0, 0, 1], -v[0, 0, 1]  # opposite
    v[0, 0, 2] = F.normalize(u[0, 0, 2] + 1e-9, dim=-1)  # almost parallel
    e, angle = slerp(u, v, 0.3)
    assert (e.norm(dim=-1) - 1).abs().max() < 1e-12 and math.isclose(angle[0, 0, 0], math.pi)
    assert torch.allclose(angle, (u * v).sum(-1).clamp(-1, 1).acos(), atol=1e-6)
    arcs = [2 * torch.atan2((e - x).norm(dim=-1), (e + x).norm(dim=-1)) for x in (u, v)]
    one_arc = angle < 3.14
    assert torch.allclose(arcs[0][one_arc], 0.3 * angle[one_arc]) and torch.allclose(
        arcs[1][one_arc], 0.7 * angle[one_arc]
    )


@pytest.mark.parametrize("side", SIDES)
def test_entries_furthest_apart_are_retained_as_they_were(side: str) -> None:
    one, layers = minicache(retention=0.21), (entries(0), entries(1))
    merged = one.merge(*layers, side)
    cosine = torch.cosine_similarity(*layers, dim=-1)
    for parts, was in zip((merged.lower, merged.upper), layers, strict=True):
        same = (one.decode(parts, side) == was).all(-1)
        assert (same.sum(-1) == 5).all(), "0.21 of 20 entries, rounded up"
        assert torch.equal(same, cosine <= cosine.sort(dim=-1).values[..., 4:5])
    assert math.isclose(merged.angle, cosine.acos().mean())


def test_merging_before_or_behind_the_rotation_is_the_same() -> None:
    one, (a, b) = minicache(), (entries(0), entries(1))
    turn = torch.linalg.qr(entries(2)[0, 0, :8]).Q  # both layers' keys of a position are rotated alike
    before, behind = one.merge(a, b, "keys").lower, one.merge(a @ turn, b @ turn, "keys").lower
    assert torch.allclose(one.decode(before, "keys") @ turn, one.decode(behind, "keys"))


@torch.inference_mode()
def test_pair_takes_half_of_two_layers_and_what_is_retained() -> None:
    one = minicache(retention=0.1)
    lane = Lane("target", toys.pair()[0].decoder, KeepAll(), kv_compression=one)
    lane.read(toys.prompts(1, 40)[0])
    lone, lower, upper = lane.cache.layers
    page = 2 * 2 * 8 * 8 * PAGE  # keys and values of two heads with 8 channels of 8 bytes
    whole, D = 40 * 2 * 2 * 8 * 8, 8
    places = 2 * 2 * 40 // 10 * 2  # of 16 bits
    pair = [
        sum(x.untyped_storage().nbytes() for x in block.tensors) for s in (lower, upper) for block in s.blocks
    ]
    assert (
        sum(pair)
        == round(2 * whole * (1 / 2 + 1 / D + 0.1)) + places
        == lower.nbytes() + upper.nbytes() - 2 * page
    )
    assert (
        lone.packed_entries == 0
        and lower.packed_entries == upper.packed_entries == 40
        and lone.nbytes() == whole + page // 2
    )
    assert lane.cache.memory.held == sum(s.nbytes() for s in lane.cache.layers), "what is shared counts once"
    shared = [
        upper.blocks[0].parts[side]["direction"] is lower.blocks[0].parts[side]["direction"] for side in SIDES
    ]
    lane.cache.reorder(torch.tensor([0, 0]))
    shared += [
        upper.blocks[0].parts[side]["direction"] is lower.blocks[0].parts[side]["direction"] for side in SIDES
    ]
    assert all(shared) and upper.blocks[0].parts["keys"]["direction"].shape[0] == 2
    assert lane.cache.memory.held == sum(s.nbytes() for s in lane.cache.layers)
    for at in range(19):  # one step late: entries stay whole until twenty have accumulated
        lane.forward(Feed(torch.tensor([[at % 13]] * 2), torch.full((2, 1), 40 + at)))
        lane.commit([0])
    assert lower.packed_entries == upper.packed_entries == 40
    lane.truncate(30)
    assert (
        lower.packed_entries == upper.packed_entries == 0 and lower.nbytes() == upper.nbytes() == 2 * 2 * page
    )


def test_distance_of_each_pair_is_told_and_a_model_without_a_pair_is_refused() -> None:
    run = toys.decode(toys.method(kv_compression=("minicache", dict(buffer=4, start_layer=0))), count=12)
    told = [step.cache[0].packed for step in run.sink.steps if step.cache[0].packed is not None]
    assert len(told) > 2 and all(
        set(x.notes["distance"]) == {"0+1"} and 0.2 < x.notes["distance"]["0+1"] < 0.8 for x in told
    )
    assert run.header.parts["kv_compression"]["reads"] > 64 > run.header.parts["kv_compression"]["bits"]
    with pytest.raises(
        MethodError,
        match=r"^minicache\.start_layer = 2: no two of toy's 3 layers are left .*; choose 0 to 1\.$",
    ):
        toys.method(kv_compression=("minicache", dict(start_layer=2))).check(toys.SPEC)
    toys.method(kv_compression="minicache").check(toys.toy_spec(n_layers=2))
    with pytest.raises(
        MethodError, match=r"toy's 1 layers are left to be merged; choose kv_compression unpacked\.$"
    ):
        toys.method(kv_compression="minicache").check(toys.toy_spec(n_layers=1))
