"""Rounding numbers to few levels: a scale a row, or a scale and an offset a group."""

from __future__ import annotations

import torch
from torch import Tensor

from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.weights import Place


def by_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """q int8 and scale of rows [out, in]: scale = max|w| / 127 in the weight's type, q = round(w / scale)."""
    wide = weight.double()
    scale = _positive(wide.abs().amax(1) / 127).to(weight.dtype)
    q = (wide / scale.double()[:, None]).round_().clamp_(-127, 127)
    return q.to(torch.int8), scale


def by_groups(weight: Tensor, group: int, k: int, middle: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """q uint8 in 0..2^k - 1 [out, in], scale and zero [out, in / group], with w = (q - middle) scale + zero: from the smallest
    to the largest number of a group in equal steps. q is rounded to scale and zero as they are stored."""
    wide = weight.double().unflatten(1, (-1, group))
    low, high = wide.aminmax(dim=2)
    scale = _positive((high - low) / (2**k - 1))
    zero = (low + middle * scale).to(weight.dtype)
    scale = scale.to(weight.dtype)
    q = ((wide - zero.double()[..., None]) / scale.double()[..., None]).round_().add_(middle).clamp_(0, 2**k - 1)
    return q.flatten(1).to(torch.uint8), scale, zero


def checked(group: int, weight: Tensor, place: Place, owner: str) -> int:
    """`group`, where it divides the inputs of a matrix. Raises ParamError."""
    if weight.shape[1] % group:
        raise ParamError(
            f"{owner}.group = {group}: must divide the {weight.shape[1]} inputs of {place}; choose a smaller group."
        )
    return group


def _positive(scale: Tensor) -> Tensor:
    """Where all numbers are equal any scale will do."""
    return torch.where(scale > 0, scale, 1.0)
