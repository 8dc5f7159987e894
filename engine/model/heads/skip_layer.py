"""Routers of SkipLayer: one for each sub-layer decides whether a token runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from .base import Head, unit_rms_norm


class SkipRouters(Head):
    """One router for each attention and feed-forward block, 2 n_layers in all: a vector and a bias that read the state in front
    of it, at unit mean square. Where the score is above 0 the token runs the block. A score reads one token alone, never its
    sequence, so a token is routed when decoding as it is in training. They begin with biases of 3: all run.

    weight float [2 n_layers, d], bias [2 n_layers]: attention of layer 0, its feed-forward block, attention of layer 1, ...
    """

    __call__: Callable[..., Tensor]

    kind = "skip_layer"
    of_target: ClassVar[tuple[str, ...]] = ("n_layers",)

    def __init__(self, d: int, n_layers: int) -> None:
        super().__init__(d=d, n_layers=n_layers)
        self.weight = nn.Parameter(torch.zeros(2 * n_layers, d))
        self.bias = nn.Parameter(torch.full((2 * n_layers,), 3.0))

    def forward(self, x: Tensor, place: int) -> Tensor:
        """The scores [...] of states x [..., d] before block `place`; half types come out as float32."""
        score = unit_rms_norm(x) @ self.weight[place].to(x.dtype)
        return (score if score.dtype == torch.float64 else score.float()) + self.bias[place]
