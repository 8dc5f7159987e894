"""ReDrafter's head: a recurrent net that hears the drafted tokens one by one, while the target's state stays the same."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..base import Head, HeadLinear, unit_rms_norm


class ReDrafterNet(Head):
    """State s_k = SiLU(W e(t+1+k) + U s_{k-1} + b), e being the embedding of the token before the one that step k (from 0)
    guesses, t + 2 + k; s_{-1} = 0. The feature of step k is h + O y, where h is the target's final feature of token t, the same
    for every step, and y is [h; s_k] brought to width `inner` by a linear map and then by `blocks` residual blocks,
    y + SiLU(A y + c). One net serves every step, so a draft may be longer than the `heads` steps that it was trained on.

    As in the authors' recurrent_drafting/modeling_drafter.py, but for three things that keep the file small: the state is
    `inner` wide (theirs: as h), O leads to the target's unembedding (theirs: to a vocabulary matrix of its own) and starts at
    zero, so that an untrained head outputs the target's own next-token prediction; embeddings are brought to unit mean square.
    """

    kind = "redrafter"
    works = ("begin", "step", "feature")

    def __init__(self, d: int, heads: int, inner: int, blocks: int) -> None:
        super().__init__(d=d, heads=heads, inner=inner, blocks=blocks)
        self.told, self.kept = HeadLinear(d, inner, bias=False), HeadLinear(inner, inner)
        self.enter, self.out = HeadLinear(d + inner, inner), HeadLinear(inner, d, bias=False)
        self.blocks = nn.ModuleList(HeadLinear(inner, inner) for _ in range(blocks))
        nn.init.normal_(self.told.weight, 0, d**-0.5)
        nn.init.zeros_(self.out.weight)

    def begin(self, h: Tensor) -> Tensor:
        """The state [..., inner] before the first step, for the target's feature h [..., d]."""
        return h.new_zeros(*h.shape[:-1], self.shape["inner"])

    def step(self, state: Tensor, embedded: Tensor) -> Tensor:
        """The state [..., inner] after one more token, of its embedding [..., d]."""
        return F.silu(self.told(unit_rms_norm(embedded)) + self.kept(state))

    def feature(self, h: Tensor, state: Tensor) -> Tensor:
        """The feature [..., d] of the next token, for h [..., d] and the state [..., inner]."""
        y = self.enter(torch.cat([h, state], -1))
        for block in self.blocks:
            y = y + F.silu(block(y))
        return h + self.out(y)

    def forward(self, h: Tensor, embedded: Tensor) -> Tensor:
        """Features [K, ..., d] of K steps for h [..., d] and the embeddings [..., K, d] of the tokens after it."""
        state, logits = self.begin(h), []
        for e in embedded.unbind(-2):
            state = self.step(state, e)
            logits.append(self.feature(h, state))
        return torch.stack(logits)
