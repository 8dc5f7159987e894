"""Past-future heads: what the layers above an exit will make of a state, and how far to believe the exit by that."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import Head, unit_rms_norm


class PastFutureHeads(Head):
    """One pair of maps before every layer from 1 on. The first imitates: y + up(silu(down(y))) of a state at unit
    mean square, y, for the mean of the states to come, at unit mean square each; rank: width between the two matrices.
    The second is linear in the mean of the states until then and in the imitation, and predicts whether the exit's best token
    is that of the whole model. `up` begins at zero: the future as the present.

    down float [E, rank, d], up [E, d, rank], past and future [E, d], bias [E], E = n_layers - 1.
    """

    kind = "past_future"
    of_target: ClassVar[tuple[str, ...]] = ("n_layers",)

    def __init__(self, d: int, n_layers: int, rank: int) -> None:
        super().__init__(d=d, n_layers=n_layers, rank=rank)
        exits = n_layers - 1
        self.down = nn.Parameter(torch.randn(exits, rank, d) * d**-0.5)
        self.up = nn.Parameter(torch.zeros(exits, d, rank))
        self.past = nn.Parameter(torch.zeros(exits, d))
        self.future = nn.Parameter(torch.zeros(exits, d))
        self.bias = nn.Parameter(torch.zeros(exits))

    def forward(self, x: Tensor, layer: int) -> Tensor:
        """The imitated mean of the states above `layer`, 1 or above, of states x [..., d] that enter it."""
        y = unit_rms_norm(x)
        return y + F.linear(F.silu(F.linear(y, self.down[layer - 1])), self.up[layer - 1])

    def confidence(self, past: Tensor, future: Tensor, layer: int) -> Tensor:
        """float32 [...]: the confidence that the exit before `layer` gives the whole model's best token, from 0 to
        1; past: the mean of the states at unit mean square up to there;  future: the imitation, [..., d] each."""
        said = past @ self.past[layer - 1] + future @ self.future[layer - 1] + self.bias[layer - 1]
        return said.float().sigmoid()
