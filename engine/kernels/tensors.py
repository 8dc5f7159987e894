"""The kernels over tensors: what a forward pass calls in the place of torch's operators.

Every function gives a row the same bits alone, among others, and with any number of threads. Numbers are summed in float32 and
rounded to the type of the tensors at the end of each function, as torch rounds them between its operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from . import attention, pointwise, products
from .choice import TYPES, compile_packed, pass_threads
from .formats import FORMATS, RUN, PackedRows
from .instructions import BFLOAT16, FLOAT16, FLOAT32
from .threads import STAGE, run_program

KINDS = {TYPES[0]: FLOAT32, TYPES[1]: BFLOAT16, TYPES[2]: FLOAT16}
SMALL = 1 << 16  # multiplications up to which one thread is as quick as two
TASKS = 4  # of a thread at least, so that none waits long for another


def float_bits(x: float) -> int:
    """The bits of a float32, as kernels take numbers."""
    return int(np.float32(x).view(np.uint32))


def address_of(x: Tensor | None) -> int:
    """Where a tensor begins; 0 for none."""
    return 0 if x is None else x.data_ptr()


def byte_strides(x: Tensor, *axes: int) -> tuple[int, ...]:
    """Bytes from one place of an axis to the next, 0 along an axis of size 1."""
    size = x.element_size()
    return tuple(0 if x.shape[axis] == 1 else x.stride(axis) * size for axis in axes)


def run_kernel(
    kernel: Any, arguments: Sequence[int], tasks: int, *, threads: int = 0, scratch: int = 0
) -> None:
    """Run the tasks of one kernel. threads: 0 for those of a pass;  scratch: bytes that each needs for itself"""
    given = np.array(arguments, np.int64)
    program = np.zeros((1, STAGE), np.int64)
    program[0, :3] = kernel.address, given.ctypes.data, tasks
    run_program(program, threads or pass_threads(), scratch)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """x [..., in] times weight [out, in] of one type, transposed; plus bias [out]. -> [..., out] of the type `dtype`; None: of
    that of x"""
    if weight.stride(1) != 1:
        weight = weight.contiguous()
    fields = (weight.data_ptr(), KINDS[x.dtype], weight.stride(0) * x.element_size(), weight.shape[0])
    return _run_product(products.product, x, fields, bias, dtype=dtype)


def packed_linear(
    x: Tensor, weight: PackedRows, bias: Tensor | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """x [..., in] times a matrix of few bits [out, in], transposed, plus bias [out]. -> [..., out], of a type as for `linear`

    The product is that with the numbers of the matrix in float32: they are not rounded to the type of x.
    """
    packed, scales = compile_packed(), scale_fields(weight)
    scratch = packed.scratch_bytes(x.shape[-1])
    return _run_product(packed.packed_product, x, packed_fields(weight), bias, scales, scratch, dtype)


def _run_product(
    kernel: Any,
    x: Tensor,
    weight: tuple[int, int, int, int],
    bias: Tensor | None,
    scales: tuple[int, ...] = (),
    scratch: int = 0,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The product of x [..., in] with a matrix [out, in]. weight, scales: the first and the last of `products.FIELDS`"""
    n, k = weight[3], x.shape[-1]
    y = x.new_empty(*x.shape[:-1], n, dtype=dtype)
    if not y.numel():
        return y
    bias = None if bias is None else bias.to(y.dtype)
    rows = y.numel() // n
    wide = x.reshape(rows, k).float().contiguous()
    threads = 1 if n * k * rows < SMALL else pass_threads()
    chunk = products.outputs_of_task(n, threads)
    where = (wide.data_ptr(), 4 * k, rows, k, y.data_ptr(), KINDS[y.dtype], n * y.element_size())
    arguments = (*weight, *where, address_of(bias), 0, chunk, *scales)
    run_kernel(kernel, arguments, -(-n // chunk), threads=threads, scratch=scratch)
    return y


def packed_fields(weight: PackedRows) -> tuple[int, int, int, int]:
    """The first four of `products.FIELDS` for a matrix of few bits."""
    data = weight.data
    return data.data_ptr(), FORMATS[weight.format].number, data.stride(0), data.shape[0]


def scale_fields(weight: PackedRows) -> tuple[int, int, int, int, int]:
    """The last five of `products.FIELDS` for a matrix of few bits."""
    scales = weight.scales
    if scales is None:
        return 0, FLOAT32, 0, 0, 0
    size = scales.element_size()
    groups = 1 if scales.dim() == 1 else scales.shape[0]
    shift = (weight.shape[1] // groups // RUN).bit_length() - 1
    of_row = size * (1 if scales.dim() == 1 else scales.stride(1))
    return scales.data_ptr(), KINDS[scales.dtype], of_row, size * scales.stride(0), shift


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """x [..., d] / sqrt(mean(x^2) + eps) * weight [d]."""
    d = x.shape[-1]
    x = x.contiguous()
    y = torch.empty_like(x)
    if y.numel():
        kind, stride = KINDS[x.dtype], d * x.element_size()
        arguments = (
            x.data_ptr(),
            kind,
            stride,
            address_of(weight),
            y.data_ptr(),
            kind,
            stride,
            d,
            float_bits(eps),
        )
        run_kernel(
            pointwise.rms_norm,
            arguments,
            x.numel() // d,
            threads=int(x.numel() < SMALL),
            scratch=pointwise.norm_scratch_bytes(d),
        )
    return y


def rotate_(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotate the leading dim features of x [..., heads, D] in place; cos, sin [..., 1, dim], whose sign is in the sine."""
    dim = cos.shape[-1]
    heads, size = x.shape[-2], x.element_size()
    shape = x.shape[:-2]
    rows = x.numel() // (heads * x.shape[-1]) if x.numel() else 0
    if not rows:
        return
    table = [part.expand(*shape, 1, dim).reshape(rows, dim).contiguous() for part in (cos, sin)]
    flat = x.view(rows, heads, x.shape[-1]) if x.is_contiguous() else _rows_of(x, rows)
    arguments = (
        *(flat.data_ptr(), KINDS[x.dtype], flat.stride(0) * size, flat.stride(1) * size, heads),
        *(table[0].data_ptr(), table[1].data_ptr(), dim * size, dim),
    )
    run_kernel(pointwise.rotate, arguments, rows, threads=int(x.numel() < SMALL))
    if flat.data_ptr() != x.data_ptr():
        x.copy_(flat.view(x.shape))


def _rows_of(x: Tensor, rows: int) -> Tensor:
    """x [..., heads, D] as [rows, heads, D], a view if its rows have one stride, else a copy."""
    if x.stride(-1) == 1:
        try:
            return x.view(rows, *x.shape[-2:])
        except RuntimeError:
            pass
    return x.contiguous().view(rows, *x.shape[-2:])


def apply_gate(both: Tensor, activation: str) -> Tensor:
    """activation(gate) * up for both [..., 2 * F], the gate first: [..., F]. activation: "silu", else tanh's gelu"""
    width = both.shape[-1] // 2
    y = both.new_empty(*both.shape[:-1], width)
    if y.numel():
        both = both.contiguous()
        kind = KINDS[both.dtype]
        size = both.element_size()
        rows = y.numel() // width
        function = pointwise.SILU if activation == "silu" else pointwise.GELU
        arguments = (
            both.data_ptr(),
            kind,
            2 * width * size,
            y.data_ptr(),
            kind,
            width * size,
            width,
            function,
        )
        tasks = rows * -(-width // pointwise.GATED)
        run_kernel(pointwise.gate, arguments, tasks, threads=int(y.numel() < SMALL // 8))
    return y


def soft_cap(x: Tensor, cap: float) -> Tensor:
    """cap * tanh(x / cap) of x, float32."""
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        arguments = (x.data_ptr(), y.data_ptr(), x.numel(), float_bits(cap))
        run_kernel(pointwise.cap, arguments, -(-x.numel() // pointwise.CAPPED))
    return y


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | Literal["causal"] | None,
    scale: float,
    cap: float | None = None,
    *,
    weights: Tensor | None = None,
    sums: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Attention [B, H_kv, g, T, D] of queries in that shape over keys and values [B, H_kv, S, D].

    mask:    bool [B or 1, H_kv or 1, T, S], or with g or 1 as its third axis: what each row sees; None: everything;
             "causal": row t sees the first S - T + t + 1 entries
    cap:     scores are softly capped at it
    weights: float32 [B, H_kv, g, T, S], written: what each row gives to each entry
    sums:    float32 [B, H_kv, g, T] twice, written: the sum of the exponentials and the largest score; answer and weights then
             are not divided by the sum, and float32
    A row that sees nothing gets 0.
    """
    B, H, g, T, D = q.shape
    S = k.shape[2]
    assert k.shape[3] == v.shape[3] == D, "the kernel reads D numbers of each key and value"
    q, k, v = (x if x.stride(-1) == 1 or D == 1 else x.contiguous() for x in (q, k, v))
    memory = q.new_empty(B, T, H, g, D, dtype=torch.float32 if sums is not None else q.dtype)
    y = memory.permute(0, 2, 3, 1, 4)
    if not y.numel():
        return y
    seen: tuple[int, ...] = (0,) * 6
    if isinstance(mask, Tensor):
        five = mask if mask.dim() == 5 else mask[:, :, None]
        seen = (five.data_ptr(), *byte_strides(five, 0, 1, 2, 3), five.stride(4))
    threads = pass_threads()
    tile = max(1, min(attention.TILE, B * H * g * T // (TASKS * threads)))
    totals, maxima = sums or (None, None)
    arguments = (
        *(q.data_ptr(), KINDS[q.dtype], *byte_strides(q, 0, 1, 2, 3)),
        *(k.data_ptr(), KINDS[k.dtype], *byte_strides(k, 0, 1, 2)),
        *(v.data_ptr(), *byte_strides(v, 0, 1, 2), *seen),
        *(H, g, T, S, D, tile, int(isinstance(mask, str)), float_bits(scale), float_bits(cap or 0.0)),
        *(y.data_ptr(), KINDS[y.dtype], 0, *byte_strides(y, 0, 1, 2, 3)),
        *(address_of(weights), address_of(totals), address_of(maxima)),
    )
    work = B * H * g * T * S * D
    tasks = B * H * -(-g * T // tile)
    run_kernel(
        attention.attention,
        arguments,
        tasks,
        threads=int(work < SMALL),
        scratch=attention.scratch_bytes(S, D),
    )
    return y
