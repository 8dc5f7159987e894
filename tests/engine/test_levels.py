"""Groups of few levels: the error bound holds in every type, for numbers that are equal, tiny, huge or close to each other."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.weights import MatrixPlace, MatrixTransform
from decodescope.engine.methods.kv_compression.shared.groups import dequantise, quantise
from decodescope.engine.methods.weights.shared.grid import Grid
from decodescope.engine.methods.weights.shared.rounding import quantise_groups, quantise_rows
from decodescope.engine.model.layers.levels import fit_scale
from decodescope.engine.model.layers.matrix import unpack

AT, GROUP = MatrixPlace(0, "qkv"), 32
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
ROUNDINGS = [
    ("int8", {}),
    ("int4", dict(group=32)),
    ("finequant", {}),
    ("codes", dict(bits=3)),
    ("codes", dict(bits=2)),
]


def stored(name: str, settings: dict[str, Any], weight: Tensor) -> Tensor:
    one = build("weights", name, settings)
    assert isinstance(one, MatrixTransform)
    return unpack(one.compress_matrix(AT, weight))


def smallest(dtype: torch.dtype) -> float:
    """The smallest positive number of a type."""
    return torch.finfo(dtype).tiny * torch.finfo(dtype).eps


def constants(dtype: torch.dtype) -> list[float]:
    """Positive, negative, zero, and the smallest and the largest numbers of the type."""
    ends = torch.finfo(dtype)
    return [0.02, -0.02, 0.0, 1.0, -3.0, 255.0, smallest(dtype), -ends.tiny, ends.max, ends.min]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "settings"), ROUNDINGS[1:])
def test_a_group_of_equal_weights_comes_back_as_it_was(
    name: str, settings: dict[str, Any], dtype: torch.dtype
) -> None:
    rows = torch.tensor(constants(dtype), dtype=torch.float64).to(dtype)[:, None].expand(-1, 64).contiguous()
    rows = torch.cat(
        [rows, torch.randn(16 - len(rows) % 16, 64, generator=torch.Generator().manual_seed(0)).to(dtype)]
    )
    assert len(rows) % 16 == 0, "so many rows the operator of 4 bits takes"
    back = stored(name, settings, rows)
    assert torch.equal(back[: len(constants(dtype))], rows[: len(constants(dtype))])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bits", [2, 4])
def test_a_group_of_equal_keys_comes_back_as_it_was(bits: int, dtype: torch.dtype) -> None:
    x = torch.tensor(constants(dtype), dtype=torch.float64).to(dtype)[:, None].expand(-1, 16).contiguous()
    assert torch.equal(dequantise(quantise(x, 8, bits), 8), x)


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("value", [0.02, -1.0, 0.0])
def test_a_group_of_equal_weights_is_a_grid_without_steps(k: int, value: float) -> None:
    weight = torch.full((16, 32), value, dtype=torch.bfloat16)
    grid = Grid.from_weight(weight, 32, k, torch.float32)
    assert torch.equal(unpack(grid.to_matrix(torch.bfloat16)), weight) and torch.equal(
        grid.weight().bfloat16(), weight
    )
    assert not grid.wish.any() and not grid.scale.any(), "tuning takes its rate from the mean scale"


@st.composite
def groups(draw: st.DrawFn) -> Tensor:
    """A group of 32 numbers of a type: a centre, a range around it, and a place in the range for each number.

    The range may be so small that the type has only few numbers in it, or only the centre.
    """
    dtype = draw(st.sampled_from(DTYPES))
    ends = torch.finfo(dtype)
    size = st.floats(math.log2(smallest(dtype)), math.log2(ends.max) - 2)
    centre = draw(st.sampled_from([-1, 0, 1])) * 2.0 ** draw(size)
    reach = 2.0 ** draw(size)
    if draw(st.booleans()):  # the type has few numbers in the range
        reach = abs(centre) * ends.eps * draw(st.integers(1, 20))
    at = torch.tensor(draw(st.lists(st.floats(-1, 1), min_size=GROUP, max_size=GROUP)), dtype=torch.float64)
    return (centre + reach * at).to(dtype)[None]


def largest_step(group: Tensor, levels: int) -> Tensor:
    """The upper bound for a group's scale: the step of its range, plus what rounding removes at the ends."""
    low, high = group.double().aminmax()
    ends = torch.finfo(group.dtype)
    lost = ends.eps * torch.maximum(low.abs(), high.abs()) + smallest(group.dtype)
    return (high - low) / levels * (1 + ends.eps) + lost


def rounding_of(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The bound for how far x may move when it is rounded to a type."""
    return x.abs() * torch.finfo(dtype).eps / 2 + smallest(dtype)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(groups(), st.sampled_from([(2, 0), (3, 0), (4, 0), (4, 8)]))
def test_a_weight_is_off_by_half_a_step_at_most(group: Tensor, bits: tuple[int, int]) -> None:
    k, middle = bits
    q, scale, zero = quantise_groups(group, GROUP, k, middle)
    assert (
        scale.dtype == zero.dtype == group.dtype
        and bool(scale.isfinite().all())
        and bool(zero.isfinite().all())
    )
    exact = (q.double() - middle) * scale.double() + zero.double()
    assert bool(((exact - group.double()).abs() <= scale.double() / 2 * (1 + 1e-12)).all())
    assert float(scale) <= float(largest_step(group, 2**k - 1)), (
        "a step is no larger than range and type make it"
    )


@settings(max_examples=100, deadline=None, derandomize=True)
@given(groups())
def test_a_weight_of_a_row_is_off_by_half_a_step_at_most(group: Tensor) -> None:
    q, scale = quantise_rows(group)
    exact = q.double() * scale.double()[:, None]
    assert bool(((exact - group.double()).abs() <= scale.double() / 2 * (1 + 1e-12)).all())


@settings(max_examples=60, deadline=None, derandomize=True)
@given(groups(), st.sampled_from(ROUNDINGS))
def test_a_stored_weight_is_off_by_half_a_step_and_the_rounding_of_its_type(
    group: Tensor, part: tuple[str, Any]
) -> None:
    name, chosen = part
    scale = (
        quantise_rows(group)[1]
        if name == "int8"
        else quantise_groups(group, GROUP, chosen.get("bits", 4), 8 * (name != "codes"))[1]
    )
    rows = group.expand(16, -1).contiguous()
    off = (stored(name, chosen, rows).double() - rows.double()).abs()
    step = scale.double().reshape(1, 1)
    assert bool((off <= step / 2 * (1 + 1e-12) + rounding_of(rows.double().abs() + step, group.dtype)).all())


@settings(max_examples=100, deadline=None, derandomize=True)
@given(groups(), st.sampled_from([2, 4]))
def test_a_packed_key_is_off_by_half_a_step_and_the_rounding_of_its_type(group: Tensor, bits: int) -> None:
    parts = quantise(group, GROUP, bits)
    off = (dequantise(parts, GROUP).double() - group.double()).abs()
    step, eps = (
        parts["scale"].double(),
        torch.finfo(torch.float32).eps,
    )  # computed in float32 at least
    slack = rounding_of(group.double().abs() + step, group.dtype) + 4 * eps * (
        group.double().abs() + 15 * step
    )
    assert bool((off <= step / 2 + slack).all())


def test_a_scale_that_is_rounded_down_grows_only_where_an_end_would_lie_more_than_half_a_step_outside() -> (
    None
):
    reach = torch.tensor([1.0, 22.0, 8.0, 0.4, 0.0], dtype=torch.float64) * smallest(torch.float16)
    scale = fit_scale(torch.zeros_like(reach), reach, 0, 15, torch.float16)
    steps = (scale.double() / smallest(torch.float16)).tolist()
    assert steps == [1, 2, 1, 1, 0], (
        "1 / 15 and 22 / 15 of the smallest number are rounded to 0 and 1, which are too few"
    )
