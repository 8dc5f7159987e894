"""Entropy of an exit's next-token distribution."""

from __future__ import annotations

import math

from torch import Tensor

OVER = ("vocabulary", "top")
TOP = 16


def entropy(logits: Tensor, over: str) -> tuple[Tensor, float]:
    """Return the entropy of logits [..., V] in nats, float [...], and its maximum log C.

    over: the "vocabulary", or the "top" 16 tokens alone.
    """
    if over == "top":
        logits = logits.topk(min(TOP, logits.shape[-1]), -1).values
    law = logits.log_softmax(-1)
    return -(law.exp() * law).nan_to_num(0.0).sum(-1), math.log(max(logits.shape[-1], 2))
