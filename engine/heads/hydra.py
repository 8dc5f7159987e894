"""Hydra's heads: each also reads the tokens that were drafted before the one it guesses."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import Head, normed


class HydraHeads(Head):
    """Head k (from 0) is h + SiLU(A_k [h; e(t+1); ...; e(t+1+k)] + b_k): Medusa's block that also reads the embeddings of
    the tokens after t, the known one and those drafted so far, and guesses token t + 2 + k.

    The skip path is h itself, where the original learns a matrix for it, and embeddings are brought to unit mean square: as
    they are, they are far smaller than h and are hardly learnt from. With rank > 0, A_k is the product of [d, rank] and
    [rank, (k + 2) d], to keep the file small; 0: a whole matrix, as in the original.
    """

    kind = "hydra"

    def __init__(self, d: int, heads: int, rank: int = 0) -> None:
        super().__init__(d=d, heads=heads, rank=rank)
        widths = [(k + 2) * d for k in range(heads)]
        self.down = nn.ModuleList(nn.Linear(n, rank, bias=False) for n in widths) if rank else None
        self.up = nn.ModuleList(nn.Linear(rank or n, d) for n in widths)
        for p in self.up.parameters():
            nn.init.zeros_(p)

    def forward(self, k: int, h: Tensor, embedded: Tensor) -> Tensor:
        """The feature [..., d] of head k for h [..., d] and the embeddings [..., k + 1, d] of the tokens after it."""
        x = torch.cat([h, normed(embedded).flatten(-2)], -1)  # [..., (k + 2) d]
        if self.down is not None:
            x = self.down[k](x)
        return h + F.silu(self.up[k](x))
