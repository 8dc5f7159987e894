"""Products: rows times a matrix of weights, each output one sum in one order."""

from __future__ import annotations

from numba import cfunc, njit

from .instructions import FLOAT32, load, read, round_number, write, write_outputs
from .rows import ACROSS, TALLEST, dot, size_of, tile_of
from .unpacking import unpack_row

KERNEL = "void(intp, intp, intp)"  # arguments, task, memory of the thread
_PARTS = 4  # tasks of a thread in one product, so that a busy neighbour costs little
_NEAR = 64  # outputs that are worked through at a time, so that their weights stay in the cache
_FEW = 16  # rows up to which 8 outputs are unpacked at a time, which stay nearer
_SUMS = TALLEST * 32  # bytes of the sums of a tile

# the arguments, int64 each: addresses, strides in bytes, types and numbers; the last five are those of matrices of few bits
FIELDS = (
    *("weights", "kind", "weight_stride", "outputs", "x", "x_stride", "rows", "k"),
    *("out", "out_kind", "out_stride", "bias", "more", "chunk"),
    *("scales", "scale_kind", "scale_stride", "group_stride", "group_shift"),
)
_WEIGHTS, _KIND, _WEIGHT_STRIDE, _OUTPUTS, _X, _X_STRIDE, _ROWS, _WIDTH = range(0, 64, 8)
_OUT, _OUT_KIND, _OUT_STRIDE, _BIAS, _MORE, _CHUNK = range(64, 112, 8)
_SCALES, _SCALE_KIND, _SCALE_STRIDE, _GROUP_STRIDE, _GROUP_SHIFT = range(112, 152, 8)


def outputs_of_task(outputs: int, threads: int) -> int:
    """The chunk of outputs of a task: weights that follow each other, so that they are asked for ahead."""
    return -(-outputs // (threads * _PARTS * 8)) * 8


def scratch_bytes(k: int) -> int:
    """What a thread needs for itself in a product with a matrix of few bits: sums, and the rows that were unpacked."""
    return _SUMS + 4 * _NEAR * k


@njit(nogil=True, inline="always")
def _multiply(a, kind, w, stride, row, tall, outputs, sums, ahead):
    """The sums, float32 [tall, 8], of up to 8 outputs, whose weights begin at w, for `tall` rows from `row` on."""
    k = load(a + _WIDTH)
    x_stride = load(a + _X_STRIDE)
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
    """Add the bias to sums, round them, add what is there, and write them."""
    kind = load(a + _OUT_KIND)
    bias = load(a + _BIAS)
    more = load(a + _MORE)
    size = size_of(kind)
    for r in range(tall):
        at = (row + r) * load(a + _OUT_STRIDE) + j * size
        if outputs == 8:
            bias_at = bias + j * size if bias else 0
            more_at = more + at if more else 0
            write_outputs(kind, sums + 32 * r, bias_at, more_at, load(a + _OUT) + at)
            continue
        for i in range(outputs):
            value = read(FLOAT32, sums + 32 * r + 4 * i)
            if bias:
                value += read(kind, bias + (j + i) * size)
            if more:
                value = round_number(kind, value) + read(kind, more + at + i * size)
            write(kind, load(a + _OUT) + at + i * size, value)


@cfunc(KERNEL, cache=True)
def product(a, task, sums):
    """A chunk of outputs of every row.

    a: FIELDS. weights [outputs, k], x float32 [rows, k]; out [rows, outputs], bias [outputs] and what is added to the rounded
    outputs, `more` [rows, outputs], are of one type. bias and more may be 0, and more may be out.
    """
    kind, stride = load(a + _KIND), load(a + _WEIGHT_STRIDE)
    rows, end = load(a + _ROWS), min(load(a + _OUTPUTS), (task + 1) * load(a + _CHUNK))
    for begin in range(task * load(a + _CHUNK), end, _NEAR):
        last = min(begin + _NEAR, end)
        row = 0
        while row < rows:
            tall = tile_of(rows - row)
            ahead = 16 * stride if row == 0 else 0
            for j in range(begin, last, 8):
                w = load(a + _WEIGHTS) + j * stride
                _multiply(a, kind, w, stride, row, tall, min(8, last - j), sums, ahead)
                _write_outputs(a, row, tall, j, min(8, last - j), sums)
            row += tall


@cfunc(KERNEL, cache=True)
def packed_product(a, task, sums):
    """`product` with a matrix of few bits: some of its rows are unpacked, once for all rows of x, and multiplied.

    a: FIELDS, `kind` the number of a format, k a multiple of 32; scales as `unpack_row` has them
    """
    k = load(a + _WIDTH)
    stride = load(a + _WEIGHT_STRIDE)
    rows, end = load(a + _ROWS), min(load(a + _OUTPUTS), (task + 1) * load(a + _CHUNK))
    wide, near = sums + _SUMS, _NEAR if rows > _FEW else 8
    for begin in range(task * load(a + _CHUNK), end, near):
        last = min(begin + near, end)
        for j in range(begin, last):
            scales = load(a + _SCALES) + j * load(a + _SCALE_STRIDE)
            groups, shift = load(a + _GROUP_STRIDE), load(a + _GROUP_SHIFT)
            packed, out = load(a + _WEIGHTS) + j * stride, wide + (j - begin) * 4 * k
            unpack_row(load(a + _KIND), load(a + _SCALE_KIND), packed, scales, groups, shift, k, out)
        row = 0
        while row < rows:
            tall = tile_of(rows - row)
            for j in range(begin, last, 8):
                w = wide + (j - begin) * 4 * k
                _multiply(a, FLOAT32, w, 4 * k, row, tall, min(8, last - j), sums, 0)
                _write_outputs(a, row, tall, j, min(8, last - j), sums)
            row += tall
