"""Matrices in fewer bytes: products, numbers, bytes, and the handling of a matrix that is not used as a product."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.model.layers.compressed_matrices import (
    CodeMatrix,
    Int4Matrix,
    Int8Matrix,
    SparseMatrix,
    pack_bit_planes,
    unpack_bit_planes,
)
from decodescope.engine.model.layers.matrix import (
    Matrix,
    bits_per_number,
    copy_weight_to,
    linear,
    pack,
    rows_from,
    unpack,
)

G = torch.Generator().manual_seed(0)
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
SHAPES = [(48, 64), (13, 96), (7, 32)]


def int8(out: int, inner: int, dtype: torch.dtype) -> tuple[Matrix, Tensor]:
    q = torch.randint(-127, 128, (out, inner), generator=G, dtype=torch.int8)
    scale = (torch.rand(out, generator=G) / 64 + 0.001).to(dtype)
    return Int8Matrix.from_codes(q, scale), q.double() * scale.double()[:, None]


def grouped(
    k: int, middle: int, make: Callable[..., Matrix]
) -> Callable[[int, int, torch.dtype], tuple[Matrix, Tensor]]:
    def one(out: int, inner: int, dtype: torch.dtype) -> tuple[Matrix, Tensor]:
        q = torch.randint(2**k, (out, inner), generator=G, dtype=torch.uint8)
        scale, zero = (torch.randn(out, inner // 32, generator=G).to(dtype) for _ in range(2))
        wide = [x.double().repeat_interleave(32, 1) for x in (scale, zero)]
        return make(q, scale, zero), (q.double() - middle) * wide[0] + wide[1]

    return one


def sparse(out: int, inner: int, dtype: torch.dtype) -> tuple[Matrix, Tensor]:
    places = torch.stack([torch.randperm(4, generator=G)[:2].sort()[0] for _ in range(out * inner // 4)])
    values = torch.randn(out, inner // 4, 2, generator=G).to(dtype)
    dense = torch.zeros(out, inner // 4, 4, dtype=torch.float64)
    for i in range(out):
        for g in range(inner // 4):
            dense[i, g, places.view(out, -1, 2)[i, g]] = values[i, g].double()
    return SparseMatrix.from_values(values, places.view(out, -1, 2), 4), dense.flatten(1)


MAKES = {
    "Int8": int8,
    "Int4": grouped(4, 8, Int4Matrix.from_codes),
    "Codes 2": grouped(2, 0, lambda q, scale, zero: CodeMatrix.from_codes(q, scale, zero, 2)),
    "Codes 3": grouped(3, 0, lambda q, scale, zero: CodeMatrix.from_codes(q, scale, zero, 3)),
    "Sparse": sparse,
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", MAKES)
def test_a_product_is_that_of_its_numbers(kind: str, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    weight, numbers = MAKES[kind](*shape, dtype)
    slack = {torch.bfloat16: 0.03, torch.float16: 0.004}.get(dtype, 1e-5)
    assert weight.shape == shape and weight.dtype == dtype
    assert (unpack(weight).double() - numbers).abs().max() <= slack * numbers.abs().max()
    bias = torch.randn(shape[0], generator=G).to(dtype)
    for lead in ((1,), (2, 3), (40,)):
        x = torch.randn(*lead, shape[1], generator=G).to(dtype)
        for b in (None, bias):
            wanted = F.linear(x.double(), numbers, None if b is None else b.double())
            y = linear(x, weight, b)
            assert y.shape == wanted.shape and (y.double() - wanted).abs().max() <= slack * wanted.abs().max()


@pytest.mark.parametrize("kind", MAKES)
def test_the_operator_gives_what_the_plain_way_gives(kind: str) -> None:
    weight, _ = MAKES[kind](48, 64, torch.float32)
    x = torch.randn(3, 64, generator=G)
    y = linear(x, weight)
    assert (y - F.linear(x, unpack(weight))).abs().max() <= 1e-5 * y.abs().max()
    x.requires_grad_()
    linear(x, weight).sum().backward()
    assert x.grad is not None and torch.allclose(x.grad, unpack(weight).sum(0).expand(3, -1), atol=1e-4), (
        "it has a gradient"
    )


@pytest.mark.parametrize("kind", MAKES)
def test_rows_below_and_the_same_elsewhere(kind: str) -> None:
    weight, numbers = MAKES[kind](48, 64, torch.float32)
    assert isinstance(rows_from(weight, 16), Matrix) and torch.equal(
        unpack(rows_from(weight, 16)), unpack(weight)[16:]
    )
    assert torch.equal(weight[5:9], unpack(weight)[5:9]), "what is no product is done with its numbers"
    assert pack(weight) is weight
    for dtype in DTYPES:
        there = copy_weight_to(weight, dtype=dtype)
        assert type(there) is type(weight) and there.dtype == dtype
        assert (unpack(there).double() - numbers).abs().max() <= 0.03 * numbers.abs().max()


def test_bytes_are_as_the_formula_has_them() -> None:
    for dtype, b in ((torch.float32, 32), (torch.bfloat16, 16)):
        due = {
            "Int8": 8 + b / 64,
            "Int4": 4 + 2 * b / 32,
            "Codes 2": 2 + 2 * b / 32,
            "Codes 3": 3 + 2 * b / 32,
            "Sparse": (b + 2) / 2,
        }
        assert {kind: bits_per_number(make(48, 64, dtype)[0]) for kind, make in MAKES.items()} == due


def test_a_matrix_cannot_be_written_to() -> None:
    weight, _ = int8(16, 32, torch.float32)
    with pytest.raises(TypeError, match="cannot be written to"):
        weight.mul_(2)
    with pytest.raises(TypeError, match="cannot be written to"):
        weight[0] = 1.0


def test_planes_hold_what_they_were_made_of() -> None:
    for k in range(1, 9):
        for n in (1, 7, 8, 23):
            q = torch.randint(2**k, (3, n), generator=G, dtype=torch.uint8)
            assert torch.equal(unpack_bit_planes(pack_bit_planes(q, k), n), q) and pack_bit_planes(
                q, k
            ).shape == (k, 3, (n + 7) // 8)
