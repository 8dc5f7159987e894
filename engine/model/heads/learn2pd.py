"""The filter of Learn2PD: which open places of a canvas hold their final token, by nothing but how sure the model is."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from .base import Head, HeadLinear


class ParallelFilter(Head):
    """Two linear layers over the confidences of a block's places: W2 relu(W1 c + b1) + b2, one logit a place. It reads
    nothing of the model itself; d identifies the model that it was made for.

    block: places that it looks at;  hidden: width between the layers
    Bao et al. 2025, arXiv:2509.25188; the layers are those of its summary (2,112 numbers for a block of 32), its activation is
    not in the public code.
    """

    __call__: Callable[..., Tensor]

    kind = "learn2pd"

    def __init__(self, d: int, block: int, hidden: int) -> None:
        super().__init__(d=d, block=block, hidden=hidden)
        self.inner = HeadLinear(block, hidden)
        self.outer = HeadLinear(hidden, block)

    def forward(self, confidence: Tensor) -> Tensor:
        """Logits [..., block] of being final, for confidences [..., block]; 1 if a token is there or the place does not
        exist."""
        return self.outer(F.relu(self.inner(confidence)))

    def final_probability(self, confidence: Tensor) -> Tensor:
        """float32 [n]: how sure it is that each of n places holds its final token, for confidences [n]. More places than a
        block has are looked at in pieces, fewer are filled up with 1."""
        n, block = len(confidence), self.shape["block"]
        pieces = F.pad(confidence, (0, -n % block), value=1.0).view(-1, block)
        return self(pieces.to(self.dtype)).float().sigmoid().flatten()[:n]
