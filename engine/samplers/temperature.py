"""Temperature: divide the logits."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..component import component, param
from .base import Sampler, one_token


@component
class Temperature(Sampler):
    """p(x) proportional to exp(z(x) / T). T below 1 sharpens, above 1 flattens; T = 0 is the greedy choice."""

    title = "Temperature"
    source = "Ackley, Hinton, Sejnowski 1985"

    temperature: float = param(1.0, low=0.0, high=5.0, step=0.05, help="0 is greedy, below 1 sharpens, above 1 flattens")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def warp(self, logits: Tensor, state: Any) -> Tensor:
        return one_token(logits) if self.greedy else logits / self.temperature
