"""EAGLE's drafter: one decoder layer that guesses the target's next feature from its last one and the token that came."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...stores.cache import LayerStore
from ..base import FusedLinears, HeadLinear, unit_rms_norm
from .attention import THETA, DraftAttention
from .pairs import PairHead

EPS = 10_000  # in 1e-9, as the shape of a net has whole numbers


class GatedBlock(FusedLinears):
    """x + down(SiLU(gate y) * up y) with y = norm(x), for x [..., d]: the feed-forward block of a decoder layer. bias: its
    three matrices have one."""

    joins = ("gate", "up")

    def __init__(self, d: int, d_ff: int, eps: float, bias: bool = False) -> None:
        super().__init__()
        self.norm, self.eps = nn.Parameter(torch.ones(d)), eps
        self.gate, self.up = HeadLinear(d, d_ff, bias=bias), HeadLinear(d, d_ff, bias=bias)
        self.down = HeadLinear(d_ff, d, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """float [..., d]."""
        gate, up = self.project_all(unit_rms_norm(x, self.norm, self.eps)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class EagleLayer(PairHead):
    """Slot t holds the pair (f_t, e(t+1)): the target's final feature of token t and the embedding of the token after it.
    x = W [f; e] + b, then x + attention(x), then x + FFN(norm(x)), which is the guess of f_{t+1}. As in the original there
    is no norm before the attention and none at the end. Embeddings are brought to unit mean square, where the original
    takes them as they are: ours are a tenth as large as features, and their columns of W would learn ten times as slowly.

    What published layers have otherwise: plain = 1: embeddings as they are; unbiased = 1: no b; qkv_bias = 1: queries, keys
    and values have one; theta: base of the rotation; eps: what the norm adds to the mean square, in 1e-9; own_embed: rows of an
    embedding of its own, 0: the target's.
    """

    kind = "eagle"

    def __init__(  # noqa: PLR0913
        self, d: int, n_heads: int, n_kv_heads: int, head_dim: int, d_ff: int,
        plain: int = 0, unbiased: int = 0, qkv_bias: int = 0, theta: int = THETA, eps: int = EPS, own_embed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(
            d=d, n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim, d_ff=d_ff,
            plain=plain, unbiased=unbiased, qkv_bias=qkv_bias, theta=theta, eps=eps, own_embed=own_embed,
        )  # fmt: skip
        self.own_embed = nn.Parameter(torch.zeros(own_embed, d)) if own_embed else None
        self.fuse = HeadLinear(2 * d, d, bias=not unbiased)
        self.attention = DraftAttention(d, n_heads, n_kv_heads, head_dim, bias=bool(qkv_bias), theta=theta)
        self.block = GatedBlock(d, d_ff, eps * 1e-9)

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
        return self.next_features(self.fuse_inputs(features, embedded), start, store, depth, visible)

    def fuse_inputs(self, features: Tensor, embedded: Tensor) -> Tensor:
        """The input of the layer [..., d] for features and embeddings [..., d]."""
        e = embedded if self.shape["plain"] else unit_rms_norm(embedded)
        return self.fuse(torch.cat([features, e], -1))

    def next_features(
        self, x: Tensor, start: int, store: LayerStore | None = None, depth: int | Sequence[int] = 0,
        visible: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """The next features [B, T, d] for what enters the layer, x [B, T, d]."""
        return self.block(x + self.attention(x, start, store, depth, visible))
