"""Instructions: what the kernels say to LLVM directly, so that a sum has one order on every processor.

Numbers are read from and written to memory by address, float32 in registers whatever their type in memory. A vector holds 8
lanes; a processor with shorter registers takes several, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from llvmlite import ir
from numba.core import cgutils, registry, types
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


def call_function(b: ir.IRBuilder, name: str, *arguments: Any) -> Any:
    """Call an intrinsic function of LLVM on float32 or vectors of them."""
    kind = arguments[0].type
    mangled = f"llvm.{name}." + (f"v{kind.count}f32" if isinstance(kind, ir.VectorType) else "f32")
    function = cgutils.get_or_insert_function(
        b.module, ir.FunctionType(kind, [kind] * len(arguments)), mangled
    )
    return b.call(function, arguments)


def _vector(element: ir.Type, lanes: int) -> ir.Type:
    return element if lanes == 1 else ir.VectorType(element, lanes)


def read_numbers(b: ir.IRBuilder, address: Any, kind: int, lanes: int) -> Any:
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


def _round(b: ir.IRBuilder, value: Any, kind: int, lanes: int) -> Any:
    """`lanes` float32 rounded to the nearest numbers of a type."""
    if kind == FLOAT32:
        return value
    if kind == FLOAT16:
        return b.fpext(b.fptrunc(value, _vector(_HALF, lanes)), _vector(_FLOAT, lanes))
    words = _vector(_I32, lanes)
    upper = b.shl(_round_bfloat16(b, value, lanes), _constant(16, words))
    return b.bitcast(upper, _vector(_FLOAT, lanes))


def splat(b: ir.IRBuilder, like: Any, value: Any) -> Any:
    """A number, of Python or of the program, as a value like another: alone, or in all lanes of a vector."""
    kind = like.type
    if not isinstance(value, ir.Value):
        return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)
    if not isinstance(kind, ir.VectorType):
        return value
    one = b.insert_element(ir.Constant(kind, ir.Undefined), value, _constant(0, _I32))
    return b.shuffle_vector(one, one, ir.Constant(ir.VectorType(_I32, kind.count), [0] * kind.count))


def map_row(
    b: ir.IRBuilder, x: Any, out: Any, count: Any, kind: int, out_kind: int, function: Callable[[Any], Any]
) -> None:
    """`count` numbers of a type at x, each through a function, at out in another type: 8 at a time, the last ones alone."""
    whole = b.and_(count, _constant(~(LANES - 1)))
    for first, last, lanes in ((_constant(0), whole, LANES), (whole, count, 1)):
        before = b.block
        test, body, done = (b.function.append_basic_block(name) for name in ("test", "body", "done"))
        b.branch(test)
        b.position_at_end(test)
        i = b.phi(_I64)
        i.add_incoming(first, before)
        b.cbranch(b.icmp_signed("<", i, last), body, done)
        b.position_at_end(body)
        value = function(read_numbers(b, b.add(x, b.mul(i, _constant(SIZES[kind]))), kind, lanes))
        _write(b, b.add(out, b.mul(i, _constant(SIZES[out_kind]))), value, out_kind, lanes)
        i.add_incoming(b.add(i, _constant(lanes)), b.block)
        b.branch(test)
        b.position_at_end(done)


def _prefetch(b: ir.IRBuilder, address: Any) -> None:
    """Ask for the line at an address, which need not be there."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
    function = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
    b.call(function, [b.inttoptr(address, byte), _constant(0, _I32), _constant(2, _I32), _constant(1, _I32)])


def call_apart(
    b: ir.IRBuilder, name: str, arguments: Sequence[Any], emit: Callable[[ir.IRBuilder, Sequence[Any]], None]
) -> None:
    """Call a function of int64 arguments that `emit` writes. It is not inlined, so that its numbers have all registers."""
    function = b.module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(ir.VoidType(), [_I64] * len(arguments))
        function = ir.Function(b.module, kind, name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        inside = ir.IRBuilder(function.append_basic_block("entry"))
        emit(inside, function.args)
        inside.ret_void()
    b.call(function, arguments)


def _sum_lanes(b: ir.IRBuilder, vector: Any) -> Any:
    """The sum of a vector's lanes: halves are added until one is left."""
    lanes = [b.extract_element(vector, ir.Constant(_I32, i)) for i in range(LANES)]
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [b.fadd(lanes[i], lanes[i + half]) for i in range(half)]
    return lanes[0]


def _sum_lanes_of_four(b: ir.IRBuilder, vectors: Sequence[Any]) -> Any:
    """`_sum_lanes` of four vectors at once, with the same bits, as one vector of four numbers."""

    def add_parts(x: Any, y: Any, one: Sequence[int], other: Sequence[int]) -> Any:
        kind = ir.VectorType(_I32, len(one))
        parts = [b.shuffle_vector(x, y, ir.Constant(kind, list(places))) for places in (one, other)]
        return b.fadd(*parts)

    halves = [add_parts(v, v, range(4), range(4, 8)) for v in vectors]
    one, other = (add_parts(x, y, (0, 1, 4, 5), (2, 3, 6, 7)) for x, y in (halves[:2], halves[2:]))
    return add_parts(one, other, (0, 2, 4, 6), (1, 3, 5, 7))


def _take_lanes(b: ir.IRBuilder, vector: Any, first: int, count: int) -> Any:
    """`count` lanes of a vector of four, from `first` on, as a vector."""
    places = ir.Constant(ir.VectorType(_I32, count), list(range(first, first + count)))
    return b.shuffle_vector(vector, vector, places)


def _emit_dot(b: ir.IRBuilder, arguments: Sequence[Any], rows: int, outputs: int, kind: int) -> None:
    """The `rows` x `outputs` dot products of float32 rows with weights of a type, see `dot_lanes`."""
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

    before, numbers = b.block, _vector(_FLOAT, LANES)
    test, body, done = (b.function.append_basic_block(name) for name in ("test", "body", "done"))
    b.branch(test)
    b.position_at_end(test)
    i = b.phi(_I64)
    i.add_incoming(_constant(0), before)
    sums = [[b.phi(numbers) for _ in range(outputs)] for _ in range(rows)]
    for s in (s for row in sums for s in row):
        s.add_incoming(ir.Constant(numbers, [0.0] * LANES), before)
    b.cbranch(b.icmp_signed("<", i, b.and_(k, _constant(~(LANES - 1)))), body, done)
    b.position_at_end(body)
    weights = [read_numbers(b, at(w, ws, j, i, SIZES[kind]), kind, LANES) for j in range(outputs)]
    if outputs > 1:
        prefetch(i)
    for r, row in enumerate(sums):
        value = read_numbers(b, at(x, xs, r, i, 4), FLOAT32, LANES)
        for weight, s in zip(weights, row, strict=True):
            s.add_incoming(call_function(b, "fma", weight, value, s), body)
    i.add_incoming(b.add(i, _constant(LANES)), body)
    b.branch(test)
    b.position_at_end(done)
    if outputs > 1:
        write_sums(b, sums, o, os)
    else:
        _write(b, o, _sum_lanes(b, sums[0][0]), FLOAT32, 1)


def write_sums(b: ir.IRBuilder, sums: list[list[Any]], o: Any, os: Any) -> None:
    """Store the sums of the lanes of vectors, an even number a row, at rows o of stride os."""
    width = min(len(sums[0]), 4)
    places = [(r, j) for r in range(len(sums)) for j in range(0, len(sums[0]), width)]
    for i in range(0, len(places), 4 // width):
        taken = places[i : i + 4 // width]
        vectors = [v for r, j in taken for v in sums[r][j : j + width]]
        four = _sum_lanes_of_four(b, (vectors * 2)[:4])
        for n, (r, j) in enumerate(taken):
            at = b.add(b.add(o, b.mul(os, _constant(r))), _constant(4 * j))
            _write(b, at, _take_lanes(b, four, n * width, width), FLOAT32, width)


def _registers() -> int:
    """How many registers of 8 numbers the processor has: 32 with AVX-512, else 16 (or 32 of 4, which hold as much)."""
    features: str = registry.cpu_target.target_context.codegen()._tm_features
    return 32 if "+avx512vl" in features else 16


REGISTERS = _registers()
# rows of a tile -> its outputs: as many sums as registers hold
TILES = {1: 8, 2: 8, 3: 8, 4: 4, 6: 4} if REGISTERS == 32 else {1: 8, 2: 4, 3: 4, 4: 2, 6: 2}
_ONE = 0  # in the place of `rows`: one row, one output


@intrinsic
def dot_lanes(
    _: Any, kind: Any, rows: Any, w: Any, ws: Any, x: Any, xs: Any, o: Any, os: Any, k: Any, ahead: Any
) -> Any:
    """f(type, rows, weights, stride, x, stride, out, stride, k, ahead): dot products of 1, 2, 3, 4 or 6 float32 rows with
    TILES[rows] rows of weights; of one row with one row of weights where `rows` is 0.

    Addresses, and strides in bytes; out is float32 [rows, outputs], its stride that of a row. The weights that lie `ahead`
    bytes further are asked for meanwhile. Of k numbers the first k // 8 * 8 are summed by one vector, whose lanes are then
    added: a sum has one order of its terms, whatever the shape of the tile is. `dot` in `rows` adds what is left.
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
                emit = partial(_emit_dot, rows=count or 1, outputs=outputs, kind=number)
                call_apart(b, f"dot_{number}_{count}", others, emit)
                b.branch(done)
        b.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*([types.intp] * 10)), code


def _emit_weighted_sum(
    b: ir.IRBuilder, arguments: Sequence[Any], rows: int, columns: int, lanes: int, kind: int
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
    values = [
        read_numbers(b, b.add(entry, _constant(c * lanes * SIZES[kind])), kind, lanes) for c in range(columns)
    ]
    for r, row in enumerate(sums):
        weight = read_numbers(b, b.add(at(p, ps, r), b.mul(i, _constant(4))), FLOAT32, 1)
        weight = splat(b, sums[0][0], weight)
        for value, s in zip(values, row, strict=True):
            s.add_incoming(call_function(b, "fma", weight, value, s), body)
    i.add_incoming(b.add(i, _constant(1)), body)
    b.branch(test)
    b.position_at_end(done)
    for r, row in enumerate(sums):
        for c, s in enumerate(row):
            _write(b, b.add(at(o, os, r), _constant(c * lanes * 4)), s, FLOAT32, lanes)


COLUMNS = TILES  # rows of weights -> vectors of values that are summed at a time


@intrinsic
def weighted_sum(
    _: Any, kind: Any, shape: Any, p: Any, ps: Any, v: Any, vs: Any, first: Any, last: Any, o: Any, os: Any
) -> Any:
    """f(type, shape, weights, stride, values, stride, first, last, out, stride): the weighted sums of values.

    There are 1, 2, 3, 4 or 6 rows of float32 weights. The sum of a row takes the values of the entries from `first` up to
    `last`, each times its weight, one entry after the other.

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
                    emit = partial(_emit_weighted_sum, rows=rows, columns=many, lanes=lanes, kind=number)
                    call_apart(b, f"weighted_sum_{number}_{rows}_{which}", others, emit)
                    b.branch(done)
        b.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*([types.intp] * 10)), code


@intrinsic
def write_outputs(_: Any, kind: Any, sums: Any, bias: Any, more: Any, out: Any) -> Any:
    """f(type, sums, bias, more, out): 8 float32 sums plus 8 of the bias, rounded, plus 8 of `more`, rounded again and stored.

    Addresses; bias and more, of the type of out as well, may be 0.
    """

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        kind, sums, bias, more, out = arguments
        done = b.function.append_basic_block("done")
        choice = b.switch(kind, done)
        for number in (FLOAT32, BFLOAT16, FLOAT16):
            case = b.function.append_basic_block("outputs")
            choice.add_case(_constant(number), case)
            b.position_at_end(case)
            value = read_numbers(b, sums, FLOAT32, LANES)
            value = _add_if_there(b, value, bias, number, None)
            value = _add_if_there(b, value, more, number, number)
            _write(b, out, value, number, LANES)
            b.branch(done)
        b.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*([types.intp] * 5)), code


def _add_if_there(b: ir.IRBuilder, value: Any, address: Any, kind: int, rounded_to: int | None) -> Any:
    """value, or value (first rounded to a type) plus the 8 numbers at an address that is not 0."""
    before = b.block
    there, after = (b.function.append_basic_block(name) for name in ("there", "after"))
    b.cbranch(b.icmp_signed("!=", address, _constant(0)), there, after)
    b.position_at_end(there)
    rounded = value if rounded_to is None else _round(b, value, rounded_to, LANES)
    total = b.fadd(rounded, read_numbers(b, address, kind, LANES))
    b.branch(after)
    b.position_at_end(after)
    result = b.phi(value.type)
    result.add_incoming(value, before)
    result.add_incoming(total, there)
    return result


@intrinsic
def convert_row(_: Any, kind: Any, out_kind: Any, x: Any, out: Any, count: Any) -> Any:
    """f(type, type of out, x, out, count): so many numbers in another type, rounded to the nearest, ties to even. Addresses."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        kind, out_kind, x, out, count = arguments
        done = b.function.append_basic_block("done")
        choice = b.switch(b.add(b.mul(kind, _constant(4)), out_kind), done)
        numbers = (FLOAT32, BFLOAT16, FLOAT16)
        for number, out_number in ((n, m) for n in numbers for m in numbers if FLOAT32 in (n, m)):
            case = b.function.append_basic_block("convert")
            choice.add_case(_constant(4 * number + out_number), case)
            b.position_at_end(case)
            map_row(b, x, out, count, number, out_number, lambda value: value)
            b.branch(done)
        b.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*([types.intp] * 5)), code


@intrinsic
def round_row(_: Any, kind: Any, x: Any, count: Any) -> Any:
    """f(type, x, count): so many float32 at an address rounded to the nearest of a type, in place."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        kind, x, count = arguments
        done = b.function.append_basic_block("done")
        choice = b.switch(kind, done)
        for number in (BFLOAT16, FLOAT16):
            case = b.function.append_basic_block("round")
            choice.add_case(_constant(number), case)
            b.position_at_end(case)

            def nearest(value: Any, number: int = number) -> Any:
                return _round(b, value, number, value.type.count if value.type != _FLOAT else 1)

            map_row(b, x, x, count, FLOAT32, FLOAT32, nearest)
            b.branch(done)
        b.position_at_end(done)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), code


@intrinsic
def largest(_: Any, x: Any, count: Any) -> Any:
    """f(address, count): the largest of so many float32, -inf of none; what is no number is passed over."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        x, count = arguments

        def loop(first: Any, last: Any, lanes: int, begin: Any) -> Any:
            before = b.block
            test, body, done = (b.function.append_basic_block(name) for name in ("test", "body", "done"))
            b.branch(test)
            b.position_at_end(test)
            i, best = b.phi(_I64), b.phi(_vector(_FLOAT, lanes))
            i.add_incoming(first, before)
            best.add_incoming(begin, before)
            b.cbranch(b.icmp_signed("<", i, last), body, done)
            b.position_at_end(body)
            value = read_numbers(b, b.add(x, b.mul(i, _constant(4))), FLOAT32, lanes)
            better = b.fcmp_ordered(">", value, best)
            best.add_incoming(b.select(better, value, best), body)
            i.add_incoming(b.add(i, _constant(lanes)), body)
            b.branch(test)
            b.position_at_end(done)
            return best

        nothing = float("-inf")
        whole = b.and_(count, _constant(~(LANES - 1)))
        begin = ir.Constant(ir.VectorType(_FLOAT, LANES), [nothing] * LANES)
        lanes = loop(_constant(0), whole, LANES, begin)
        best = ir.Constant(_FLOAT, nothing)
        for n in range(LANES):
            value = b.extract_element(lanes, _constant(n, _I32))
            best = b.select(b.fcmp_ordered(">", value, best), value, best)
        return loop(whole, count, 1, best)

    return types.float32(types.intp, types.intp), code


@intrinsic
def row_sums(_: Any, x: Any, stride: Any, count: Any, out: Any) -> Any:
    """f(address, stride, count, out): the sums of 6 rows of float32, each number after the other; out is float32 [6]."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        x, stride, count, out = arguments
        before = b.block
        test, body, done = (b.function.append_basic_block(name) for name in ("test", "body", "done"))
        b.branch(test)
        b.position_at_end(test)
        i = b.phi(_I64)
        i.add_incoming(_constant(0), before)
        sums = [b.phi(_FLOAT) for _ in range(6)]
        for s in sums:
            s.add_incoming(ir.Constant(_FLOAT, 0.0), before)
        b.cbranch(b.icmp_signed("<", i, count), body, done)
        b.position_at_end(body)
        for r, s in enumerate(sums):
            at = b.add(b.add(x, b.mul(stride, _constant(r))), b.mul(i, _constant(4)))
            s.add_incoming(b.fadd(s, read_numbers(b, at, FLOAT32, 1)), body)
        i.add_incoming(b.add(i, _constant(1)), body)
        b.branch(test)
        b.position_at_end(done)
        for r, s in enumerate(sums):
            _write(b, b.add(out, _constant(4 * r)), s, FLOAT32, 1)
        return context.get_dummy_value()

    return types.void(*([types.intp] * 4)), code


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
            values.append((read_numbers(b, address, number, 1), b.block))
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
        return call_function(b, "fma", *arguments)

    return types.float32(types.float32, types.float32, types.float32), code


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
