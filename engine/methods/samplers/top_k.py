"""Top-k: keep the k most likely tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.sampler import Sampler


@component
class TopK(Sampler):
    """Keep every token whose logit is at least the k-th largest; equal logits at the cut all stay."""

    title = "Top-k"
    source = "Fan et al. 2018, arXiv:1805.04833"
    by_rank = True

    k: int = param(50, low=1, high=100_000, unit="tokens", help="number of likeliest candidates to keep")

    def warp(self, logits: Tensor, state: Any) -> Tensor:
        if self.k >= logits.shape[-1]:
            return logits
        cut = logits.topk(self.k, -1).values[..., -1:]
        return logits.masked_fill(logits < cut, -torch.inf)
