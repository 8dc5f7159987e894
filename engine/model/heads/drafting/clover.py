"""Clover's heads: a state goes from guess to guess, and takes in each token as far as state and token point the same way."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...stores.cache import LayerStore
from ..base import FusedLinears, HeadLinear, unit_rms_norm
from .attention import DraftAttention
from .eagle import GatedBlock
from .pairs import PairHead

EPS = 1e-5


class AttentionDecoder(FusedLinears):
    """s + O [c_1 v_1; ...; c_G v_G], c_g = cos(q_g, k_g), for a state s [..., d] and a token's embedding e [..., d]: attention
    to the token alone. A cosine for each of `gates` heads replaces softmax, which over one key would always be 1.
    q = Q norm(s), k = K e and v = V e are [gates, size] each, without a bias; O begins at zero."""

    joins = ("k", "v")

    def __init__(self, d: int, gates: int, size: int) -> None:
        super().__init__()
        self.sizes, self.norm = (gates, size), nn.Parameter(torch.ones(d))
        self.q, self.k, self.v = (HeadLinear(d, gates * size, bias=False) for _ in range(3))
        self.out = HeadLinear(gates * size, d, bias=False)
        nn.init.zeros_(self.out.weight)

    def parts(self, state: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """The cosines [..., gates] and the values [..., gates, size]."""
        q = self.q(unit_rms_norm(state, self.norm)).unflatten(-1, self.sizes)
        k, v = (x.unflatten(-1, self.sizes) for x in self.project_all(unit_rms_norm(embedded)).chunk(2, -1))
        return F.cosine_similarity(q, k, -1, EPS), v

    def forward(self, state: Tensor, embedded: Tensor) -> Tensor:
        """The state [..., d] that has taken the token in."""
        cosines, v = self.parts(state, embedded)
        return state + self.out((cosines[..., None] * v).flatten(-2))


class CloverHeads(PairHead):
    """Slot t holds the target's final feature f_t and the embedding e(t+1) of the token after it, the root.

    Augmenting block: s_0 is the result of an attention decoder on f_t and e(t+1), and then of a decoder layer over all slots
    up to t, with a cache of its own: x + attention(norm(x)), x + FFN(norm(x)). Regressive connection: s_k is the result of a
    second attention decoder on s_{k-1} and e(t+1+k), the token that was drafted. The output of head 0 is s_0 + A s_0. The
    output of head k is the feature s_k + B [s_k; e(t+1+k)], from which the unembedding makes token t + 2 + k. A and B are
    products of rank `rank`.

    As in the authors' clover/model/clover2.py, with two differences. One keeps the file small: there all widths are d, A and B
    are whole matrices without the skip, and there is no O. The other is two norms, of s_0 and of the output. Here every part
    adds to the target's feature and begins at zero, so untrained heads output the target's own next-token prediction.
    """

    kind = "clover"
    works = ("step", "feature")

    def __init__(  # noqa: PLR0913
        self,
        d: int,
        heads: int,
        gates: int,
        gate_dim: int,
        n_heads: int,
        n_kv_heads: int,
        head_dim: int,
        d_ff: int,
        rank: int,
    ) -> None:
        super().__init__(
            d=d, heads=heads, gates=gates, gate_dim=gate_dim, n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim,
            d_ff=d_ff, rank=rank,
        )  # fmt: skip
        self.before, self.after = AttentionDecoder(d, gates, gate_dim), AttentionDecoder(d, gates, gate_dim)
        self.norm = nn.Parameter(torch.ones(d))
        self.attention = DraftAttention(d, n_heads, n_kv_heads, head_dim)
        self.block = GatedBlock(d, d_ff, EPS)
        self.first_down, self.first_up = HeadLinear(d, rank, bias=False), HeadLinear(rank, d, bias=False)
        self.later_down, self.later_up = HeadLinear(2 * d, rank, bias=False), HeadLinear(rank, d, bias=False)
        for last in (self.attention.out, self.block.down, self.first_up, self.later_up):
            nn.init.zeros_(last.weight)

    def forward(
        self,
        features: Tensor,
        embedded: Tensor,
        start: int = 0,
        store: LayerStore | None = None,
        depth: int = 0,
        visible: Tensor | None = None,
    ) -> Tensor:
        """The states s_0 [B, T, d] for features and embeddings [B, T, d]; the rest is `Attention.forward`'s."""
        x = self.before(features, embedded)
        return self.block(x + self.attention(unit_rms_norm(x, self.norm), start, store, depth, visible))

    def step(self, state: Tensor, embedded: Tensor) -> Tensor:
        """The state [..., d] after one more token, of its embedding [..., d]."""
        return self.after(state, embedded)

    def feature(self, state: Tensor, embedded: Tensor | None = None) -> Tensor:
        """The feature [..., d] of the next token, for the state [..., d] and the embedding of the token it took in last; None:
        for s_0."""
        if embedded is None:
            return state + self.first_up(self.first_down(state))
        return state + self.later_up(self.later_down(torch.cat([state, unit_rms_norm(embedded)], -1)))

    def unroll(self, features: Tensor, embedded: list[Tensor]) -> list[Tensor]:
        """The features [B, rows_k, d] of every head for whole texts at once. features: [B, T, d];  embedded[k]: [B, rows_k,
        d], of the token before the one that head k guesses, rows_k falling from T."""
        state = self(features, embedded[0])
        said = [self.feature(state)]
        for e in embedded[1:]:
            state = self.step(state[:, : e.shape[1]], e)
            said.append(self.feature(state, e))
        return said
