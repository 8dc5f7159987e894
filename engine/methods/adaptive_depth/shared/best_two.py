"""The two likeliest tokens of an exit."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def best_two(logits: Tensor) -> Tensor:
    """Probabilities float [..., 2] of the two likeliest tokens of logits [..., V]; the second is 0 if V is 1."""
    count = min(2, logits.shape[-1])
    return F.pad(logits.softmax(-1).topk(count, -1).values, (0, 2 - count))
