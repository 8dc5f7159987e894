"""Medusa's heads: each guesses one later token from the same state."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import Head


class MedusaHeads(Head):
    """Head k (from 0) is one residual block, h + SiLU(A_k h + b_k), on the target's final feature h of token t, and guesses
    token t + 2 + k. A and b begin at zero, so an untrained head says what the target says of the next token."""

    kind = "medusa"

    def __init__(self, d: int, heads: int) -> None:
        super().__init__(d=d, heads=heads)
        self.blocks = nn.ModuleList(nn.Linear(d, d) for _ in range(heads))
        for p in self.parameters():
            nn.init.zeros_(p)

    def head(self, k: int, h: Tensor) -> Tensor:
        """The feature [..., d] of head k for h [..., d]."""
        return h + F.silu(self.blocks[k](h))

    def forward(self, h: Tensor) -> Tensor:
        """Features [K, ..., d] of all K heads for h [..., d]."""
        return torch.stack([self.head(k, h) for k in range(len(self.blocks))])
