"""BiTA's mask tokens, and the prefix that they see: keys and values of every layer, which are trained too."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .slot_tokens import SlotTokens


class MaskTokens(SlotTokens):
    """`heads` mask tokens with an embedding each, and a soft prefix that slots alone see.

    prefix: float [n_layers, 2, n_kv_heads, tokens, head_dim]: keys, for queries that are not rotated, and values
    """

    kind = "bita"
    of_target = ("n_layers", "n_kv_heads", "head_dim")

    def __init__(
        self, d: int, heads: int, tokens: int, n_layers: int, n_kv_heads: int, head_dim: int
    ) -> None:
        super().__init__(d, heads, tokens=tokens, n_layers=n_layers, n_kv_heads=n_kv_heads, head_dim=head_dim)
        self.prefix = nn.Parameter(torch.randn(n_layers, 2, n_kv_heads, tokens, head_dim) * 0.02)

    @property
    def prefix_kv(self) -> Tensor:
        return self.prefix
