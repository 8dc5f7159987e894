"""Top-p: keep the smallest set of most likely tokens that holds the mass p."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.sampler import Sampler


@component
class TopP(Sampler):
    """Nucleus sampling: sort by probability and keep the shortest prefix with a mass of at least p.

    The token that crosses the line stays. Equal probabilities are ordered by id.
    """

    title = "Top-p (nucleus)"
    source = "Holtzman et al. 2020, arXiv:1904.09751"

    p: float = param(0.95, low=0.0, high=1.0, step=0.01, help="probability mass to keep; 1: keep everything")

    def warp(self, logits: Tensor, state: Any) -> Tensor:
        if self.p >= 1:
            return logits
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        probs = ordered.softmax(-1)
        before = probs.cumsum(-1) - probs  # mass of the tokens before it
        out = before >= self.p
        out[..., 0] = False
        return logits.masked_fill(torch.zeros_like(out).scatter_(-1, order, out), -torch.inf)
