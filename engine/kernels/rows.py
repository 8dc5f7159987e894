"""Rows: dot products of rows, and rows of numbers converted to another type."""

from __future__ import annotations

from numba import njit

from .instructions import FLOAT32, TILES, convert_row, dot_lanes, fma, read, round_row, write

TALLEST = max(TILES)
ACROSS = (1, *(TILES.get(rows, 0) for rows in range(1, TALLEST + 1)))  # rows of a tile -> its outputs


@njit(nogil=True)
def size_of(kind):
    """Bytes of a number of a type."""
    return 4 if kind == FLOAT32 else 2


@njit(nogil=True)
def tile_of(rows):
    """How many of so many rows the next tile takes, so that few tiles are small: 1, 2, 3, 4 or 6."""
    if rows <= 4:
        return rows
    if rows == 5:
        return 3
    return 4 if rows == 7 or rows == 8 or rows == 11 else 6


@njit(nogil=True, inline="always")
def dot(kind, rows, w, w_stride, x, x_stride, out, out_stride, k, ahead):
    """`dot_lanes`, plus the last k % 8 products, one after the other."""
    dot_lanes(kind, rows, w, w_stride, x, x_stride, out, out_stride, k, ahead)
    if k % 8:
        first, size = k // 8 * 8, size_of(kind)
        for r in range(max(rows, 1)):
            for j in range(ACROSS[rows]):
                at = out + r * out_stride + 4 * j
                total = read(FLOAT32, at)
                for i in range(first, k):
                    weight = read(kind, w + j * w_stride + i * size)
                    total = fma(weight, read(FLOAT32, x + r * x_stride + 4 * i), total)
                write(FLOAT32, at, total)


@njit(nogil=True)
def widen(kind, x, out, count):
    """`count` numbers of a type at x as float32 at out."""
    convert_row(kind, FLOAT32, x, out, count)


@njit(nogil=True)
def narrow(kind, x, out, count):
    """`count` float32 at x, rounded to a type, at out."""
    convert_row(FLOAT32, kind, x, out, count)


@njit(nogil=True)
def round_to(kind, x, count):
    """`count` float32 at x rounded to the nearest of a type, in place."""
    round_row(kind, x, count)
