"""Functions of numbers, in float32 and with the same bits wherever they are computed: alone, in a vector, on any processor."""

from __future__ import annotations

import numpy as np
from numba import njit

from .instructions import fma, nearest, power_of_two

_LOG2_E = np.float32(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_LOWEST, _HIGHEST = np.float32(-87.33), np.float32(88.37)
_C = tuple(
    np.float32(c)
    for c in (
        1.9875691500e-4,
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    )
)
_ONE = np.float32(1)
_TWO = np.float32(2)
_ZERO = np.float32(0)
_C0, _C1, _C2, _C3, _C4, _C5 = _C


@njit(inline="always")
def exp(x):
    """e^x to a unit in the last place; 0 below -87.33, where what is left is no normal number. (Cephes, expf.)"""
    y = min(max(x, _LOWEST), _HIGHEST)
    n = nearest(y * _LOG2_E)
    r = fma(n, -_LN2_HIGH, y)
    r = fma(n, -_LN2_LOW, r)
    p = fma(_C0, r, _C1)
    p = fma(p, r, _C2)
    p = fma(p, r, _C3)
    p = fma(p, r, _C4)
    p = fma(p, r, _C5)
    p = fma(p, r * r, r) + _ONE
    return p * power_of_two(n) if x >= _LOWEST else _ZERO


@njit(inline="always")
def tanh(x):
    """The hyperbolic tangent, absolute error below 2e-7."""
    e = exp(-_TWO * abs(x))
    t = (_ONE - e) / (_ONE + e)
    return t if x >= _ZERO else -t
