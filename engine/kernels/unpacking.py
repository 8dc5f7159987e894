"""Unpacking: rows of few bits made float32, 32 numbers at a time, each a whole number times a scale, plus an offset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .formats import FORMATS, RUN
from .instructions import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    REGISTERS,
    SIZES,
    call_apart,
    call_function,
    read_numbers,
    splat,
    write_sums,
)

_I8 = ir.IntType(8)
_I16 = ir.IntType(16)
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_FLOAT = ir.FloatType()
_WORDS = ir.VectorType(_I32, 8)
_NUMBERS = ir.VectorType(_FLOAT, 8)


class _Run(NamedTuple):
    """Where 32 numbers of a row are. row: address of the row;  t: which run of the row;  the others as `unpack_row` has them"""

    row: Any
    t: Any
    scales: Any
    stride: Any
    shift: Any


class _Eight(NamedTuple):
    """8 numbers, q * scale + offset. q: <8 x i32>;  scale, offset: float32; None: no offset"""

    q: Any
    scale: Any
    offset: Any = None


def _constant(value: int, kind: ir.Type = _I64) -> ir.Constant:
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


def _add(b: ir.IRBuilder, address: Any, offset: Any) -> Any:
    return b.add(address, offset if isinstance(offset, ir.Value) else _constant(offset))


def _load(b: ir.IRBuilder, address: Any, kind: ir.Type, offset: Any = 0) -> Any:
    return b.load(b.inttoptr(_add(b, address, offset), kind.as_pointer()), align=1)


def _half(b: ir.IRBuilder, address: Any, offset: Any = 0) -> Any:
    """A float16 as float32."""
    return b.fpext(_load(b, address, ir.HalfType(), offset), _FLOAT)


def _bytes(b: ir.IRBuilder, address: Any, offset: Any = 0, *, signed: bool = False) -> Any:
    """8 bytes as <8 x i32>."""
    eight = _load(b, address, ir.VectorType(_I8, 8), offset)
    return b.sext(eight, _WORDS) if signed else b.zext(eight, _WORDS)


def _splat_word(b: ir.IRBuilder, word: Any) -> Any:
    one = b.insert_element(ir.Constant(_WORDS, ir.Undefined), word, _constant(0, _I32))
    return b.shuffle_vector(one, one, ir.Constant(_WORDS, [0] * 8))


def _low_bits(b: ir.IRBuilder, words: Any, shift: Any, bits: int) -> Any:
    """So many bits of each word from `shift` on, which is a number of Python or an i32 of the program."""
    by = _splat_word(b, shift) if isinstance(shift, ir.Value) else _constant(shift, _WORDS)
    return b.and_(b.lshr(words, by), _constant((1 << bits) - 1, _WORDS))


def _nibbles(b: ir.IRBuilder, address: Any) -> list[Any]:
    """32 numbers of 4 bits in 16 bytes: the lower halves are the first 16 numbers, the upper halves the others."""
    words = [_bytes(b, address, 0), _bytes(b, address, 8)]
    return [_low_bits(b, words[i % 2], 4 * (i // 2), 4) for i in range(4)]


def _fifth_bits(b: ir.IRBuilder, address: Any, q: Sequence[Any]) -> list[Any]:
    """q with bit i of the 32 at an address on top of number i."""
    bits = _splat_word(b, _load(b, address, _I32))
    places = [ir.Constant(_WORDS, list(range(8 * i, 8 * i + 8))) for i in range(4)]
    top = [b.shl(b.and_(b.lshr(bits, place), _constant(1, _WORDS)), _constant(4, _WORDS)) for place in places]
    return [b.or_(number, bit) for number, bit in zip(q, top, strict=True)]


def _minus(b: ir.IRBuilder, q: Sequence[Any], middle: int) -> list[Any]:
    return [b.sub(number, _constant(middle, _WORDS)) for number in q]


def _own_scale(b: ir.IRBuilder, run: _Run, kind: int, place: int) -> Any:
    """The scale, or the offset, of the group of a run."""
    at = _add(b, run.scales, b.mul(b.lshr(run.t, run.shift), run.stride))
    return read_numbers(b, _add(b, at, place * SIZES[kind]), kind, 1)


def _w8(b: ir.IRBuilder, run: _Run, kind: int) -> list[_Eight]:
    scale = read_numbers(b, run.scales, kind, 1)
    at = _add(b, run.row, b.mul(run.t, _constant(RUN)))
    return [_Eight(_bytes(b, at, 8 * i, signed=True), scale) for i in range(4)]


def _w4(b: ir.IRBuilder, run: _Run, kind: int) -> list[_Eight]:
    scale, zero = (_own_scale(b, run, kind, place) for place in (0, 1))
    offset = call_function(b, "fma", scale, ir.Constant(_FLOAT, -8.0), zero)
    return [_Eight(q, scale, offset) for q in _nibbles(b, _add(b, run.row, b.mul(run.t, _constant(16))))]


def _block(b: ir.IRBuilder, run: _Run, name: str) -> Any:
    """The address of the block of a run."""
    one = FORMATS[name]
    number = run.t if one.block == RUN else b.lshr(run.t, _constant((one.block // RUN).bit_length() - 1))
    return _add(b, run.row, b.mul(number, _constant(one.size)))


def _q8_0(b: ir.IRBuilder, run: _Run, kind: int) -> list[_Eight]:
    at = _block(b, run, "Q8_0")
    d = _half(b, at)
    return [_Eight(_bytes(b, at, 2 + 8 * i, signed=True), d) for i in range(4)]


def _q4_0(b: ir.IRBuilder, run: _Run, kind: int) -> list[_Eight]:
    at = _block(b, run, "Q4_0")
    d = _half(b, at)
    return [_Eight(q, d) for q in _minus(b, _nibbles(b, _add(b, at, 2)), 8)]


def _q4_1(b: ir.IRBuilder, run: _Run, kind: int) -> list[_Eight]:
    at = _block(b, run, "Q4_1")
    d, m = _half(b, at), _half(b, at, 2)
    return [_Eight(q, d, m) for q in _nibbles(b, _add(b, at, 4))]


def _q5_0(b: ir.IRBuilder, run: _Run, kind: int) -> list[_Eight]:
    at = _block(b, run, "Q5_0")
    d = _half(b, at)
    numbers = _fifth_bits(b, _add(b, at, 2), _nibbles(b, _add(b, at, 6)))
    return [_Eight(q, d) for q in _minus(b, numbers, 16)]


def _q5_1(b: ir.IRBuilder, run: _Run, kind: int) -> list[_Eight]:
    at = _block(b, run, "Q5_1")
    d, m = _half(b, at), _half(b, at, 2)
    return [_Eight(q, d, m) for q in _fifth_bits(b, _add(b, at, 4), _nibbles(b, _add(b, at, 8)))]


def _six_bits(b: ir.IRBuilder, at: Any, part: Any) -> tuple[Any, Any]:
    """The scale and the minimum, 6 bits each, of part 0 to 7 of a block whose 12 bytes of them begin at `at`."""

    def byte(place: Any) -> Any:
        return b.zext(_load(b, at, _I8, place), _I32)

    def bits(word: Any, shift: int, count: int) -> Any:
        return b.and_(b.lshr(word, _constant(shift, _I32)), _constant((1 << count) - 1, _I32))

    early = b.icmp_unsigned("<", part, _constant(4))
    quarter = b.and_(part, _constant(3))
    first, second, third = (byte(b.add(quarter, _constant(4 * i))) for i in range(3))
    sixteen = _constant(4, _I32)
    scale = b.or_(bits(third, 0, 4), b.shl(bits(first, 6, 2), sixteen))
    least = b.or_(bits(third, 4, 4), b.shl(bits(second, 6, 2), sixteen))
    return b.select(early, bits(first, 0, 6), scale), b.select(early, bits(second, 0, 6), least)


def _k_quant(b: ir.IRBuilder, run: _Run, kind: int, name: str) -> list[_Eight]:
    """Q4_K, or Q5_K, which has a fifth bit."""
    at = _block(b, run, name)
    part = b.and_(run.t, _constant(7))
    scale, least = _six_bits(b, _add(b, at, 4), part)
    d = b.fmul(_half(b, at), b.uitofp(scale, _FLOAT))
    offset = b.fneg(b.fmul(_half(b, at, 2), b.uitofp(least, _FLOAT)))
    fifth = name == "Q5_K"
    pair = b.lshr(part, _constant(1))
    quants = _add(b, _add(b, at, 48 if fifth else 16), b.mul(pair, _constant(32)))
    shift = b.trunc(b.shl(b.and_(part, _constant(1)), _constant(2)), _I32)
    numbers = [_low_bits(b, _bytes(b, quants, 8 * i), shift, 4) for i in range(4)]
    if fifth:
        bit = b.trunc(part, _I32)
        tops = [_low_bits(b, _bytes(b, at, 16 + 8 * i), bit, 1) for i in range(4)]
        numbers = [b.or_(q, b.shl(top, _constant(4, _WORDS))) for q, top in zip(numbers, tops, strict=True)]
    return [_Eight(q, d, offset) for q in numbers]


def _q6_k(b: ir.IRBuilder, run: _Run, kind: int) -> list[_Eight]:
    at = _block(b, run, "Q6_K")
    part = b.and_(run.t, _constant(7))
    half, quarter = b.lshr(part, _constant(2)), b.and_(part, _constant(3))
    low = _add(b, at, b.add(b.mul(half, _constant(64)), b.mul(b.and_(quarter, _constant(1)), _constant(32))))
    high = _add(b, _add(b, at, 128), b.mul(half, _constant(32)))
    low_shift = b.trunc(b.shl(b.lshr(quarter, _constant(1)), _constant(2)), _I32)
    high_shift = b.trunc(b.shl(quarter, _constant(1)), _I32)
    d = _half(b, at, 208)
    eights = []
    for i in range(4):
        ends = _low_bits(b, _bytes(b, low, 8 * i), low_shift, 4)
        tops = _low_bits(b, _bytes(b, high, 8 * i), high_shift, 2)
        q = b.sub(b.or_(ends, b.shl(tops, _constant(4, _WORDS))), _constant(32, _WORDS))
        scale = _load(b, _add(b, at, 192 + i // 2), _I8, b.shl(part, _constant(1)))
        eights.append(_Eight(q, b.fmul(d, b.sitofp(scale, _FLOAT))))
    return eights


_UNPACKERS: dict[str, Callable[[ir.IRBuilder, _Run, int], list[_Eight]]] = {
    **{"W8": _w8, "W4": _w4},
    **{"Q8_0": _q8_0, "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q6_K": _q6_k},
    **{name: partial(_k_quant, name=name) for name in ("Q4_K", "Q5_K")},
}


def _variants() -> list[tuple[str, int]]:
    """(format, type of its scales), of which each needs code of its own."""
    own = {"W8", "W4"}
    return [
        (name, kind)
        for name in FORMATS
        for kind in ((FLOAT32, BFLOAT16, FLOAT16) if name in own else (FLOAT32,))
    ]


def _as_numbers(b: ir.IRBuilder, eight: _Eight) -> Any:
    """8 numbers of a run as float32: exactly q * scale, or q * scale + offset rounded once."""
    q = b.sitofp(eight.q, _NUMBERS)
    scale = splat(b, q, eight.scale)
    if eight.offset is None:
        return b.fmul(q, scale)
    return call_function(b, "fma", q, scale, splat(b, q, eight.offset))


def _begin_runs(b: ir.IRBuilder, k: Any) -> tuple[Any, ir.Block, ir.Block, ir.Block]:
    """Open a loop over the runs of k numbers: its counter, and the blocks before it, where it tests, and behind it."""
    before = b.block
    test, body, done = (b.function.append_basic_block(block) for block in ("test", "body", "done"))
    b.branch(test)
    b.position_at_end(test)
    t = b.phi(_I64)
    t.add_incoming(_constant(0), before)
    return t, before, body, done


def _emit_unpacking(b: ir.IRBuilder, arguments: Sequence[Any], name: str, kind: int) -> None:
    """A row of a format as float32, see `unpack_row`."""
    row, scales, stride, shift, k, out = arguments
    t, _, body, done = _begin_runs(b, k)
    test = b.block
    b.cbranch(b.icmp_signed("<", b.mul(t, _constant(RUN)), k), body, done)
    b.position_at_end(body)
    for i, eight in enumerate(_UNPACKERS[name](b, _Run(row, t, scales, stride, shift), kind)):
        place = _add(b, out, b.mul(t, _constant(4 * RUN)))
        b.store(_as_numbers(b, eight), b.inttoptr(_add(b, place, 32 * i), _NUMBERS.as_pointer()), align=4)
    t.add_incoming(b.add(t, _constant(1)), b.block)
    b.branch(test)
    b.position_at_end(done)


def _emit_packed_dot(b: ir.IRBuilder, arguments: Sequence[Any], rows: int, name: str, kind: int) -> None:
    """The dot products of rows with rows of a format, see `packed_dot`."""
    w, ws, scales, ss, stride, shift, x, xs, k, o, os = arguments
    t, before, body, done = _begin_runs(b, k)
    test, outputs = b.block, DIRECT[rows]
    sums = [[b.phi(_NUMBERS) for _ in range(outputs)] for _ in range(rows)]
    for s in (s for row in sums for s in row):
        s.add_incoming(ir.Constant(_NUMBERS, [0.0] * 8), before)
    b.cbranch(b.icmp_signed("<", b.mul(t, _constant(RUN)), k), body, done)
    b.position_at_end(body)
    totals: list[list[Any]] = [list(row) for row in sums]
    places = [_add(b, _add(b, x, b.mul(xs, _constant(r))), b.mul(t, _constant(4 * RUN))) for r in range(rows)]
    for j in range(outputs):
        at_row, at_scales = (
            _add(b, base, b.mul(step, _constant(j))) for base, step in ((w, ws), (scales, ss))
        )
        for i, eight in enumerate(_UNPACKERS[name](b, _Run(at_row, t, at_scales, stride, shift), kind)):
            weight = _as_numbers(b, eight)
            for r in range(rows):
                value = read_numbers(b, _add(b, places[r], 32 * i), FLOAT32, 8)
                totals[r][j] = call_function(b, "fma", weight, value, totals[r][j])
    for row, reached in zip(sums, totals, strict=True):
        for s, total in zip(row, reached, strict=True):
            s.add_incoming(total, b.block)
    t.add_incoming(b.add(t, _constant(1)), b.block)
    b.branch(test)
    b.position_at_end(done)
    write_sums(b, sums, o, os)


DIRECT = {
    1: 8,
    2: 4,
    4: 4 if REGISTERS == 32 else 2,
}  # rows that are multiplied without unpacking to memory -> outputs of a tile


@intrinsic
def packed_dot(
    _: Any,
    number: Any,
    kind: Any,
    rows: Any,
    w: Any,
    ws: Any,
    scales: Any,
    ss: Any,
    stride: Any,
    shift: Any,
    x: Any,
    xs: Any,
    k: Any,
    o: Any,
    os: Any,
) -> Any:
    """Dot products of 1, 2 or 4 float32 rows with DIRECT[rows] rows of a format, k a multiple of 32.

    Arguments: format, type of scales, rows; weights, stride; scales, stride, that of groups, shift; x, stride, k; out, stride.

    Addresses, and strides in bytes; the four about scales as in `unpack_row`, and the bits are those of `unpack_row` and `dot`.
    """

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        number, kind, rows, *others = arguments
        done = b.function.append_basic_block("done")
        case_of = b.add(b.mul(b.add(b.mul(number, _constant(4)), kind), _constant(8)), rows)
        choice = b.switch(case_of, done)
        for name, type_ in _variants():
            for count in DIRECT:
                case = b.function.append_basic_block("dot")
                choice.add_case(_constant(8 * (4 * FORMATS[name].number + type_) + count), case)
                b.position_at_end(case)
                emit = partial(_emit_packed_dot, rows=count, name=name, kind=type_)
                call_apart(b, f"packed_dot_{name}_{type_}_{count}", others, emit)
                b.branch(done)
        b.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*([types.intp] * 14)), code


@intrinsic
def unpack_row(
    _: Any, number: Any, kind: Any, row: Any, scales: Any, stride: Any, shift: Any, k: Any, out: Any
) -> Any:
    """f(format, type of scales, row, scales, stride, shift, k, out): a row of k numbers, k a multiple of 32, as float32.

    Addresses. scales: of the row's first group; `stride` bytes further the next one's (int4). 32 << shift numbers share one.
    GGUF's formats read none of the three.
    """

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        number, kind, *others = arguments
        done = b.function.append_basic_block("done")
        choice = b.switch(b.add(b.mul(number, _constant(4)), kind), done)
        for name, type_ in _variants():
            case = b.function.append_basic_block("unpack")
            choice.add_case(_constant(4 * FORMATS[name].number + type_), case)
            b.position_at_end(case)
            emit = partial(_emit_unpacking, name=name, kind=type_)
            call_apart(b, f"unpack_{name}_{type_}", others, emit)
            b.branch(done)
        b.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*([types.intp] * 8)), code
