"""Products: rows times a matrix of weights, each output one sum in one order."""

from __future__ import annotations

from numba import cfunc, njit

from .instructions import FLOAT32, load, read, round_number, write, write_outputs
from .rows import ACROSS, dot, size_of, tile_of

KERNEL = "void(intp, intp, intp)"  # arguments, task, memory of the thread
_PARTS = 4  # tasks of a thread in one product, so that a busy neighbour costs little
NEAR = 64  # outputs that are worked through at a time, so that their weights stay in the cache

# the arguments, int64 each: addresses, strides in bytes, types and numbers; the last five are those of matrices of few bits
FIELDS = (
    *("weights", "kind", "weight_stride", "outputs", "x", "x_stride", "rows", "k"),
    *("out", "out_kind", "out_stride", "bias", "more", "chunk"),
    *("scales", "scale_kind", "scale_stride", "group_stride", "group_shift"),
)
WEIGHTS, KIND, WEIGHT_STRIDE, OUTPUTS, X, X_STRIDE, ROWS, WIDTH = range(0, 64, 8)
OUT, OUT_KIND, OUT_STRIDE, BIAS, MORE, CHUNK = range(64, 112, 8)


def outputs_of_task(outputs: int, threads: int) -> int:
    """The chunk of outputs of a task: weights that follow each other, so that they are asked for ahead."""
    return -(-outputs // (threads * _PARTS * 8)) * 8


@njit(nogil=True, inline="always")
def multiply(a, kind, w, stride, row, tall, outputs, sums, ahead):
    """The sums, float32 [tall, 8], of up to 8 outputs, whose weights begin at w, for `tall` rows from `row` on."""
    k = load(a + WIDTH)
    x_stride = load(a + X_STRIDE)
    x = load(a + X) + row * x_stride
    whole = outputs == 8
    shape = tall if whole else 0
    down, across = tall if whole else 1, ACROSS[tall] if whole else 1
    for r in range(0, tall, down):
        for i in range(0, outputs, across):
            at = sums + 32 * r + 4 * i
            dot(kind, shape, w + i * stride, stride, x + r * x_stride, x_stride, at, 32, k, ahead)


@njit(nogil=True)
def finish(a, row, tall, j, outputs, sums):
    """Add the bias to sums, round them, add what is there, and write them."""
    kind = load(a + OUT_KIND)
    bias = load(a + BIAS)
    more = load(a + MORE)
    size = size_of(kind)
    for r in range(tall):
        at = (row + r) * load(a + OUT_STRIDE) + j * size
        if outputs == 8:
            bias_at = bias + j * size if bias else 0
            more_at = more + at if more else 0
            write_outputs(kind, sums + 32 * r, bias_at, more_at, load(a + OUT) + at)
            continue
        for i in range(outputs):
            value = read(FLOAT32, sums + 32 * r + 4 * i)
            if bias:
                value += read(kind, bias + (j + i) * size)
            if more:
                value = round_number(kind, value) + read(kind, more + at + i * size)
            write(kind, load(a + OUT) + at + i * size, value)


@cfunc(KERNEL, cache=True)
def product(a, task, sums):
    """A chunk of outputs of every row.

    a: FIELDS. weights [outputs, k], x float32 [rows, k]; out [rows, outputs], bias [outputs] and what is added to the rounded
    outputs, `more` [rows, outputs], are of one type. bias and more may be 0, and more may be out.
    """
    kind, stride = load(a + KIND), load(a + WEIGHT_STRIDE)
    rows, end = load(a + ROWS), min(load(a + OUTPUTS), (task + 1) * load(a + CHUNK))
    for begin in range(task * load(a + CHUNK), end, NEAR):
        last = min(begin + NEAR, end)
        row = 0
        while row < rows:
            tall = tile_of(rows - row)
            ahead = 16 * stride if row == 0 else 0
            for j in range(begin, last, 8):
                w = load(a + WEIGHTS) + j * stride
                multiply(a, kind, w, stride, row, tall, min(8, last - j), sums, ahead)
                finish(a, row, tall, j, min(8, last - j), sums)
            row += tall
