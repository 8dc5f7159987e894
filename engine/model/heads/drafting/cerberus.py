"""Cerberus' gate: how likely the heads' first guess is right, by how sure the target was of the last token."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..base import Head, HeadLinear


class CerberusGate(Head):
    """sigmoid(w [H; m] + b) for a distribution p of the target: H = -sum p ln p, its entropy in nats, and m = max p. It is the
    distribution at the root, of the draft's first token. The output is the chance that the likeliest guess of Hydra's heads,
    which the gate was trained with, is the target's choice there. The three numbers are zero until they are trained: such a
    gate says one half. That entropy and confidence of the last state decide is recalled from the paper; the formula is ours."""

    kind = "cerberus"
    works = ("chance",)

    def __init__(self, d: int) -> None:
        super().__init__(d=d)
        self.weigh = HeadLinear(2, 1)
        for p in self.parameters():
            nn.init.zeros_(p)

    @staticmethod
    def distribution_features(logits: Tensor) -> Tensor:
        """float [..., 2]: entropy in nats, and the largest probability, of the distribution with logits [..., V]."""
        logs = logits.log_softmax(-1)
        p = logs.exp()
        return torch.stack([-(p * logs.clamp_min(-1e4)).sum(-1), p.amax(-1)], -1)

    def chance(self, logits: Tensor) -> Tensor:
        """float [...]: the chance that the first guess is right, for the target's logits [..., V] of the token before it."""
        return self.weigh(self.distribution_features(logits).to(self.dtype))[..., 0].float().sigmoid()
