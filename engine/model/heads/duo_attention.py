"""The gates of DuoAttention: which KV heads look things up far away, and which are content with what is near."""

from __future__ import annotations

import torch
from torch import nn

from .base import Head


class DuoAttentionGates(Head):
    """One number a KV head, from 0 to 1: how much the model's text lacks where the head sees sinks and near entries alone.

    While it is trained a head's output is alpha * full + (1 - alpha) * streaming attention; it begins at 1, the model itself.

    alpha: float [n_layers, n_kv_heads]
    """

    kind = "duo_attention"
    of_target = ("n_layers", "n_kv_heads")

    def __init__(self, d: int, n_layers: int, n_kv_heads: int) -> None:
        super().__init__(d=d, n_layers=n_layers, n_kv_heads=n_kv_heads)
        self.alpha = nn.Parameter(torch.ones(n_layers, n_kv_heads))
