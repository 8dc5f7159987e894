"""Attention: what rows of queries make of the entries that they see, each in the order of the cache.

A row reads its entries one after the other; one that it may not see has weight 0 and changes no bit. So an answer does not
depend on what else the cache holds, on the rows beside it, or on how many threads there are.
"""

from __future__ import annotations

import numpy as np
from numba import cfunc, njit

from .functions import cap_row, exp_row
from .instructions import FLOAT32, as_float, byte, largest, load, read, row_sums, weighted_sum, write
from .products import KERNEL
from .rows import ACROSS, TALLEST, dot, narrow, round_to, size_of, tile_of, widen

TILE = TALLEST  # rows that are worked through together
_NOTHING = np.float32(-np.inf)
_ZERO = np.float32(0)

# the arguments, int64 each: an address and strides in bytes (0 where something is the same for all), sizes, bits of float32
FIELDS = (
    *("q", "q_kind", "q_batch", "q_head", "q_group", "q_row"),
    *("k", "k_kind", "k_batch", "k_head", "k_entry"),
    *("v", "v_batch", "v_head", "v_entry"),
    *("mask", "mask_batch", "mask_head", "mask_group", "mask_row", "mask_entry"),
    *("heads", "group", "rows", "entries", "width", "tile", "causal", "scale", "cap"),
    *("out", "out_kind", "rounded_to", "out_batch", "out_head", "out_group", "out_row"),
    *("weights", "totals", "maxima"),
)
_Q, _Q_KIND, _Q_BATCH, _Q_HEAD, _Q_GROUP, _Q_ROW = range(0, 48, 8)
_K, _KIND, _K_BATCH, _K_HEAD, _K_ENTRY = range(48, 88, 8)
_V, _V_BATCH, _V_HEAD, _V_ENTRY = range(88, 120, 8)
_MASK, _MASK_BATCH, _MASK_HEAD, _MASK_GROUP, _MASK_ROW, _MASK_ENTRY = range(120, 168, 8)
_HEADS, _GROUP, _ROWS, _ENTRIES, _WIDTH, _TILE, _CAUSAL, _SCALE, _CAP = range(168, 240, 8)
_OUT, _OUT_KIND, _ROUNDED_TO, _OUT_BATCH, _OUT_HEAD, _OUT_GROUP, _OUT_ROW = range(240, 296, 8)
_WEIGHTS, _TOTALS, _MAXIMA = range(296, 320, 8)


def scratch_bytes(entries: int, width: int) -> int:
    """What a thread needs for itself: a tile's queries, answers and weights."""
    return int(TILE * (2 * _row_bytes.py_func(width) + _weight_bytes.py_func(entries)))


@njit(nogil=True)
def _row_bytes(width):
    """Bytes of a query in the memory of a thread."""
    return (width + 7) // 8 * 32


@njit(nogil=True)
def _weight_bytes(entries):
    """Bytes of a row's weights in the memory of a thread."""
    return (entries + 8) // 8 * 32


@njit(nogil=True)
def _visible(a, row):
    """How many entries a row sees at most, the first ones."""
    if load(a + _CAUSAL):
        return load(a + _ENTRIES) - load(a + _ROWS) + row // load(a + _GROUP) + 1
    return load(a + _ENTRIES)


@njit(nogil=True)
def _read_queries(a, batch, head, first, tall, queries):
    """The queries of a tile as float32; how many entries its rows see at most."""
    kind = load(a + _Q_KIND)
    width = load(a + _WIDTH)
    group = load(a + _GROUP)
    q = load(a + _Q) + batch * load(a + _Q_BATCH) + head * load(a + _Q_HEAD)
    last = 0
    for row in range(first, first + tall):
        widen(kind, q + row % group * load(a + _Q_GROUP) + row // group * load(a + _Q_ROW), queries, width)
        queries += _row_bytes(width)
        last = max(last, _visible(a, row))
    return last


@njit(nogil=True, inline="always")
def _score(a, batch, head, tall, last, queries, scores):
    """The products of queries and the first `last` keys."""
    kind = load(a + _KIND)
    width = load(a + _WIDTH)
    step = load(a + _K_ENTRY)
    k = load(a + _K) + batch * load(a + _K_BATCH) + head * load(a + _K_HEAD)
    wide, stride = _row_bytes(width), _weight_bytes(load(a + _ENTRIES))
    row = 0
    while row < tall:
        rows = tile_of(tall - row)
        s = 0
        while s < last:
            whole = s + ACROSS[rows] <= last
            for r in range(0, rows, rows if whole else 1):
                x = queries + (row + r) * wide
                out = scores + (row + r) * stride + 4 * s
                dot(kind, rows if whole else 0, k + s * step, step, x, wide, out, stride, width, 0)
            s += ACROSS[rows] if whole else 1
        row += rows


@njit(nogil=True)
def _weigh(a, batch, head, first, tall, last, p, totals):
    """The scores p of the rows of a tile made weights; those of entries behind a row's own, up to `last`, are 0.

    totals: memory for a float32 of each row
    """
    stride = _weight_bytes(load(a + _ENTRIES))
    for r in range(tall):
        visible = _visible(a, first + r)
        highest = _scale(a, batch, head, first + r, visible, p + r * stride)
        if load(a + _TOTALS):
            write(FLOAT32, load(a + _MAXIMA) + 4 * _index(a, batch, head, first + r), highest)
        _raise_to_powers(p + r * stride, visible, last, highest if highest > _NOTHING else _ZERO)
    row_sums(p, stride, last, totals)  # one after the other, so that what is masked changes nothing
    for r in range(tall):
        total = read(FLOAT32, totals + 4 * r)
        index = _index(a, batch, head, first + r)
        if load(a + _TOTALS):
            write(FLOAT32, load(a + _TOTALS) + 4 * index, total)
        elif total > _ZERO:
            _divide(p + r * stride, last, total)
        if load(a + _WEIGHTS):
            _copy_weights(p + r * stride, last, load(a + _WEIGHTS), index, load(a + _ENTRIES))


@njit(nogil=True)
def _index(a, batch, head, row):
    """The number of a row of a head among all."""
    rows, group = load(a + _ROWS), load(a + _GROUP)
    return ((batch * load(a + _HEADS) + head) * group + row % group) * rows + row // group


@njit(nogil=True)
def _raise_to_powers(p, visible, last, ground):
    """exp(p - ground) of the first `visible` numbers, 0 of the others."""
    exp_row(p, visible, ground)
    for s in range(visible, last):
        write(FLOAT32, p + 4 * s, _ZERO)


@njit(nogil=True)
def _divide(p, count, total):
    for s in range(count):
        write(FLOAT32, p + 4 * s, read(FLOAT32, p + 4 * s) / total)


@njit(nogil=True)
def _copy_weights(p, last, weights, index, entries):
    """The weights of a row where the caller wants to read them."""
    out = weights + 4 * index * entries
    for s in range(last):
        write(FLOAT32, out + 4 * s, read(FLOAT32, p + 4 * s))
    for s in range(last, entries):
        write(FLOAT32, out + 4 * s, _ZERO)


@njit(nogil=True)
def _scale(a, batch, head, row, visible, p):
    """Scores scaled, capped, and -inf where the mask hides the entry; the highest of them."""
    scale = as_float(load(a + _SCALE))
    cap = as_float(load(a + _CAP))
    group = load(a + _GROUP)
    for s in range(visible):
        write(FLOAT32, p + 4 * s, read(FLOAT32, p + 4 * s) * scale)
    if cap > _ZERO:
        cap_row(p, p, visible, cap)
    if load(a + _MASK):
        at = load(a + _MASK) + batch * load(a + _MASK_BATCH) + head * load(a + _MASK_HEAD)
        at += row % group * load(a + _MASK_GROUP) + row // group * load(a + _MASK_ROW)
        for s in range(visible):
            if byte(at + s * load(a + _MASK_ENTRY)) == 0:
                write(FLOAT32, p + 4 * s, _NOTHING)
    return largest(p, visible)


@njit(nogil=True, inline="always")
def _sum_values(a, batch, head, tall, last, p, sums):
    """The values of the first `last` entries, weighted and summed, for all rows of a tile."""
    kind = load(a + _KIND)
    width = load(a + _WIDTH)
    step = load(a + _V_ENTRY)
    v, size = load(a + _V) + batch * load(a + _V_BATCH) + head * load(a + _V_HEAD), size_of(kind)
    wide, stride = _row_bytes(width), _weight_bytes(load(a + _ENTRIES))
    row = 0
    while row < tall:
        rows = tile_of(tall - row)
        i = 0
        while i < width:
            many = 8 * ACROSS[rows]
            shape, count = 0, many
            if i + many > width:
                count = 8 if i + 8 <= width else 1
                shape = 1 if count == 8 else 2
            weights, out = p + row * stride, sums + row * wide + 4 * i
            weighted_sum(kind, 4 * rows + shape, weights, stride, v + i * size, step, 0, last, out, wide)
            i += count
        row += rows


@njit(nogil=True)
def _write_answers(a, batch, head, first, tall, sums):
    kind = load(a + _OUT_KIND)
    width = load(a + _WIDTH)
    group = load(a + _GROUP)
    out = load(a + _OUT) + batch * load(a + _OUT_BATCH) + head * load(a + _OUT_HEAD)
    for row in range(first, first + tall):
        at = out + row % group * load(a + _OUT_GROUP) + row // group * load(a + _OUT_ROW)
        round_to(load(a + _ROUNDED_TO), sums, width)
        narrow(kind, sums, at, width)
        sums += _row_bytes(width)


@cfunc(KERNEL, cache=True)
def attention(a, task, scratch):
    """A tile of rows of one head of one sequence.

    a: FIELDS. q [B, H, g, T, D], k and v [B, H, S, D], mask bool [B, H, g, T, S] or 0, out [B, H, g, T, D]; the numbers of an
    entry stand side by side. cap: 0 for none. causal: row t sees the first S - T + t + 1 entries. weights: float32
    [B, H, g, T, S] to write, or 0. With totals and maxima, float32 [B, H, g, T], nothing is divided by the sum.
    """
    heads, rows = load(a + _HEADS), load(a + _GROUP) * load(a + _ROWS)
    tile, width = load(a + _TILE), load(a + _WIDTH)
    tiles = (rows + tile - 1) // tile
    batch = task // (heads * tiles)
    head = task // tiles % heads
    first = task % tiles * tile
    tall = min(tile, rows - first)
    sums = scratch + TILE * _row_bytes(width)
    weights = sums + TILE * _row_bytes(width)
    last = _read_queries(a, batch, head, first, tall, scratch)
    _score(a, batch, head, tall, last, scratch, weights)
    _weigh(a, batch, head, first, tall, last, weights, sums)
    _sum_values(a, batch, head, tall, last, weights, sums)
    _write_answers(a, batch, head, first, tall, sums)
