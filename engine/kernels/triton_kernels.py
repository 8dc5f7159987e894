"""Kernels in Triton: products, attention and what is computed number by number, a row's bits the same in any number of rows.

Every kernel has one shape of block and one order of sums. Pointers and numbers that depend on the rows of a pass are not
specialised: Triton would compile another kernel for a number that is 1 or an address that is a multiple of 16, and another
kernel may sum in another order. What a block has too much is filled up with zeros, and no block shrinks with the rows.
EXPLICIT: a product is written as a sum, for the interpreter. Its `tl.dot` is numpy's: it takes bfloat16 for whole numbers, and
in float32 the order of a sum depends on where in the block the row is.
"""

from __future__ import annotations

import triton
import triton.language as tl

_EACH_PASS = ["x", "y", "rows", "heads", "row_stride", "head_stride", "cos", "sin"]
_EACH_ATTENTION = [
    *("q", "k", "v", "order", "counts", "y", "totals", "maxima", "weights", "scale", "cap", "divide"),
    *(
        "heads",
        "group",
        "rows",
        "entries",
        "q_batch",
        "q_head",
        "q_group",
        "q_row",
        "k_batch",
        "k_head",
        "k_entry",
    ),
    *("v_batch", "v_head", "v_entry", "order_batch", "order_head", "order_row"),
    *("count_batch", "count_head", "count_row"),
]


@triton.jit
def _multiply(a, b, sums, EXPLICIT: tl.constexpr):
    """sums + a @ b, summed in float32; float32 is multiplied as it is, not as TF32."""
    if EXPLICIT:
        return sums + tl.sum(a.to(tl.float32)[:, :, None] * b.to(tl.float32)[None, :, :], 1)
    else:
        return tl.dot(a, b, sums, input_precision="ieee")


@triton.jit
def _tanh(x):
    """tanh(x) of float32."""
    t = tl.exp(-2.0 * tl.abs(x))
    size = (1.0 - t) / (1.0 + t)
    return tl.where(x < 0, -size, size)


@triton.jit(do_not_specialize=_EACH_PASS)
def product(
    x, weight, bias, y, rows,
    n: tl.constexpr, k: tl.constexpr, stride: tl.constexpr, EXPLICIT: tl.constexpr,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """ROWS x OUTPUTS of y [rows, n] = x [rows, k] times weight [n, k], plus bias [n] or None. k is never split."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    out = tl.program_id(1).to(tl.int64) * OUTPUTS + tl.arange(0, OUTPUTS)
    sums = tl.full((ROWS, OUTPUTS), 0.0, tl.float32)
    for first in range(0, k, DEPTH):
        at = first + tl.arange(0, DEPTH)
        a = tl.load(x + row[:, None] * k + at[None, :], (row[:, None] < rows) & (at[None, :] < k), 0.0)
        b = tl.load(weight + out[None, :] * stride + at[:, None], (out[None, :] < n) & (at[:, None] < k), 0.0)
        sums = _multiply(a, b, sums, EXPLICIT)
    if bias is not None:
        sums += tl.load(bias + out, out < n, 0.0).to(tl.float32)[None, :]
    written = (row[:, None] < rows) & (out[None, :] < n)
    tl.store(y + row[:, None] * n + out[None, :], sums.to(y.dtype.element_ty), written)


@triton.jit(do_not_specialize=_EACH_PASS)
def rms_norm(x, weight, y, eps, d: tl.constexpr, WIDTH: tl.constexpr):
    """A row of x [rows, d] / sqrt(mean(x^2) + eps) * weight [d] or None, rounded once."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, WIDTH)
    values = tl.load(x + row * d + at, at < d, 0.0).to(tl.float32)
    values = values / tl.sqrt(tl.sum(values * values, 0) / d + eps)
    if weight is not None:
        values *= tl.load(weight + at, at < d, 0.0).to(tl.float32)
    tl.store(y + row * d + at, values.to(y.dtype.element_ty), at < d)


@triton.jit(do_not_specialize=_EACH_PASS)
def rotate(x, cos, sin, row_stride, head_stride, half: tl.constexpr, WIDTH: tl.constexpr):
    """The first 2 * half features of a head of x [rows, heads, D] rotated in place; cos, sin [rows, 2 * half]."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, WIDTH)
    first = x + row * row_stride + tl.program_id(1) * head_stride + at
    one = tl.load(first, at < half, 0.0).to(tl.float32)
    other = tl.load(first + half, at < half, 0.0).to(tl.float32)
    turn = row * 2 * half + at
    a = one * tl.load(cos + turn, at < half, 0.0) + other * tl.load(sin + turn, at < half, 0.0)
    b = other * tl.load(cos + turn + half, at < half, 0.0) + one * tl.load(sin + turn + half, at < half, 0.0)
    tl.store(first, a.to(x.dtype.element_ty), at < half)
    tl.store(first + half, b.to(x.dtype.element_ty), at < half)


@triton.jit(do_not_specialize=_EACH_PASS)
def gate(x, y, width: tl.constexpr, SILU: tl.constexpr, WIDTH: tl.constexpr):
    """WIDTH columns of activation(gate) * up of a row of x [rows, 2 * width], each of both rounded to their type."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    g = tl.load(x + row * 2 * width + at, at < width, 0.0).to(tl.float32)
    up = tl.load(x + row * 2 * width + width + at, at < width, 0.0).to(tl.float32)
    if SILU:  # noqa: SIM108 -- known when it is compiled
        g = g / (1.0 + tl.exp(-g))
    else:
        g = 0.5 * g * (1.0 + _tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)))
    g = g.to(x.dtype.element_ty).to(tl.float32)
    tl.store(y + row * width + at, (g * up).to(y.dtype.element_ty), at < width)


@triton.jit(do_not_specialize=_EACH_PASS)
def soft_cap(x, y, rows, cap, WIDTH: tl.constexpr):
    """cap * tanh(x / cap) of WIDTH of `rows` float32."""
    at = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    tl.store(y + at, _tanh(tl.load(x + at, at < rows, 0.0) / cap) * cap, at < rows)


@triton.jit
def _score(q, k, order, first, count, k_entry, scale, cap, d: tl.constexpr, WIDTH: tl.constexpr,
           ENTRIES: tl.constexpr, EXPLICIT: tl.constexpr):  # fmt: skip
    """Scores [group, ENTRIES] of the visible entries from number `first` on, -inf behind the last; where they are."""
    number = first + tl.arange(0, ENTRIES)
    at = tl.arange(0, WIDTH)
    entry = tl.load(order + number, number < count, 0).to(tl.int64)
    keys = tl.load(
        k + entry[None, :] * k_entry + at[:, None], (number[None, :] < count) & (at[:, None] < d), 0.0
    )
    scores = _multiply(q, keys, tl.full((q.shape[0], ENTRIES), 0.0, tl.float32), EXPLICIT) * scale
    if cap > 0:
        scores = _tanh(scores / cap) * cap
    return tl.where(number[None, :] < count, scores, float("-inf")), entry


@triton.jit(do_not_specialize=_EACH_ATTENTION)
def attention(
    q, k, v, order, counts, y, totals, maxima, weights, scale, cap, divide, heads, group, rows, entries,
    q_batch, q_head, q_group, q_row, k_batch, k_head, k_entry, v_batch, v_head, v_entry,
    order_batch, order_head, order_row, count_batch, count_head, count_row,
    d: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr, ENTRIES: tl.constexpr, EXPLICIT: tl.constexpr,
):  # fmt: skip
    """One row of all query heads that read a KV head: over the entries that it sees, in the order of the cache, in blocks.

    q [B, H, group, rows, d], k and v [B, H, entries, d] with strides; order int32: the places of the visible entries, the first
    `counts` of them; y [B, rows, H, group, d]; totals, maxima float32 [B, H, group, rows]; weights float32 [B, H, group, rows,
    entries], filled with 0, or None
    """
    row = (tl.program_id(0) % rows).to(tl.int64)
    head = (tl.program_id(0) // rows % heads).to(tl.int64)
    batch = (tl.program_id(0) // rows // heads).to(tl.int64)
    g = tl.arange(0, GROUP)
    at = tl.arange(0, WIDTH)
    real = (g[:, None] < group) & (at[None, :] < d)
    queries = q + batch * q_batch + head * q_head + row * q_row + g[:, None] * q_group + at[None, :]
    queries = tl.load(queries, real, 0.0)
    k += batch * k_batch + head * k_head
    v += batch * v_batch + head * v_head
    order += batch * order_batch + head * order_head + row * order_row
    count = tl.load(counts + batch * count_batch + head * count_head + row * count_row)
    highest = tl.full((GROUP,), float("-inf"), tl.float32)
    total = tl.full((GROUP,), 0.0, tl.float32)
    sums = tl.full((GROUP, WIDTH), 0.0, tl.float32)
    for first in range(0, count, ENTRIES):
        scores, entry = _score(
            queries, k, order, first, count, k_entry, scale, cap, d, WIDTH, ENTRIES, EXPLICIT
        )
        known = first + tl.arange(0, ENTRIES) < count
        values = tl.load(v + entry[:, None] * v_entry + at[None, :], known[:, None] & (at[None, :] < d), 0.0)
        higher = tl.maximum(highest, tl.max(scores, 1))
        p = tl.exp(scores - higher[:, None])
        faded = tl.exp(highest - higher)
        total = total * faded + tl.sum(p, 1)
        sums = _multiply(p.to(values.dtype), values, sums * faded[:, None], EXPLICIT)
        highest = higher
    index = ((batch * heads + head) * group + g) * rows + row
    tl.store(totals + index, total, g < group)
    tl.store(maxima + index, highest, g < group)
    if weights is not None:
        for first in range(0, count, ENTRIES):
            scores, entry = _score(
                queries, k, order, first, count, k_entry, scale, cap, d, WIDTH, ENTRIES, EXPLICIT
            )
            p = tl.exp(scores - highest[:, None]) / tl.where(divide > 0, total, 1.0)[:, None]
            known = first + tl.arange(0, ENTRIES) < count
            place = weights + index[:, None] * entries + entry[None, :]
            tl.store(place, p, (g[:, None] < group) & known[None, :])
    sums = sums / tl.where((divide > 0) & (total > 0), total, 1.0)[:, None]
    place = y + (((batch * rows + row) * heads + head) * group + g[:, None]) * d + at[None, :]
    tl.store(place, sums.to(y.dtype.element_ty), real)
