"""Levels: few equally spaced numbers that cover a group, given by a scale in the type that stores it."""

from __future__ import annotations

import torch
from torch import Tensor


def fit_scale(below: Tensor, above: Tensor, down: int, up: int, dtype: torch.dtype) -> Tensor:
    """The distance of two levels, in `dtype`: there are `down` levels below an offset and `up` above it. below, above: how far
    the group reaches on either side of the offset, not negative, at least float32.

    It is (below + above) / (down + up), rounded to `dtype`. Where that scale leaves an end of the group more than half a step
    outside the levels, it is the next number of `dtype` that does not. So no number of the group is further than half a step
    from a level. The scale is 0 where the group reaches nowhere: its one level is the offset."""
    least = torch.maximum(below / (down + 0.5), above / (up + 0.5))
    scale, enough = ((below + above) / (down + up)).to(dtype), least.to(dtype)
    return torch.maximum(scale, torch.where(enough < least, _next_up(enough), enough))


def find_levels(distance: Tensor, scale: Tensor) -> Tensor:
    """The nearest level of numbers at this distance from the offset, counted from it; 0 where the scale is 0."""
    return (distance / torch.where(scale > 0, scale, 1.0)).round_()


def _next_up(x: Tensor) -> Tensor:
    """The next larger number of the type of x, which is not negative: its bits, read as a whole number, plus 1."""
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return (x.view(whole) + 1).view(x.dtype)
