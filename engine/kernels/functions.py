"""Functions of rows of float32, with the same bits wherever they are computed: alone, in a vector, on any processor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .instructions import FLOAT32, call_function, map_row, splat

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_LOWEST, _HIGHEST = -87.33, 88.37
_COEFFICIENTS = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
_CUBE, _ROOT = 0.044715, 0.7978845608028654  # sqrt(2 / pi)


def _exp(b: ir.IRBuilder, x: Any) -> Any:
    """e^x to a unit in the last place; 0 below -87.33, where what is left is no normal number. (Cephes, expf.)"""
    lowest, highest = splat(b, x, _LOWEST), splat(b, x, _HIGHEST)
    y = b.select(b.fcmp_ordered(">", x, lowest), x, lowest)
    y = b.select(b.fcmp_ordered("<", y, highest), y, highest)
    n = call_function(b, "rint", b.fmul(y, splat(b, x, _LOG2_E)))
    r = call_function(b, "fma", n, splat(b, x, -_LN2_HIGH), y)
    r = call_function(b, "fma", n, splat(b, x, -_LN2_LOW), r)
    p = splat(b, x, _COEFFICIENTS[0])
    for c in _COEFFICIENTS[1:]:
        p = call_function(b, "fma", p, r, splat(b, x, c))
    p = b.fadd(call_function(b, "fma", p, b.fmul(r, r), r), splat(b, x, 1.0))
    value = b.fmul(p, _power_of_two(b, n))
    value = b.select(b.fcmp_ordered("<", x, lowest), splat(b, x, 0.0), value)
    return b.select(b.fcmp_unordered("uno", x, x), x, value)


def _power_of_two(b: ir.IRBuilder, n: Any) -> Any:
    """2^n for whole numbers n from -126 to 127."""
    vector = isinstance(n.type, ir.VectorType)
    words = ir.VectorType(ir.IntType(32), n.type.count) if vector else ir.IntType(32)

    def constant(value: int) -> ir.Constant:
        return ir.Constant(words, [value] * n.type.count if vector else value)

    return b.bitcast(b.shl(b.add(b.fptosi(n, words), constant(127)), constant(23)), n.type)


def _tanh(b: ir.IRBuilder, x: Any) -> Any:
    """The hyperbolic tangent, absolute error below 2e-7."""
    e = _exp(b, b.fmul(call_function(b, "fabs", x), splat(b, x, -2.0)))
    t = b.fdiv(b.fsub(splat(b, x, 1.0), e), b.fadd(splat(b, x, 1.0), e))
    return b.select(b.fcmp_ordered(">=", x, splat(b, x, 0.0)), t, b.fneg(t))


def _silu(b: ir.IRBuilder, x: Any) -> Any:
    """x / (1 + e^-x)."""
    return b.fdiv(x, b.fadd(splat(b, x, 1.0), _exp(b, b.fneg(x))))


def _gelu(b: ir.IRBuilder, x: Any) -> Any:
    """The Gaussian error linear unit by tanh (Hendrycks and Gimpel 2016, arXiv:1606.08415)."""
    cube = b.fmul(b.fmul(b.fmul(splat(b, x, _CUBE), x), x), x)
    t = _tanh(b, b.fmul(splat(b, x, _ROOT), b.fadd(x, cube)))
    return b.fmul(b.fmul(splat(b, x, 0.5), x), b.fadd(splat(b, x, 1.0), t))


def _row_function(function: Callable[[ir.IRBuilder, Any], Any]) -> Any:
    """f(address, count): a function of so many float32, in place."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        x, count = arguments
        map_row(b, x, x, count, FLOAT32, FLOAT32, lambda value: function(b, value))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), code


@intrinsic
def silu_row(_: Any, x: Any, count: Any) -> Any:
    """f(address, count): x / (1 + e^-x) of so many float32, in place."""
    return _row_function(_silu)


@intrinsic
def gelu_row(_: Any, x: Any, count: Any) -> Any:
    """f(address, count): GELU by tanh of so many float32, in place."""
    return _row_function(_gelu)


@intrinsic
def exp_row(_: Any, x: Any, count: Any, ground: Any) -> Any:
    """f(address, count, ground): e^(x - ground) of so many float32, in place."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        x, count, ground = arguments
        map_row(
            b, x, x, count, FLOAT32, FLOAT32, lambda value: _exp(b, b.fsub(value, splat(b, value, ground)))
        )
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.float32), code


@intrinsic
def cap_row(_: Any, x: Any, out: Any, count: Any, limit: Any) -> Any:
    """f(address, address, count, limit): limit * tanh(x / limit) of so many float32."""

    def code(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        x, out, count, limit = arguments

        def cap_value(value: Any) -> Any:
            size = splat(b, value, limit)
            return b.fmul(_tanh(b, b.fdiv(value, size)), size)

        map_row(b, x, out, count, FLOAT32, FLOAT32, cap_value)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp, types.float32), code
