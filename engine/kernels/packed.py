"""Packed: rows times a matrix of few bits, unpacked near the processor. Compiled when the first such product comes."""

from __future__ import annotations

from numba import cfunc, njit

from .instructions import FLOAT32, load
from .products import (
    CHUNK,
    KERNEL,
    KIND,
    NEAR,
    OUTPUTS,
    ROWS,
    WEIGHT_STRIDE,
    WEIGHTS,
    WIDTH,
    X_STRIDE,
    X,
    finish,
    multiply,
)
from .rows import TALLEST, tile_of
from .unpacking import DIRECT, packed_dot, unpack_row

_FEW = 16  # rows up to which 8 outputs are unpacked at a time, which stay nearer
_DIRECT = max(DIRECT)  # rows up to which nothing is unpacked to memory
_ACROSS = tuple(DIRECT.get(rows, 0) for rows in range(_DIRECT + 1))
_SUMS = TALLEST * 32  # bytes of the sums of a tile
_SCALES, _SCALE_KIND, _SCALE_STRIDE, _GROUP_STRIDE, _GROUP_SHIFT = range(
    112, 152, 8
)  # the last of products.FIELDS


def scratch_bytes(k: int) -> int:
    """What a thread needs for itself: sums, and the rows that were unpacked."""
    return _SUMS + 4 * NEAR * k


@njit(nogil=True, inline="always")
def _unpack(a, begin, last, wide):
    """The rows `begin` to `last` of the matrix as float32, one behind the other."""
    k = load(a + WIDTH)
    groups, shift = load(a + _GROUP_STRIDE), load(a + _GROUP_SHIFT)
    for j in range(begin, last):
        scales = load(a + _SCALES) + j * load(a + _SCALE_STRIDE)
        row, out = load(a + WEIGHTS) + j * load(a + WEIGHT_STRIDE), wide + (j - begin) * 4 * k
        unpack_row(load(a + KIND), load(a + _SCALE_KIND), row, scales, groups, shift, k, out)


@njit(nogil=True, inline="always")
def _multiply_directly(a, j, sums):
    """The sums, float32 [rows, 8], of 8 outputs from j on for all rows, which are few."""
    rows, stride = load(a + ROWS), load(a + WEIGHT_STRIDE)
    x_stride, scale_stride = load(a + X_STRIDE), load(a + _SCALE_STRIDE)
    groups, shift = load(a + _GROUP_STRIDE), load(a + _GROUP_SHIFT)
    row = 0
    while row < rows:
        tall = rows - row if rows - row != 3 else 2
        for i in range(0, 8, _ACROSS[tall]):
            w, scales = load(a + WEIGHTS) + (j + i) * stride, load(a + _SCALES) + (j + i) * scale_stride
            x, at = load(a + X) + row * x_stride, sums + 32 * row + 4 * i
            packed_dot(
                load(a + KIND),
                load(a + _SCALE_KIND),
                tall,
                w,
                stride,
                scales,
                scale_stride,
                groups,
                shift,
                x,
                x_stride,
                load(a + WIDTH),
                at,
                32,
            )
        row += tall


@cfunc(KERNEL, cache=True)
def packed_product(a, task, sums):
    """`product` with a matrix of few bits. Some of its rows are unpacked, once for all rows of x; for few rows, into registers.

    a: products.FIELDS, `kind` the number of a format, k a multiple of 32; scales as `unpack_row` has them
    """
    k = load(a + WIDTH)
    rows, end = load(a + ROWS), min(load(a + OUTPUTS), (task + 1) * load(a + CHUNK))
    wide, near = sums + _SUMS, NEAR if rows > _FEW else 8
    for begin in range(task * load(a + CHUNK), end, near):
        last = min(begin + near, end)
        if rows <= _DIRECT and last - begin == 8:
            _multiply_directly(a, begin, sums)
            finish(a, 0, rows, begin, 8, sums)
            continue
        _unpack(a, begin, last, wide)
        row = 0
        while row < rows:
            tall = tile_of(rows - row)
            for j in range(begin, last, 8):
                multiply(a, FLOAT32, wide + (j - begin) * 4 * k, 4 * k, row, tall, min(8, last - j), sums, 0)
                finish(a, row, tall, j, min(8, last - j), sums)
            row += tall
