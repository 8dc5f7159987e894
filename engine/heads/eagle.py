"""EAGLE's drafter: one decoder layer that guesses the target's next feature from its last one and the token that came."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..cache import LayerStore
from .attention import Attention
from .base import Head, normed


class EagleLayer(Head):
    """Slot t holds the pair (f_t, e(t+1)): the target's final feature of token t and the embedding of the token after it.
    x = W [f; e] + b, then x + attention(x), then x + FFN(norm(x)), which is the guess of f_{t+1}. As in the original there
    is no norm before the attention and none at the end. Embeddings are brought to unit mean square, where the original
    takes them as they are: ours are a tenth as large as features, and their columns of W would learn ten times as slowly."""

    kind = "eagle"

    def __init__(self, d: int, n_heads: int, n_kv_heads: int, head_dim: int, d_ff: int) -> None:
        super().__init__(d=d, n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim, d_ff=d_ff)
        self.fuse = nn.Linear(2 * d, d)
        self.attention = Attention(d, n_heads, n_kv_heads, head_dim)
        self.norm = nn.Parameter(torch.ones(d))
        self.gate, self.up = nn.Linear(d, d_ff, bias=False), nn.Linear(d, d_ff, bias=False)
        self.down = nn.Linear(d_ff, d, bias=False)

    def forward(
        self,
        features: Tensor,
        embedded: Tensor,
        start: int = 0,
        store: LayerStore | None = None,
        depth: int = 0,
        visible: Tensor | None = None,
    ) -> Tensor:
        """The next features [B, T, d] for features and embeddings [B, T, d]; the rest is `Attention.forward`'s."""
        x = self.fuse(torch.cat([features, normed(embedded)], -1))
        x = x + self.attention(x, start, store, depth, visible)
        y = normed(x, self.norm)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))
