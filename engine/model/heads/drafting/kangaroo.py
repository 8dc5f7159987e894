"""Kangaroo's adapter: it turns a state of an early layer into a feature that the target's unembedding can read."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...stores.cache import LayerStore
from ..base import Head, unit_rms_norm
from .attention import DraftAttention


class KangarooAdapter(Head):
    """norm(x + attention(norm(x))) for x, the states that enter layer `layer` of the target; no feed-forward block. The
    row of token t guesses token t + 1. x is brought to unit mean square first, which the outer norm hides but for the share
    of the attention: a residual stream is so large that a fresh attention block would add next to nothing to it."""

    kind = "kangaroo"

    def __init__(self, d: int, layer: int, n_heads: int, n_kv_heads: int, head_dim: int) -> None:
        super().__init__(d=d, layer=layer, n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim)
        self.first = nn.Parameter(torch.ones(d))
        self.attention = DraftAttention(d, n_heads, n_kv_heads, head_dim)
        self.last = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor, start: int = 0, store: LayerStore | None = None) -> Tensor:
        """Features [B, T, d] of states x [B, T, d], with the first row at position `start`."""
        x = unit_rms_norm(x)
        return unit_rms_norm(x + self.attention(unit_rms_norm(x, self.first), start, store), self.last)
