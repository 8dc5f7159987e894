"""The gates of DuoAttention: which KV heads look things up far away, and which are content with what is near."""

from __future__ import annotations

import torch
from torch import nn

from .base import Head


class HeadGates(Head):
    """One number a KV head, from 0 to 1: how much the model's text lacks where the head sees sinks and near entries alone.

    While it is trained a head's output is alpha * full + (1 - alpha) * streaming attention; it begins at 1, the model itself.

    alpha: float [depth, kv_heads], one row a layer
    """

    kind = "duo_attention"

    def __init__(self, d: int, depth: int, kv_heads: int) -> None:
        super().__init__(d=d, depth=depth, kv_heads=kv_heads)
        self.alpha = nn.Parameter(torch.ones(depth, kv_heads))
