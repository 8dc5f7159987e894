"""Instructions: what the kernels say to LLVM directly, so that a sum has one order on every processor.

Numbers are read from and written to memory by address, float32 in registers whatever their type in memory. A vector holds 8
lanes; a processor with shorter registers takes several, with the same result.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

LANES = 8
FLOAT32 = 0
BFLOAT16 = 1
FLOAT16 = 2
SIZES = (4, 2, 2)  # bytes of a number of each

_I16 = ir.IntType(16)
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_FLOAT = ir.FloatType()
_HALF = ir.HalfType()


def _constant(value: int, like: ir.Type = _I64) -> ir.Constant:
    if isinstance(like, ir.VectorType):
        return ir.Constant(like, [value] * like.count)
    return ir.Constant(like, value)


def _call(b: ir.IRBuilder, name: str, kind: ir.Type, *arguments: Any) -> Any:
    """Call an intrinsic function of LLVM whose arguments and result are of one type."""
    mangled = f"llvm.{name}." + (f"v{kind.count}f32" if isinstance(kind, ir.VectorType) else "f32")
    function = cgutils.get_or_insert_function(
        b.module, ir.FunctionType(kind, [kind] * len(arguments)), mangled
    )
    return b.call(function, arguments)


def _vector(element: ir.Type, lanes: int) -> ir.Type:
    return element if lanes == 1 else ir.VectorType(element, lanes)


def _read(b: ir.IRBuilder, address: Any, kind: int, lanes: int) -> Any:
    """`lanes` numbers at an address, as float32."""
    if kind == FLOAT32:
        return b.load(b.inttoptr(address, _vector(_FLOAT, lanes).as_pointer()), align=4)
    if kind == FLOAT16:
        halves = b.load(b.inttoptr(address, _vector(_HALF, lanes).as_pointer()), align=2)
        return b.fpext(halves, _vector(_FLOAT, lanes))
    halves = b.load(b.inttoptr(address, _vector(_I16, lanes).as_pointer()), align=2)
    words = _vector(_I32, lanes)
    return b.bitcast(b.shl(b.zext(halves, words), _constant(16, words)), _vector(_FLOAT, lanes))


def _write(b: ir.IRBuilder, address: Any, value: Any, kind: int, lanes: int) -> None:
    """Round `lanes` float32 to the nearest of a type, ties to even, and store them."""
    if kind == FLOAT32:
        b.store(value, b.inttoptr(address, _vector(_FLOAT, lanes).as_pointer()), align=4)
    elif kind == FLOAT16:
        halves = b.fptrunc(value, _vector(_HALF, lanes))
        b.store(halves, b.inttoptr(address, _vector(_HALF, lanes).as_pointer()), align=2)
    else:
        halves = b.trunc(_round_bfloat16(b, value, lanes), _vector(_I16, lanes))
        b.store(halves, b.inttoptr(address, _vector(_I16, lanes).as_pointer()), align=2)


def _round_bfloat16(b: ir.IRBuilder, value: Any, lanes: int) -> Any:
    """The bits of the nearest bfloat16, in the lower halves of words; what is no number stays none."""
    words = _vector(_I32, lanes)
    bits = b.bitcast(value, words)
    upper = b.lshr(bits, _constant(16, words))
    odd = b.and_(upper, _constant(1, words))
    nearest = b.lshr(b.add(bits, b.add(odd, _constant(0x7FFF, words))), _constant(16, words))
    return b.select(b.fcmp_unordered("uno", value, value), _constant(0x7FC0, words), nearest)


def _prefetch(b: ir.IRBuilder, address: Any) -> None:
    """Ask for the line at an address, which need not be there."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
    function = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
    b.call(function, [b.inttoptr(address, byte), _constant(0, _I32), _constant(2, _I32), _constant(1, _I32)])


def _sum_lanes(b: ir.IRBuilder, vector: Any) -> Any:
    """The sum of a vector's lanes: halves are added until one is left."""
    lanes = [b.extract_element(vector, ir.Constant(_I32, i)) for i in range(LANES)]
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [b.fadd(lanes[i], lanes[i + half]) for i in range(half)]
    return lanes[0]


def _emit_dot(b: ir.IRBuilder, rows: int, outputs: int, kind: int, arguments: Any) -> None:
    """The `rows` x `outputs` dot products of float32 rows with weights of a type, see `dot`."""
    w, ws, x, xs, o, os, k, ahead = arguments

    def prefetch(i: Any) -> None:
        """Ask for lines of the weights `ahead`: each of a row's lines once, while its numbers are multiplied."""
        steps = 64 // (LANES * SIZES[kind])  # of a line
        turn = b.and_(b.lshr(i, _constant(3)), _constant(min(steps, outputs) - 1))
        line = b.add(b.add(w, ahead), b.mul(i, _constant(SIZES[kind])))
        for j in range(0, outputs, steps):
            at_row = b.add(line, b.mul(ws, b.add(turn, _constant(j))))
            _prefetch(b, at_row)

    def at(base: Any, stride: Any, n: int, i: Any, size: int) -> Any:
        return b.add(b.add(base, b.mul(stride, _constant(n))), b.mul(i, _constant(size)))

    def loop(first: Any, last: Any, lanes: int, begin: list[list[Any]]) -> list[list[Any]]:
        """`begin` and the products of the numbers from first on, so many at a time."""
        before, numbers = b.block, _vector(_FLOAT, lanes)
        test, body, done = (b.function.append_basic_block(name) for name in ("test", "body", "done"))
        b.branch(test)
        b.position_at_end(test)
        i = b.phi(_I64)
        i.add_incoming(first, before)
        sums = [[b.phi(numbers) for _ in range(outputs)] for _ in range(rows)]
        for row, given in zip(sums, begin, strict=True):
            for s, value in zip(row, given, strict=True):
                s.add_incoming(value, before)
        b.cbranch(b.icmp_signed("<", i, last), body, done)
        b.position_at_end(body)
        weights = [_read(b, at(w, ws, j, i, SIZES[kind]), kind, lanes) for j in range(outputs)]
        if lanes > 1 and outputs > 1:
            prefetch(i)
        for r, row in enumerate(sums):
            value = _read(b, at(x, xs, r, i, 4), FLOAT32, lanes)
            for weight, s in zip(weights, row, strict=True):
                s.add_incoming(_call(b, "fma", numbers, weight, value, s), body)
        i.add_incoming(b.add(i, _constant(lanes)), body)
        b.branch(test)
        b.position_at_end(done)
        return sums

    whole = b.and_(k, _constant(~(LANES - 1)))
    zero = ir.Constant(ir.VectorType(_FLOAT, LANES), [0.0] * LANES)
    sums = loop(_constant(0), whole, LANES, [[zero] * outputs for _ in range(rows)])
    sums = loop(whole, k, 1, [[_sum_lanes(b, s) for s in row] for row in sums])
    for r, row in enumerate(sums):
        for j, s in enumerate(row):
            _write(b, at(o, os, r, _constant(j), 4), s, FLOAT32, 1)


# rows of a tile -> its outputs: as many sums as registers hold
TILES = {1: 8, 2: 4, 3: 4, 4: 2, 5: 2, 6: 2}
_ONE = 0  # in the place of `rows`: one row, one output


@intrinsic
def dot(
    _: Any, kind: Any, rows: Any, w: Any, ws: Any, x: Any, xs: Any, o: Any, os: Any, k: Any, ahead: Any
) -> Any:
    """f(type, rows, weights, stride, x, stride, out, stride, k, ahead): dot products of 1 to 6 float32 rows with TILES[rows]
    rows of weights; of one row with one row of weights where `rows` is 0.

    Addresses, and strides in bytes; out is float32 [rows, outputs], its stride that of a row. The weights that lie `ahead`
    bytes further are asked for meanwhile. Of k numbers the first k // 8 * 8 are summed by one vector, whose lanes are then
    added; what is left is added one by one. So a sum has one order of its terms, whatever the shape of the tile is.
    """

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        kind, rows, *others = arguments
        done = b.function.append_basic_block("done")
        choice = b.switch(b.add(b.mul(kind, _constant(8)), rows), done)
        for number in (FLOAT32, BFLOAT16, FLOAT16):
            for count, outputs in ((_ONE, 1), *TILES.items()):
                case = b.function.append_basic_block("tile")
                choice.add_case(_constant(8 * number + count), case)
                b.position_at_end(case)
                _emit_dot(b, count or 1, outputs, number, others)
                b.branch(done)
        b.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*([types.intp] * 10)), code


def _emit_weighted_sum(
    b: ir.IRBuilder, rows: int, columns: int, lanes: int, kind: int, arguments: Any
) -> None:
    """`columns` vectors of `lanes` numbers of the weighted sums of some rows, see `weighted_sum`."""
    p, ps, v, vs, first, last, o, os = arguments
    numbers = _vector(_FLOAT, lanes)

    def at(base: Any, stride: Any, n: int) -> Any:
        return b.add(base, b.mul(stride, _constant(n)))

    before = b.block
    test, body, done = (b.function.append_basic_block(name) for name in ("test", "body", "done"))
    b.branch(test)
    b.position_at_end(test)
    i = b.phi(_I64)
    i.add_incoming(first, before)
    zero = ir.Constant(numbers, [0.0] * lanes) if lanes > 1 else ir.Constant(_FLOAT, 0.0)
    sums = [[b.phi(numbers) for _ in range(columns)] for _ in range(rows)]
    for row in sums:
        for s in row:
            s.add_incoming(zero, before)
    b.cbranch(b.icmp_signed("<", i, last), body, done)
    b.position_at_end(body)
    entry = b.add(v, b.mul(i, vs))
    values = [_read(b, b.add(entry, _constant(c * lanes * SIZES[kind])), kind, lanes) for c in range(columns)]
    for r, row in enumerate(sums):
        weight = _read(b, b.add(at(p, ps, r), b.mul(i, _constant(4))), FLOAT32, 1)
        if lanes > 1:
            one = b.insert_element(ir.Constant(numbers, ir.Undefined), weight, _constant(0, _I32))
            weight = b.shuffle_vector(one, one, ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes))
        for value, s in zip(values, row, strict=True):
            s.add_incoming(_call(b, "fma", numbers, weight, value, s), body)
    i.add_incoming(b.add(i, _constant(1)), body)
    b.branch(test)
    b.position_at_end(done)
    for r, row in enumerate(sums):
        for c, s in enumerate(row):
            _write(b, b.add(at(o, os, r), _constant(c * lanes * 4)), s, FLOAT32, lanes)


COLUMNS = {
    1: 8,
    2: 4,
    3: 4,
    4: 2,
    5: 2,
    6: 2,
}  # rows of weights -> vectors of values that are summed at a time


@intrinsic
def weighted_sum(
    _: Any, kind: Any, shape: Any, p: Any, ps: Any, v: Any, vs: Any, first: Any, last: Any, o: Any, os: Any
) -> Any:
    """f(type, shape, weights, stride, values, stride, first, last, out, stride): of 1 to 6 rows of float32 weights, the sums of
    the values of the entries from `first` up to `last`, each times its weight, one entry after the other.

    Addresses, and strides in bytes. shape: 4 * rows for COLUMNS[rows] vectors of values, one more for a single vector, two more
    for a single number. An entry of weight 0 changes nothing.
    """

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        kind, shape, *others = arguments
        done = b.function.append_basic_block("done")
        choice = b.switch(b.add(b.mul(kind, _constant(32)), shape), done)
        for number in (FLOAT32, BFLOAT16, FLOAT16):
            for rows, columns in COLUMNS.items():
                for which, (many, lanes) in enumerate(((columns, LANES), (1, LANES), (1, 1))):
                    case = b.function.append_basic_block("sum")
                    choice.add_case(_constant(32 * number + 4 * rows + which), case)
                    b.position_at_end(case)
                    _emit_weighted_sum(b, rows, many, lanes, number, others)
                    b.branch(done)
        b.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*([types.intp] * 10)), code


@intrinsic
def load(_: Any, address: Any) -> Any:
    """The int64 at an address."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return b.load(b.inttoptr(arguments[0], _I64.as_pointer()))

    return types.intp(types.intp), code


@intrinsic
def store(_: Any, address: Any, value: Any) -> Any:
    """Write an int64 to an address."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        b.store(arguments[1], b.inttoptr(arguments[0], _I64.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), code


@intrinsic
def read(_: Any, kind: Any, address: Any) -> Any:
    """The number of a type at an address, as float32."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        kind, address = arguments
        done = b.function.append_basic_block("read")
        values = []
        choice = b.switch(kind, done)
        values.append((ir.Constant(_FLOAT, 0.0), b.block))
        for number in (FLOAT32, BFLOAT16, FLOAT16):
            case = b.function.append_basic_block("number")
            choice.add_case(_constant(number), case)
            b.position_at_end(case)
            values.append((_read(b, address, number, 1), b.block))
            b.branch(done)
        b.position_at_end(done)
        value = b.phi(_FLOAT)
        for one, block in values:
            value.add_incoming(one, block)
        return value

    return types.float32(types.intp, types.intp), code


@intrinsic
def write(_: Any, kind: Any, address: Any, value: Any) -> Any:
    """Round a float32 to the nearest number of a type, ties to even, and store it."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        kind, address, value = arguments
        done = b.function.append_basic_block("written")
        choice = b.switch(kind, done)
        for number in (FLOAT32, BFLOAT16, FLOAT16):
            case = b.function.append_basic_block("number")
            choice.add_case(_constant(number), case)
            b.position_at_end(case)
            _write(b, address, value, number, 1)
            b.branch(done)
        b.position_at_end(done)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.float32), code


@intrinsic
def fma(_: Any, x: Any, y: Any, z: Any) -> Any:
    """x * y + z of float32, round_number once."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return _call(b, "fma", _FLOAT, *arguments)

    return types.float32(types.float32, types.float32, types.float32), code


@intrinsic
def nearest(_: Any, x: Any) -> Any:
    """The nearest whole number to a float32, ties to even, as a float32."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return _call(b, "rint", _FLOAT, *arguments)

    return types.float32(types.float32), code


@intrinsic
def power_of_two(_: Any, n: Any) -> Any:
    """2^n for a whole float32 n from -126 to 127."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        whole = b.fptosi(arguments[0], _I32)
        return b.bitcast(b.shl(b.add(whole, _constant(127, _I32)), _constant(23, _I32)), _FLOAT)

    return types.float32(types.float32), code


@intrinsic
def round_number(_: Any, kind: Any, value: Any) -> Any:
    """A float32 rounded to the nearest number of a type."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        kind, value = arguments
        upper = b.shl(_round_bfloat16(b, value, 1), _constant(16, _I32))
        half = b.fpext(b.fptrunc(value, _HALF), _FLOAT)
        other = b.select(b.icmp_signed("==", kind, _constant(BFLOAT16)), b.bitcast(upper, _FLOAT), half)
        return b.select(b.icmp_signed("==", kind, _constant(FLOAT32)), value, other)

    return types.float32(types.intp, types.float32), code


@intrinsic
def as_float(_: Any, bits: Any) -> Any:
    """The float32 whose bits are the lower half of an int64."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return b.bitcast(b.trunc(arguments[0], _I32), _FLOAT)

    return types.float32(types.intp), code


@intrinsic
def byte(_: Any, address: Any) -> Any:
    """The byte at an address."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return b.zext(b.load(b.inttoptr(arguments[0], ir.IntType(8).as_pointer())), _I64)

    return types.intp(types.intp), code


@intrinsic
def add_atomically(_: Any, address: Any, value: Any) -> Any:
    """Add to the int64 at an address, which others may do at the same time; what it was before."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return b.atomic_rmw("add", b.inttoptr(arguments[0], _I64.as_pointer()), arguments[1], "seq_cst")

    return types.intp(types.intp, types.intp), code


@intrinsic
def read_atomically(_: Any, address: Any) -> Any:
    """The int64 at an address, to which others may write at the same time."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return b.load_atomic(b.inttoptr(arguments[0], _I64.as_pointer()), "seq_cst", 8)

    return types.intp(types.intp), code


@intrinsic
def call_kernel(_: Any, address: Any, arguments: Any, task: Any, scratch: Any) -> Any:
    """Call the compiled function at an address with three int64."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, given: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_I64] * 3)
        b.call(b.inttoptr(given[0], kind.as_pointer()), given[1:])
        return context.get_dummy_value()

    return types.void(*([types.intp] * 4)), code


@intrinsic
def call_yield(_: Any, address: Any) -> Any:
    """Call the function without arguments at an address: the system's, that lets other threads go first."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, given: Any) -> Any:
        b.call(b.inttoptr(given[0], ir.FunctionType(_I32, []).as_pointer()), [])
        return context.get_dummy_value()

    return types.void(types.intp), code
