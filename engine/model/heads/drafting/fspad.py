"""FSPAD's drafter: EAGLE's layer with features sampled by the token that came, and with tokens predicted separately."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...stores.cache import LayerStore
from ..base import HeadLinear, unit_rms_norm
from .attention import DraftAttention
from .eagle import EagleLayer
from .pairs import PairHead


class FspadLayer(PairHead):
    """Slot t holds EAGLE's pair (f_t, e(t+1)), and EAGLE's layer, whole, is the middle one of three parts:

        f~ = f * 2 sigmoid(U e) + V e       feature sampling: f is what might have come, e(t+1) is what came
        g  = EAGLE(f~, e)                   the guess of f_{t+1}, which is compared with the true one, and is fed back
        w  = g + O g                        partial alignment: the unembedding makes logits from w, not from g

    for f, e, g, w [..., d]. U, V and O are products of a [d, rank] and a [rank, d] matrix; U and V share the first.
    Their second ones begin at zero, where the gates are 1 and w is g: an untrained net is the EAGLE that it holds, to the
    bit. The loss on features reaches all but O, so O is free to add what a feature near the true one lacks.

    An approximation: the abstract says that embeddings sample features "in high-dimensional space" and that the connection
    of features and logits is weakened; the layers themselves could not be checked, for there is no code. The factor 2, so that
    gates may begin at 1, and the low ranks are ours.
    """

    kind = "fspad"
    works = ("unembedding_input", "gate")

    def __init__(self, d: int, n_heads: int, n_kv_heads: int, head_dim: int, d_ff: int, rank: int) -> None:
        super().__init__(d=d, n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim, d_ff=d_ff, rank=rank)
        self.layer = EagleLayer(d, n_heads, n_kv_heads, head_dim, d_ff)
        self.came = HeadLinear(d, rank, bias=False)
        self.factor = HeadLinear(rank, d, bias=False)
        self.shift = HeadLinear(rank, d, bias=False)
        self.apart, self.words_only = HeadLinear(d, rank, bias=False), HeadLinear(rank, d, bias=False)
        for late in (self.factor, self.shift, self.words_only):
            nn.init.zeros_(late.weight)

    @property
    def attention(self) -> DraftAttention:  # type: ignore[override] # a property where the others have a net of their own
        """The layer's attention, with the cache of a text."""
        return self.layer.attention

    def gate(self, embedded: Tensor) -> Tensor:
        """The factors [..., d], from 0 to 2, that tokens of these embeddings [..., d] put on the feature before them."""
        return 2 * torch.sigmoid(self.factor(self.came(unit_rms_norm(embedded))))

    def condition_on_token(self, features: Tensor, embedded: Tensor) -> Tensor:
        """The features [..., d] once it is known which token, of the embeddings [..., d], came after them."""
        return features * self.gate(embedded) + self.shift(self.came(unit_rms_norm(embedded)))

    def unembedding_input(self, features: Tensor) -> Tensor:
        """The input [..., d] of the unembedding for the guessed features [..., d]."""
        return features + self.words_only(self.apart(features))

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
        return self.layer(self.condition_on_token(features, embedded), embedded, start, store, depth, visible)
