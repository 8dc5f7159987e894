"""Min-p: keep the tokens that have at least a given share of the best probability."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.sampler import Sampler


@component
class MinP(Sampler):
    """Keep x where p(x) >= share * max p, that is z(x) >= max z + ln(share)."""

    title = "Min-p"
    source = "Nguyen et al. 2025, arXiv:2407.01082"

    p: float = param(
        0.05,
        low=0.0,
        high=1.0,
        step=0.01,
        help="minimum probability, as a share of the likeliest token's; 0: keep everything",
    )

    def warp(self, logits: Tensor, state: Any) -> Tensor:
        if self.p == 0:
            return logits
        return logits.masked_fill(logits < logits.amax(-1, keepdim=True) + math.log(self.p), -torch.inf)
