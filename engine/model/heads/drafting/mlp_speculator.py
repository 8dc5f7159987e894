"""The heads of the MLP speculator: a small state that each drafted token changes, as in a recurrent net."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..base import Head, HeadLinear, unit_rms_norm


class MLPSpeculatorNet(Head):
    """State s_k = GELU(LN(P_k s_{k-1} + w E e(t+1+k))), e being the embedding of the token before the one that head k (from
    0) guesses, t + 2 + k; s_{-1} is the target's final feature of token t at zero mean and unit variance, over sqrt(2). The
    feature is U s_k. w = sqrt((1 - r^2) / 2) / r with r = 0.5^(1 / 2K) leaves half of the last state's size to the first.

    P_0 reads the feature; P_1 serves all later heads, and so do E, U and the norm, the authors' option of tied weights. They
    learn an embedding [V, inner] and a vocabulary matrix [V, inner] too; here E [inner, d] turns the target's embedding,
    brought to unit mean square, and the target's unembedding reads U s_k, to keep the file small.
    """

    kind = "mlp_speculator"
    works = ("begin", "step", "feature")

    def __init__(self, d: int, heads: int, inner: int) -> None:
        super().__init__(d=d, heads=heads, inner=inner)
        self.first, self.later = HeadLinear(d, inner, bias=False), HeadLinear(inner, inner, bias=False)
        self.told, self.out = HeadLinear(d, inner, bias=False), HeadLinear(inner, d, bias=False)
        self.norm = nn.LayerNorm(inner)
        for layer in (self.first, self.later, self.told, self.out):
            nn.init.normal_(layer.weight, 0, layer.in_features**-0.5)
        kept = 0.5 ** (0.5 / heads)
        self.weight = math.sqrt((1 - kept**2) / 2) / kept

    def begin(self, h: Tensor) -> Tensor:
        """The state [..., d] before the first step, of the target's feature h [..., d]."""
        return F.layer_norm(h, h.shape[-1:]) / math.sqrt(2)

    def step(self, k: int, state: Tensor, embedded: Tensor) -> Tensor:
        """The state [..., inner] of head k, of the one before it and the embedding [..., d] of the token before its guess."""
        came = self.later(state) if k else self.first(state)
        return F.gelu(self.norm(came + self.weight * self.told(unit_rms_norm(embedded))))

    def feature(self, state: Tensor) -> Tensor:
        """The input of the unembedding, [..., d], for a head's state [..., inner]."""
        return self.out(state)

    def forward(self, h: Tensor, embedded: Tensor) -> Tensor:
        """Features [K, ..., d] of K heads for h [..., d] and the embeddings [..., K, d] of the tokens after it."""
        state, logits = self.begin(h), []
        for k, e in enumerate(embedded.unbind(-2)):
            state = self.step(k, state, e)
            logits.append(self.feature(state))
        return torch.stack(logits)
