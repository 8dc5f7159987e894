"""Pointwise: norms, rotation and activations, a row at a time."""

from __future__ import annotations

import numpy as np
from numba import cfunc, njit

from .functions import cap_row, gelu_row, silu_row
from .instructions import BFLOAT16, FLOAT16, FLOAT32, as_float, load, read, write
from .products import KERNEL
from .rows import dot, narrow, round_to, size_of, widen

SILU, GELU = 0, 1  # activations
GATED = 512  # columns of a task of `gate`
CAPPED = 4096  # numbers of a task of `cap`
_ONE = np.float32(1)


def norm_scratch_bytes(width: int) -> int:
    """What a thread needs for `rms_norm` of a row: the sum, the row, the weight."""
    return 64 + 8 * width


@cfunc(KERNEL, cache=True)
def rms_norm(a, task, scratch):
    """x / sqrt(mean(x^2) + eps) * weight of a row, rounded once to the type of x.

    a: x, its type and stride; weight, of the same type, or 0; out, its type and stride; numbers, eps
    """
    kind = load(a + 8)
    width = load(a + 56)
    weight = load(a + 24)
    out_kind = load(a + 40)
    row, factors = scratch + 64, scratch + 64 + 4 * width
    widen(kind, load(a) + task * load(a + 16), row, width)
    dot(FLOAT32, 0, row, 0, row, 0, scratch, 0, width, 0)
    factor = _ONE / np.sqrt(read(FLOAT32, scratch) / np.float32(width) + as_float(load(a + 64)))
    for i in range(width):
        write(FLOAT32, row + 4 * i, read(FLOAT32, row + 4 * i) * factor)
    if weight:
        widen(kind, weight, factors, width)
        for i in range(width):
            write(FLOAT32, row + 4 * i, read(FLOAT32, row + 4 * i) * read(FLOAT32, factors + 4 * i))
    if out_kind != kind:
        round_to(kind, row, width)
    narrow(out_kind, row, load(a + 32) + task * load(a + 48), width)


@njit(nogil=True)
def _rotate_head(kind, x, out, cos, sin, turning):
    """The first `turning` features of a head rotated; the sign of the rotation is in the sine, and out may be x."""
    if kind == FLOAT32:
        _rotate_numbers(FLOAT32, 4, x, out, cos, sin, turning // 2)
    elif kind == BFLOAT16:
        _rotate_numbers(BFLOAT16, 2, x, out, cos, sin, turning // 2)
    else:
        _rotate_numbers(FLOAT16, 2, x, out, cos, sin, turning // 2)


@njit(nogil=True, inline="always")
def _rotate_numbers(kind, size, x, out, cos, sin, half):
    for i in range(half):
        j = half + i
        one, other = read(kind, x + i * size), read(kind, x + j * size)
        first = one * read(kind, cos + i * size) + other * read(kind, sin + i * size)
        second = other * read(kind, cos + j * size) + one * read(kind, sin + j * size)
        write(kind, out + i * size, first)
        write(kind, out + j * size, second)


@cfunc(KERNEL, cache=True)
def rotate(a, task, scratch):
    """The rotary embedding of all heads of a row, in place.

    a: x, its type, strides of row and head, heads; cos and sin, of the same type, their stride; features that turn
    """
    x = load(a) + task * load(a + 16)
    head = load(a + 24)
    turn = task * load(a + 56)
    for h in range(load(a + 32)):
        at = x + h * head
        _rotate_head(load(a + 8), at, at, load(a + 40) + turn, load(a + 48) + turn, load(a + 64))


@cfunc(KERNEL, cache=True)
def enter_cache(a, task, scratch):
    """Rotate the queries of a row in place, and write its keys, rotated, and its values into a cache.

    a: queries, keys and values [rows, H + 2 K, D], their type, the stride of a row, H, K, D; cos and sin, their stride,
    features that turn; the first free entries of keys and of values, [batch, K, entries, D], strides of batch, head and entry;
    rows of a sequence
    """
    kind = load(a + 8)
    heads = load(a + 24)
    kv_heads = load(a + 32)
    x = load(a) + task * load(a + 16)
    size = size_of(kind)
    turning = load(a + 72)
    length = load(a + 120)
    place, turn = task // length * load(a + 96) + task % length * load(a + 112), task * load(a + 64)
    cos = load(a + 48) + turn
    sin = load(a + 56) + turn
    head = load(a + 40) * size
    for h in range(heads):
        _rotate_head(kind, x + h * head, x + h * head, cos, sin, turning)
    x += heads * head
    for h in range(kv_heads):
        out = load(a + 80) + place + h * load(a + 104)
        _rotate_head(kind, x + h * head, out, cos, sin, turning)
        for i in range(turning * size, head, size):
            write(kind, out + i, read(kind, x + h * head + i))
    x += kv_heads * head
    for h in range(kv_heads):
        out = load(a + 88) + place + h * load(a + 104)
        for i in range(0, head, size):
            write(kind, out + i, read(kind, x + h * head + i))


@cfunc(KERNEL, cache=True)
def gate(a, task, scratch):
    """activation(gate) * up of `GATED` columns of a row, each of both rounded to their type.

    a: gate and up [rows, 2, width], their type and the stride of a row; out, its type and stride; width; the activation
    """
    kind = load(a + 8)
    width = load(a + 48)
    out_kind = load(a + 32)
    blocks = (width + GATED - 1) // GATED
    row, first = task // blocks, task % blocks * GATED
    count, size = min(GATED, width - first), size_of(kind)
    x, out = load(a) + row * load(a + 16), load(a + 24) + row * load(a + 40)
    gates, ups = scratch, scratch + 4 * GATED
    widen(kind, x + first * size, gates, count)
    widen(kind, x + (width + first) * size, ups, count)
    if load(a + 56) == SILU:
        silu_row(gates, count)
    else:
        gelu_row(gates, count)
    round_to(kind, gates, count)
    for i in range(count):
        write(FLOAT32, gates + 4 * i, read(FLOAT32, gates + 4 * i) * read(FLOAT32, ups + 4 * i))
    if out_kind != kind:
        round_to(kind, gates, count)
    narrow(out_kind, gates, out + first * size_of(out_kind), count)


@cfunc(KERNEL, cache=True)
def cap(a, task, scratch):
    """cap * tanh(x / cap) of `CAPPED` float32. a: x, out, numbers, cap"""
    first = task * CAPPED
    cap_row(
        load(a) + 4 * first,
        load(a + 8) + 4 * first,
        min(load(a + 16) - first, CAPPED),
        as_float(load(a + 24)),
    )
