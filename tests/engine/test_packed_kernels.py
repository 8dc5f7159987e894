"""Matrices of few bits are multiplied as they are stored: the same bits for any number of rows, and little memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor

from decodescope.engine import run
from decodescope.engine.kernels.choice import kernels_for, kernels_set_to, pass_threads, set_pass_threads
from decodescope.engine.kernels.formats import FORMATS, PackedRows
from decodescope.engine.model.layers.compressed_matrices import (
    CodeMatrix,
    Int4Matrix,
    Int8Matrix,
    SparseMatrix,
)
from decodescope.engine.model.layers.matrix import Matrix, linear

GGUF = [name for name in FORMATS if name.startswith("Q")]
HALVES = {
    "Q4_1": (0, 2),
    "Q5_1": (0, 2),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}  # places of float16 in a block
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def kernels() -> Iterator[None]:
    """Use the rows kernels in this file's tests, and restore the former ones and the threads afterwards."""
    threads = pass_threads()
    with kernels_set_to("rows"), torch.inference_mode():
        yield
    set_pass_threads(threads)


def stored_rows(name: str, outputs: int, k: int) -> np.ndarray:
    """Random bytes [outputs, bytes of a row], whose scales are small numbers."""
    draw, one = np.random.default_rng(len(name) + k), FORMATS[name]
    blocks = draw.integers(0, 256, (outputs, k // one.block, one.size), dtype=np.uint8)
    for place in HALVES.get(name, (0,)):
        scales = draw.normal(0, 0.02, blocks.shape[:2]).astype(np.float16)
        blocks[:, :, place : place + 2] = scales[..., None].view(np.uint8)
    return blocks.reshape(outputs, -1)


def check_rows(x: Tensor, due: Tensor, weight: PackedRows, bias: Tensor | None = None) -> None:
    """The product is `due` to rounding, and a row's answer does not depend on the others or on threads."""
    tensors = kernels_for(x)
    many = tensors.packed_linear(x, weight, bias)
    bound = {torch.float32: 2e-6, torch.bfloat16: 5e-3, torch.float16: 1e-3}[x.dtype]
    assert (many.double() - due).abs().max() < bound * due.abs().max()
    for rows in (1, 2, 3, 4, 5, 7, 8, 16):
        for threads in (1, 3):
            set_pass_threads(threads)
            assert torch.equal(tensors.packed_linear(x[:rows], weight, bias), many[:rows]), (rows, threads)


@pytest.mark.parametrize("name", GGUF)
@pytest.mark.parametrize("outputs", [13, 96])
def test_a_format_of_gguf_is_read_as_its_own_package_reads_it(name: str, outputs: int) -> None:
    raw = stored_rows(name, outputs, 512)
    weight = PackedRows(name, torch.from_numpy(raw))
    assert weight.shape == (outputs, 512)
    dense = torch.from_numpy(gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name]))
    x = torch.randn(20, 512, generator=torch.Generator().manual_seed(1))
    for dtype in DTYPES:
        rows = x.to(dtype)
        check_rows(rows, rows.double() @ dense.double().T, weight)


def random_matrices(dtype: torch.dtype, inner: int = 256) -> dict[str, Matrix]:
    """One of each kind, [40, inner]."""
    draw = torch.Generator().manual_seed(3)
    w, scale, zero = (
        torch.randn(shape, generator=draw).to(dtype) / 30
        for shape in ((40, inner), (40, inner // 64), (40, inner // 64))
    )
    codes = torch.randint(0, 16, (40, inner), generator=draw)
    values, places = w.view(40, -1, 4).abs().topk(2, -1)
    order = places.sort(-1)
    return {
        "int8": Int8Matrix.from_codes((w * 900).to(torch.int8), scale[:, 0]),
        "int4": Int4Matrix.from_codes(codes, scale, zero),
        "codes": CodeMatrix.from_codes(codes & 7, scale, zero, 3),
        "sparse": SparseMatrix.from_values(values.gather(-1, order.indices), order.values, 4),
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["int8", "int4", "codes", "sparse"])
def test_a_matrix_of_few_bits_gives_a_row_the_same_bits_in_any_company(name: str, dtype: torch.dtype) -> None:
    weight = random_matrices(dtype)[name]
    assert (weight.packed_rows() is not None) == (name in ("int8", "int4"))
    x, bias = (
        torch.randn(shape, generator=torch.Generator().manual_seed(4)).to(dtype)
        for shape in ((40, 256), (40,))
    )
    many = linear(x, weight, bias)
    due = x.double() @ weight.dense_weight().double().T + bias.double()
    assert (many.double() - due).abs().max() < {4: 1e-5, 2: 1e-2}[x.element_size()] * due.abs().max()
    for rows in (1, 2, 5, 8, 33):
        assert torch.equal(linear(x[:rows], weight, bias), many[:rows]), rows


def test_the_numbers_of_int4_do_not_depend_on_how_they_are_ordered() -> None:
    halves = random_matrices(torch.bfloat16)["int4"]
    with kernels_set_to("torch"):
        other = random_matrices(torch.bfloat16)["int4"]
    assert isinstance(halves, Int4Matrix) and isinstance(other, Int4Matrix)
    assert halves.order == "halves" != other.order
    assert torch.equal(halves.numbers(), other.numbers())
    assert torch.equal(halves.dense_weight(), other.dense_weight())
    part = halves.rows_from(10)
    assert torch.equal(part.dense_weight(), halves.dense_weight()[10:]) and part.order == "halves"
    assert torch.equal(halves.copy_to(dtype=torch.float32).numbers(), halves.numbers())


MEMORY = """
import psutil, torch
from decodescope.engine.kernels.choice import kernels_for
from decodescope.engine.model.layers.compressed_matrices import Int4Matrix, Int8Matrix
from decodescope.engine.model.layers.matrix import linear

def matrix(outputs, inner):
    scale = torch.full((outputs, inner // 64), 0.01, dtype=torch.bfloat16)
    if {name!r} == "int8":
        return Int8Matrix.from_codes(torch.ones(outputs, inner, dtype=torch.int8), scale[:, 0].clone())
    return Int4Matrix.from_codes(torch.ones(outputs, inner, dtype=torch.uint8), scale, scale)

with torch.inference_mode():
    x = torch.ones(1, 8192, dtype=torch.bfloat16)
    linear(x, matrix(64, 8192))  # what the first product needs once
    before = psutil.Process().memory_info().rss
    weight = matrix(4096, 8192)
    linear(x, weight)
    print(psutil.Process().memory_info().rss - before, weight.nbytes, 2 * weight.numel())
"""


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_the_process_holds_what_is_stored_and_no_more(name: str) -> None:
    """Its resident memory grows by the bytes of the matrix, within 4 MiB: a product makes no dense copy, which takes 64 MiB."""
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}  # what is given back leaves the process at once
    code = MEMORY.format(name=name)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    grown, stored, dense = map(int, done.stdout.split())
    assert abs(grown - stored) < 4 << 20 and stored < 0.55 * dense, (grown, stored, dense)


@pytest.mark.parametrize(
    "weights", ["int4", *(pytest.param(x, marks=pytest.mark.nightly) for x in ("int8", "codes"))]
)
def test_drafting_keeps_the_text_of_a_model_of_few_bits(weights: str) -> None:
    prompt = "One day a fox met a hen and they"
    plain = run(f"lab@{weights}", None, prompt, max_new_tokens=40)
    for drafter in ("prompt_lookup", "token_recycling"):
        assert run(f"lab@{weights}", drafter, prompt, max_new_tokens=40).tokens == plain.tokens, drafter
