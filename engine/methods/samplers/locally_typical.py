"""Locally typical sampling: keep the tokens whose surprise is near the expected surprise."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.sampler import Sampler


@component
class LocallyTypical(Sampler):
    """Keep the tokens with a surprise near the entropy.

    Sort tokens by | -ln p(x) - H |, the distance of their surprise from the entropy H of the distribution. Keep the shortest
    prefix with a mass of at least tau; the token that crosses the line stays. Equal distances are ordered by id. If the
    distribution is flat except for a peak, the most likely token is itself untypical, and is removed. Costs a sort of the
    vocabulary.
    """

    title = "Locally typical"
    source = "Meister et al. 2023, arXiv:2202.00666, section 4; cimeister/typical-sampling"

    tau: float = param(0.9, low=0.0, high=1.0, step=0.01, help="probability mass to keep; 1: keep everything")

    def warp(self, logits: Tensor, state: Any) -> Tensor:
        if self.tau >= 1:
            return logits
        surprise = -logits.log_softmax(-1)  # inf where a token was removed before, which sorts it last
        p = (-surprise).exp()
        order = (
            (surprise - torch.special.entr(p).sum(-1, keepdim=True)).abs().sort(dim=-1, stable=True).indices
        )
        ordered = p.gather(-1, order)
        out = ordered.cumsum(-1) - ordered >= self.tau  # mass of the tokens before it
        out[..., 0] = False
        return logits.masked_fill(torch.zeros_like(out).scatter_(-1, order, out), -torch.inf)
