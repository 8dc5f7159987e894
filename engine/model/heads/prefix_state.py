"""The state of an infinitely long prefix: two tensors for every query head, trained on a frozen model."""

from __future__ import annotations

import torch
from torch import nn

from ..attention.linear_segment import LinearSegment
from .base import Head

SMALL = 1e-2  # k before training: at 0 the absolute value has no gradient


class PrefixState(Head):
    """Z float [layers, H, D, D] and k float [layers, H, D]: D^2 + D numbers a query head. Liang et al. 2024, arXiv:2406.14036.

    The authors let both begin at zero (ChristianYang37/chiwun, ntk-attn-chatglm/ntk_glm.py); since |k| counts, k then stays
    there. Here it begins at `SMALL`.
    """

    kind = "ntk_attention"
    of_target = ("n_layers", "n_heads", "head_dim")

    def __init__(self, d: int, n_layers: int, n_heads: int, head_dim: int) -> None:
        super().__init__(d=d, n_layers=n_layers, n_heads=n_heads, head_dim=head_dim)
        self.z = nn.Parameter(torch.zeros(n_layers, n_heads, head_dim, head_dim))
        self.k = nn.Parameter(torch.full((n_layers, n_heads, head_dim), SMALL))

    def segment(self, layer: int, kv_heads: int) -> LinearSegment:
        """The segment that the queries of `layer` read, grouped by KV head."""
        z, k = (x[layer].unflatten(0, (kv_heads, -1)) for x in (self.z, self.k))
        return LinearSegment(z=z, k=k)
