"""Scores of a prompt's tokens, smoothed over neighbours."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor


def pool_scores(scores: Tensor, kernel: int, by: Literal["mean", "max"]) -> Tensor:
    """float [n]: the mean or maximum of the `kernel` scores around each token; beyond the ends there are zeros.

    An even `kernel` has one more score to the right.
    """
    padded = F.pad(scores, ((kernel - 1) // 2, kernel // 2))[None]
    return (F.avg_pool1d if by == "mean" else F.max_pool1d)(padded, kernel, stride=1)[0]
