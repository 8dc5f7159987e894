"""Medusa's heads: each guesses one later token from the same state."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..base import Head, HeadLinear


class MedusaHeads(Head):
    """Head k (from 0) is one residual block, h + SiLU(A_k h + b_k), on the target's final feature h of token t, and guesses
    token t + 2 + k. A and b begin at zero, so an untrained head outputs the target's own next-token prediction.

    layers: blocks of a head, one after the other, each with weights of its own;  vocab: 0, or the rows of a vocabulary
    matrix that each head has for itself, as the published ones do
    """

    kind = "medusa"

    def __init__(self, d: int, heads: int, layers: int = 1, vocab: int = 0) -> None:
        super().__init__(d=d, heads=heads, layers=layers, vocab=vocab)
        self.blocks = nn.ModuleList(HeadLinear(d, d) for _ in range(heads * layers))  # head by head
        for p in self.parameters():
            nn.init.zeros_(p)
        if vocab:
            self.words = nn.ModuleList(HeadLinear(d, vocab, bias=False) for _ in range(heads))

    def head(self, k: int, h: Tensor) -> Tensor:
        """The feature [..., d] of head k for h [..., d]."""
        layers = self.shape["layers"]
        for block in self.blocks[k * layers : (k + 1) * layers]:
            h = h + F.silu(block(h))
        return h

    def forward(self, h: Tensor) -> Tensor:
        """Features [K, ..., d] of all K heads for h [..., d]."""
        return torch.stack([self.head(k, h) for k in range(self.shape["heads"])])
