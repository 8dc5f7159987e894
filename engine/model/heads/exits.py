"""Exit heads: the correction of each layer's state before the unembedding reads it, and the confidence in it."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import Head, unit_rms_norm


class ExitHeads(Head):
    """One exit before every layer from 1 on: y = norm(x), times a weight of its own, and y + up(down(y)) is the feature
    that the target's unembedding reads there; rank: width between the two maps. In addition, a linear map predicts whether the
    exit's best token is that of the whole model (CALM's `meta` classifier, arXiv:2207.07061, section 3.5). `up` begins at
    zero: with the target's last norm as weights such exits are the untrained ones.

    norm float [E, d], down [E, rank, d], up [E, d, rank], sure [E, d] and bias [E], E = n_layers - 1.
    """

    kind = "exits"
    of_target: ClassVar[tuple[str, ...]] = ("n_layers",)

    def __init__(self, d: int, n_layers: int, rank: int) -> None:
        super().__init__(d=d, n_layers=n_layers, rank=rank)
        exits = n_layers - 1
        self.norm = nn.Parameter(torch.ones(exits, d))
        self.down = nn.Parameter(torch.randn(exits, rank, d) * d**-0.5)
        self.up = nn.Parameter(torch.zeros(exits, d, rank))
        self.sure = nn.Parameter(torch.zeros(exits, d))
        self.bias = nn.Parameter(torch.zeros(exits))

    def forward(self, x: Tensor, layer: int) -> Tensor:
        """The feature [..., d] of states x [..., d] that enter `layer`, 1 or above."""
        y = unit_rms_norm(x, self.norm[layer - 1])
        return y + F.linear(F.linear(y, self.down[layer - 1]), self.up[layer - 1])

    def confidence(self, x: Tensor, layer: int) -> Tensor:
        """float32 [...]: the confidence that the exit before `layer` gives the whole model's best token, from 0 to 1."""
        y = unit_rms_norm(x) @ self.sure[layer - 1] + self.bias[layer - 1]
        return y.float().sigmoid()
