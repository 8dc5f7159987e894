"""Rotary position embedding: tables of cosines and sines, and the rotation itself."""

from __future__ import annotations

import math
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from decodescope.engine.core.spec import Rope
from decodescope.engine.kernels.choice import kernels_for


def rope_frequencies(rope: Rope) -> Tensor:
    """float64 [dim / 2]: radians per position of each feature pair, after the scaling that `rope` asks for.

    "llama3" leaves short wavelengths alone, divides long ones by the factor and blends between (Llama 3.1's rule). "yarn"
    does so by the number of turns that a pair makes over the original length (Peng et al. 2023, arXiv:2309.00071, 3.2).
    "longrope" divides each pair by a factor of its own (Ding et al. 2024, arXiv:2402.13753).
    """
    inv = rope.theta ** -(torch.arange(0, rope.dim, 2, dtype=torch.float64) / rope.dim)
    if rope.kind == "linear":
        return inv / rope.factor
    if rope.kind == "llama3":
        wavelength = 2 * math.pi / inv
        low, high = rope.low_freq_factor, rope.high_freq_factor
        # 1: leave, 0: divide
        blend = ((rope.original_positions / wavelength - low) / (high - low)).clamp(0, 1)
        return inv * blend + inv / rope.factor * (1 - blend)
    if rope.kind == "yarn":
        low = max(_pair(rope, rope.beta_fast), 0)
        high = min(_pair(rope, rope.beta_slow, up=True), rope.dim - 1)
        ramp = torch.arange(rope.dim // 2, dtype=torch.float64) - low
        blend = 1 - (ramp / (high - low if high != low else 0.001)).clamp(0, 1)  # as above
        return inv * blend + inv / rope.factor * (1 - blend)
    if rope.kind == "longrope":
        return inv / inv.new_tensor(rope.factors)
    return inv


def _pair(rope: Rope, turns: float, *, up: bool = False) -> float:
    """The feature pair, counted from 0, that makes `turns` turns over the original length."""
    pair = rope.dim * math.log(rope.original_positions / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))
    if not rope.whole:
        return pair
    return math.ceil(pair) if up else math.floor(pair)


class RopeTable:
    """cos and sin for positions 0, 1, ... in the model's type, grown on demand. The sign of the rotation is in the sine:
    rotate(x) = x * cos + swap(x) * sin, where swap exchanges the halves.

    Angles of the table are float32 (float64 if the model is), as models are trained with them: at position 100,000 they are
    off by up to 0.004 rad. Positions from `most` on, the trained context, are in no table: their angles are float64, so that
    distances between them are right to float32's rounding however far a text goes in which queries see only what is near.

    It belongs to the model: what is made of a cache copies no table, and no cache counts its bytes.
    """

    def __init__(
        self,
        rope: Rope,
        positions: int,
        dtype: torch.dtype,
        device: torch.device | str,
        most: int | None = None,
    ):
        self.rope = rope
        self.dtype = dtype
        self.device = torch.device(device)
        self.most = most
        self._frequencies = rope_frequencies(rope)
        self._here = self._frequencies.to(self.device)
        self._table = self._build(positions)

    def __deepcopy__(self, memo: object) -> RopeTable:
        return self

    def _build(self, positions: int) -> Tensor:
        """[P, 2, dim]: cosines and sines of the first `positions` positions."""
        angle = torch.outer(torch.arange(positions, dtype=torch.float64), self._frequencies)  # [P, dim / 2]
        table = self._pairs(angle if self.dtype == torch.float64 else angle.float())
        return table.to(self.device, self.dtype)

    def _pairs(self, angle: Tensor) -> Tensor:
        """[..., 2, dim]: cosines and signed sines of angles [..., dim / 2]."""
        cos, sin = angle.cos() * self.rope.amplitude, angle.sin() * self.rope.amplitude
        return torch.stack([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)], -2)

    def at(self, positions: Tensor, highest: int) -> tuple[Tensor, Tensor]:
        """cos, sin [..., 1, dim] for int64 positions [...], all at most `highest`."""
        most = highest + 1 if self.most is None else self.most
        table = self._table  # another thread may replace it
        if len(table) <= highest < most:
            self._table = table = self._build(min(most, max(highest + 1, 2 * len(table))))
        if highest < len(table):
            both = table[positions]  # [..., 2, dim]
        else:
            both = self._pairs(positions.double()[..., None] * self._here).to(self.dtype)
        return both.narrow(-2, 0, 1), both.narrow(-2, 1, 1)


_in_use: WeakValueDictionary[tuple[Rope, torch.dtype, torch.device, int], RopeTable] = WeakValueDictionary()


def shared_rope_table(
    rope: Rope, most: int, dtype: torch.dtype, device: torch.device | str, start: int = 8192
) -> RopeTable:
    """The one table of this rotation, as long as somebody uses it; most: the trained context; start: positions of a new one."""
    key = (rope, dtype, torch.device(device), most)
    table = _in_use.get(key)
    if table is None:
        _in_use[key] = table = RopeTable(rope, min(most, start), dtype, device, most)
    return table


def rotate_(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotate the leading cos.shape[-1] features of x (float [..., heads, D]) in place."""
    kernels = (
        kernels_for(x, cos, sin) if x.dim() > 3 and x.dtype == cos.dtype and cos.shape[-2] == 1 else None
    )
    if kernels is not None:
        return kernels.rotate_(x, cos, sin)
    dim = cos.shape[-1]
    part = x if dim == x.shape[-1] else x[..., :dim]
    swapped = part.roll(dim // 2, -1)
    part.mul_(cos).addcmul_(swapped, sin)


def unrotate(x: Tensor, table: RopeTable, positions: Tensor, highest: int) -> Tensor:
    """Keys x [..., S, D] from `positions` (int64 [S], none above `highest`), copied and moved to position 0."""
    x = x.clone(memory_format=torch.contiguous_format)
    cos, sin = table.at(positions, highest)
    rotate_(x[..., None, :], cos / table.rope.amplitude, -sin / table.rope.amplitude)
    return x
