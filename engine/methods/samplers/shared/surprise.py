"""Surprise: how unlikely a token was, in bits, and a bound that it moves."""

from __future__ import annotations

import math

from torch import Tensor


def surprise_bits(logits: Tensor, token: int) -> float:
    """-log2 p(token) under logits [V]."""
    return -float(logits.log_softmax(-1)[token]) / math.log(2)


def update_mu(mu: float, seen: float, target: float, rate: float, least: float = 0.0) -> float:
    """mu - rate * (seen - target), within [least, 4 * target]: mu would diverge if the target cannot be reached."""
    return min(max(mu - rate * (seen - target), least), 4 * target)
