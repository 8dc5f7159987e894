"""The heads of blockwise parallel decoding: one hidden layer, from which each reads its own step away from the state."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from ..base import Head, HeadLinear


class BlockwiseHeads(Head):
    """One feed-forward layer on the target's final feature h of token t: head k (from 0) is h + U_k relu(A h + b) + c_k, with
    A [hidden, d] shared by all, and guesses token t + 2 + k, by the target's own vocabulary matrix. The paper's first head
    guesses t + 1 and is the target itself, so its k are these heads and one more. U and c begin at zero, so an untrained head
    outputs the target's own next-token prediction."""

    kind = "blockwise"

    def __init__(self, d: int, heads: int, hidden: int) -> None:
        super().__init__(d=d, heads=heads, hidden=hidden)
        self.shared = HeadLinear(d, hidden)
        self.steps = HeadLinear(hidden, heads * d)
        for p in self.steps.parameters():
            nn.init.zeros_(p)

    def forward(self, h: Tensor) -> Tensor:
        """Features [K, ..., d] of all K heads for h [..., d]."""
        steps: Tensor = self.steps(F.relu(self.shared(h))).unflatten(
            -1, (self.shape["heads"], self.shape["d"])
        )
        return (h[..., None, :] + steps).movedim(-2, 0)  # [..., K, d] -> [K, ..., d]
