"""Hydra's heads: each also reads the tokens that were drafted before the one it guesses."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...stores.cache import LayerStore
from ..base import Head, HeadLinear, unit_rms_norm
from .attention import THETA, DraftAttention
from .eagle import EPS, GatedBlock


class HydraPrefixLayer(nn.Module):
    """Hydra++'s layer before the heads, with a cache of its own: x + attention(norm(x)), the feed-forward block, and a norm,
    over the target's final features. Its row of token t replaces h."""

    def __init__(
        self, d: int, n_heads: int, n_kv_heads: int, head_dim: int, d_ff: int, theta: int, eps: float
    ) -> None:
        super().__init__()
        self.eps = eps
        self.first, self.last = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))
        self.attention = DraftAttention(d, n_heads, n_kv_heads, head_dim, theta=theta)
        self.block = GatedBlock(d, d_ff, eps)

    def forward(self, x: Tensor, start: int = 0, store: LayerStore | None = None) -> Tensor:
        """float [B, T, d] for final features x [B, T, d], with the first row at position `start`."""
        x = x + self.attention(unit_rms_norm(x, self.first, self.eps), start, store)
        return unit_rms_norm(self.block(x), self.last, self.eps)


class HydraHeads(Head):
    """Head k (from 0) is h + SiLU(A_k [h; e(t+1); ...; e(t+1+k)] + b_k): Medusa's block that also reads the embeddings of
    the tokens after t, the known one and those drafted so far, and guesses token t + 2 + k.

    The skip path is h itself, where the original learns a matrix for it, and embeddings are brought to unit mean square: as
    they are, they are far smaller than h and are hardly learnt from. With rank > 0, A_k is the product of [d, rank] and
    [rank, (k + 2) d], to keep the file small; 0: a whole matrix, as in the original.

    Settings of published heads: layers: blocks of a head; the later ones are Medusa's, y + SiLU(B y + c);
    vocab: rows of a vocabulary matrix with bias that each head has for itself, 0: none; learnt = 1: a matrix with bias for
    the skip path; plain = 1: embeddings as they are; own_embed: rows of an embedding of their own, 0: the target's.
    prefix: width of the feed-forward block of Hydra++'s layer before the heads, 0: no such layer; the sizes after it are those
    of that layer, eps in 1e-9.
    """

    kind = "hydra"

    def __init__(  # noqa: PLR0913
        self, d: int, heads: int, rank: int = 0, layers: int = 1, vocab: int = 0, learnt: int = 0, plain: int = 0,
        prefix: int = 0, n_heads: int = 1, n_kv_heads: int = 1, head_dim: int = 2, theta: int = THETA, eps: int = EPS,
        own_embed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(
            d=d, heads=heads, rank=rank, layers=layers, vocab=vocab, learnt=learnt, plain=plain,
            prefix=prefix, n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim, theta=theta, eps=eps, own_embed=own_embed,
        )  # fmt: skip
        self.own_embed = nn.Parameter(torch.zeros(own_embed, d)) if own_embed else None
        widths = [(k + 2) * d for k in range(heads)]
        self.down = nn.ModuleList(HeadLinear(n, rank, bias=False) for n in widths) if rank else None
        self.up = nn.ModuleList(HeadLinear(rank or n, d) for n in widths)
        self.more = nn.ModuleList(HeadLinear(d, d) for _ in range(heads * (layers - 1)))  # head by head
        for p in [*self.up.parameters(), *self.more.parameters()]:
            nn.init.zeros_(p)
        self.skip = nn.ModuleList(HeadLinear(n, d) for n in widths) if learnt else None
        self.prefix = (
            HydraPrefixLayer(d, n_heads, n_kv_heads, head_dim, prefix, theta, eps * 1e-9) if prefix else None
        )
        if vocab:
            self.words = nn.ModuleList(HeadLinear(d, vocab) for _ in range(heads))

    def forward(self, k: int, h: Tensor, embedded: Tensor) -> Tensor:
        """The feature [..., d] of head k for h [..., d] and the embeddings [..., k + 1, d] of the tokens after it."""
        prefix = embedded if self.shape["plain"] else unit_rms_norm(embedded)
        x = torch.cat([h, prefix.flatten(-2)], -1)  # [..., (k + 2) d]
        state = h if self.skip is None else self.skip[k](x)
        state = state + F.silu(self.up[k](x if self.down is None else self.down[k](x)))
        later = self.shape["layers"] - 1
        for block in self.more[k * later : (k + 1) * later]:
            state = state + F.silu(block(state))
        return state
