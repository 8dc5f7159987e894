"""Grid: a matrix of a few bits during tuning, and the moves of its codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from decodescope.engine.decoding.bases.weights import MatrixPlace
from decodescope.engine.model.layers.compressed_matrices import CodeMatrix, Int4Matrix
from decodescope.engine.model.layers.matrix import Matrix

from .rounding import quantise_groups

FALL = 0.95  # decay of the mean square that divides a code's step


@dataclass(frozen=True)
class TuningStep:
    """The result of a tuning step.

    loss: before it, on its text;  changed: codes by matrix;  judged: after it, if it was judged
    """

    loss: float
    changed: Mapping[MatrixPlace, int]
    judged: float | None


@dataclass
class Grid:
    """w = (q - middle) s + z.

    The weights that a pass reads are always on the grid, whatever moves.

    q: codes as floats [out, groups, group], 0..2^k - 1;  scale, zero: [out, groups, 1];  wish: shaped as q, the desired
    distance of each weight from its code in steps of the grid, at first the rounding error;  square: shaped as q, the mean
    square of its slope;  steps: the number of steps so far
    """

    q: Tensor
    scale: Tensor
    zero: Tensor
    k: int
    wish: Tensor
    square: Tensor = field(init=False)
    steps: int = 0

    def __post_init__(self) -> None:
        self.square = torch.zeros_like(self.q)

    @classmethod
    def from_weight(cls, weight: Tensor, group: int, k: int, dtype: torch.dtype) -> Grid:
        """The rounded `weight` [out, in], to be tuned in `dtype`."""
        codes, scale, zero = quantise_groups(weight, group, k, _middle_code(k))
        q = codes.to(dtype).unflatten(1, (-1, group))
        scale = scale.to(dtype)[..., None]
        zero = zero.to(dtype)[..., None]
        lost = weight.to(dtype).view_as(q) - torch.addcmul(zero, q - _middle_code(k), scale)
        return cls(q, scale, zero, k, lost / torch.where(scale > 0, scale, 1.0))

    @property
    def middle_code(self) -> int:
        """The code that is read as z."""
        return _middle_code(self.k)

    def weight(self) -> Tensor:
        """The weight [out, in], with a gradient if scale and offset have one."""
        return torch.addcmul(self.zero, self.q - self.middle_code, self.scale).flatten(1)

    def step(self, slope: Tensor, rate: float, share: float) -> int:
        """Move codes down the slope of the loss at the weights, [out, in], and return how many changed.

        Every wish moves by about `rate` steps of the grid, because the slope is divided by its usual size. Codes that are no
        longer nearest to their desired value may change: the furthest ones, at most a `share` of all weights.
        """
        slope = slope.view_as(self.q)
        self.steps += 1
        self.square.mul_(FALL).addcmul_(slope, slope, value=1 - FALL)
        usual = (self.square / (1 - FALL**self.steps)).sqrt_()
        self.wish.addcdiv_(slope, usual.add_(torch.finfo(slope.dtype).tiny), value=-rate)
        top = 2**self.k - 1
        # desired values outside the grid are clamped
        wished = (self.q + self.wish).clamp_(-0.5, top + 0.5)
        self.wish = wished - self.q
        near = wished.round().clamp_(0, top)
        at = (near != self.q).flatten().nonzero()[:, 0]
        most = int(share * self.q.numel())
        if len(at) > most:
            far = (self.wish * self.scale).abs().flatten()[at]
            at = at[far.topk(most).indices]
        new = near.flatten()[at]
        self.wish.view(-1)[at] -= new - self.q.view(-1)[at]
        self.q.view(-1)[at] = new
        return len(at)

    def round_scales(self, dtype: torch.dtype) -> Grid:
        """A copy with scale and offset rounded to `dtype`, as they are stored."""
        scale, zero = (x.detach().to(dtype).to(x.dtype) for x in (self.scale, self.zero))
        return Grid(self.q.clone(), scale, zero, self.k, self.wish.clone())

    def to_matrix(self, dtype: torch.dtype) -> Matrix:
        """The matrix in its packed form."""
        q = self.q.flatten(1).to(torch.uint8)
        scale = self.scale[..., 0].to(dtype)
        zero = self.zero[..., 0].to(dtype)
        return (
            CodeMatrix.from_codes(q, scale, zero, self.k)
            if self.k < 4
            else Int4Matrix.from_codes(q, scale, zero)
        )


def _middle_code(k: int) -> int:
    return 8 if k == 4 else 0
