"""Round numbers to a few levels: a scale per row, or a scale and an offset per group."""

from __future__ import annotations

import torch
from torch import Tensor

from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.bases.weights import MatrixPlace
from decodescope.engine.model.layers.levels import find_levels, fit_scale


def quantise_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise rows [out, in] to q int8 and a scale each: scale = max|w| / 127 in the weight's type, q = round(w / scale).

    |w - q scale| is at most half a scale.
    """
    wide = weight.double()
    largest = wide.abs().amax(1)
    scale = fit_scale(largest, largest, 127, 127, weight.dtype)
    return find_levels(wide, scale.double()[:, None]).clamp_(-127, 127).to(torch.int8), scale


def quantise_groups(weight: Tensor, group: int, k: int, middle: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Quantise to q uint8 in 0..2^k - 1 [out, in], scale and zero [out, in / group], with w = (q - middle) scale + zero.

    The levels are equal steps from the smallest to the largest number of a group. Scale and zero are numbers of the weight's
    type, and q is rounded with these, so the error of w is at most half a scale. A group of equal numbers has scale 0, and its
    zero is that number.
    """
    wide, top = weight.double().unflatten(1, (-1, group)), 2**k - 1
    low, high = wide.aminmax(dim=2)
    zero = (low + middle * ((high - low) / top)).to(weight.dtype)
    offset = zero.double()
    scale = fit_scale(offset - low, high - offset, middle, top - middle, weight.dtype)
    q = find_levels(wide - offset[..., None], scale.double()[..., None]).add_(middle).clamp_(0, top)
    return q.flatten(1).to(torch.uint8), scale, zero


def check_group(group: int, weight: Tensor, place: MatrixPlace, owner: str) -> int:
    """Return `group` if it divides the inputs of a matrix. Raises ParamError."""
    if weight.shape[1] % group:
        raise ParamError(
            f"{owner}.group = {group}: must divide the {weight.shape[1]} inputs of {place}; choose a smaller group."
        )
    return group
