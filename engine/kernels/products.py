"""Products: rows times a matrix of weights, each output one sum in one order."""

from __future__ import annotations

from numba import cfunc, njit

from .instructions import FLOAT32, load, read, round_number, write, write_outputs
from .rows import ACROSS, dot, size_of, tile_of

KERNEL = "void(intp, intp, intp)"  # arguments, task, memory of the thread
_PARTS = 4  # tasks of a thread in one product, so that a busy neighbour costs little
_NEAR = 64  # outputs that are worked through at a time, so that their weights stay in the cache

# the arguments, int64 each: addresses, strides in bytes, types and numbers
FIELDS = (
    *("weights", "kind", "weight_stride", "outputs", "x", "x_stride", "rows", "k"),
    *("out", "out_kind", "out_stride", "bias", "more", "chunk"),
)
_WEIGHTS, _KIND, _WEIGHT_STRIDE, _OUTPUTS, _X, _X_STRIDE, _ROWS, _WIDTH = range(0, 64, 8)
_OUT, _OUT_KIND, _OUT_STRIDE, _BIAS, _MORE, _CHUNK = range(64, 112, 8)


def outputs_of_task(outputs: int, threads: int) -> int:
    """The chunk of outputs of a task: weights that follow each other, so that they are asked for ahead."""
    return -(-outputs // (threads * _PARTS * 8)) * 8


@njit(nogil=True)
def _multiply(a, row, tall, j, outputs, sums, ahead):
    """The sums, float32 [tall, 8], of up to 8 outputs from j on for `tall` rows from `row` on."""
    kind = load(a + _KIND)
    stride = load(a + _WEIGHT_STRIDE)
    k = load(a + _WIDTH)
    w, x_stride = load(a + _WEIGHTS) + j * stride, load(a + _X_STRIDE)
    x = load(a + _X) + row * x_stride
    whole = outputs == 8
    shape = tall if whole else 0
    down, across = tall if whole else 1, ACROSS[tall] if whole else 1
    for r in range(0, tall, down):
        for i in range(0, outputs, across):
            at = sums + 32 * r + 4 * i
            dot(kind, shape, w + i * stride, stride, x + r * x_stride, x_stride, at, 32, k, ahead)


@njit(nogil=True)
def _write_outputs(a, row, tall, j, outputs, sums):
    """Add the bias to sums, round them, add what stands there, and write them."""
    kind = load(a + _KIND)
    out_kind = load(a + _OUT_KIND)
    bias = load(a + _BIAS)
    more = load(a + _MORE)
    size, out_size = size_of(kind), size_of(out_kind)
    for r in range(tall):
        at = (row + r) * load(a + _OUT_STRIDE) + j * out_size
        if outputs == 8:
            bias_at = bias + j * size if bias else 0
            more_at = more + at if more else 0
            write_outputs(kind, out_kind, sums + 32 * r, bias_at, more_at, load(a + _OUT) + at)
            continue
        for i in range(outputs):
            value = read(FLOAT32, sums + 32 * r + 4 * i)
            if bias:
                value += read(kind, bias + (j + i) * size)
            if more:
                value = round_number(out_kind, value) + read(out_kind, more + at + i * out_size)
            write(out_kind, load(a + _OUT) + at + i * out_size, value)


@cfunc(KERNEL, cache=True)
def product(a, task, sums):
    """A chunk of outputs of every row.

    a: FIELDS. weights [outputs, k] and bias [outputs] are of one type, x is float32 [rows, k]; out and what is added to the
    rounded outputs, `more`, are [rows, outputs] of another. bias and more may be 0, and more may be out.
    """
    ahead = 16 * load(a + _WEIGHT_STRIDE)
    rows, end = load(a + _ROWS), min(load(a + _OUTPUTS), (task + 1) * load(a + _CHUNK))
    for begin in range(task * load(a + _CHUNK), end, _NEAR):
        last = min(begin + _NEAR, end)
        row = 0
        while row < rows:
            tall = tile_of(rows - row)
            for j in range(begin, last, 8):
                _multiply(a, row, tall, j, min(8, last - j), sums, ahead if row == 0 else 0)
                _write_outputs(a, row, tall, j, min(8, last - j), sums)
            row += tall
