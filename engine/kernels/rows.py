"""Rows: numbers of a type made float32, and back; eight at a time, since each loop knows its type."""

from __future__ import annotations

from numba import njit

from .instructions import BFLOAT16, FLOAT16, FLOAT32, read, round_number, write


@njit(nogil=True)
def size_of(kind):
    """Bytes of a number of a type."""
    return 4 if kind == FLOAT32 else 2


@njit(nogil=True)
def widen(kind, x, out, count):
    """`count` numbers of a type at x as float32 at out."""
    if kind == FLOAT32:
        for i in range(count):
            write(FLOAT32, out + 4 * i, read(FLOAT32, x + 4 * i))
    elif kind == BFLOAT16:
        for i in range(count):
            write(FLOAT32, out + 4 * i, read(BFLOAT16, x + 2 * i))
    else:
        for i in range(count):
            write(FLOAT32, out + 4 * i, read(FLOAT16, x + 2 * i))


@njit(nogil=True)
def narrow(kind, x, out, count):
    """`count` float32 at x, rounded to a type, at out."""
    if kind == FLOAT32:
        for i in range(count):
            write(FLOAT32, out + 4 * i, read(FLOAT32, x + 4 * i))
    elif kind == BFLOAT16:
        for i in range(count):
            write(BFLOAT16, out + 2 * i, read(FLOAT32, x + 4 * i))
    else:
        for i in range(count):
            write(FLOAT16, out + 2 * i, read(FLOAT32, x + 4 * i))


@njit(nogil=True)
def round_to(kind, x, count):
    """`count` float32 at x rounded to the nearest of a type, in place."""
    if kind == BFLOAT16:
        for i in range(count):
            write(FLOAT32, x + 4 * i, round_number(BFLOAT16, read(FLOAT32, x + 4 * i)))
    elif kind == FLOAT16:
        for i in range(count):
            write(FLOAT32, x + 4 * i, round_number(FLOAT16, read(FLOAT32, x + 4 * i)))
