"""SpecDec++'s acceptance head: will the target accept the token that the draft model has just read?"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..base import Head, HeadLinear


class AcceptanceHead(Head):
    """`blocks` residual blocks, x + SiLU(A x + b), each with weights of its own, then a linear layer to two numbers: refused,
    accepted. It reads a draft model's last state, after the final norm, and is in that model's folder. All weights are zero
    until they are trained or read: such a head outputs one half.

    Huang et al. 2024, arXiv:2405.19715. `[Block()] * n` would be one block n times; here each is a new one.
    """

    kind = "specdec"

    def __init__(self, d: int, blocks: int) -> None:
        super().__init__(d=d, blocks=blocks)
        self.blocks = nn.ModuleList(HeadLinear(d, d) for _ in range(blocks))
        self.says = HeadLinear(d, 2)
        for p in self.parameters():
            nn.init.zeros_(p)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [..., 2] of refused and accepted, for states x [..., d]."""
        for block in self.blocks:
            x = x + F.silu(block(x))
        return self.says(x)

    def acceptance_probability(self, x: Tensor) -> Tensor:
        """float [...]: the probability that the token with state x [..., d] is accepted."""
        return torch.softmax(self(x).float(), -1)[..., 1]
