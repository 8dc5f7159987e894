"""EAGLE-3's drafter: one decoder layer on fused states of three depths, which predicts the next token itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from ...layers.matrix import linear
from ...stores.cache import LayerStore
from ..base import HeadLinear, unit_rms_norm
from .attention import THETA, DraftAttention, LeadingStore
from .draft_vocabulary import DraftVocabularyHead
from .eagle import EPS, GatedBlock
from .pairs import PairHead


class FurtherLayer(nn.Module):
    """A decoder layer behind the first one: x + attention(norm(x)), and then the feed-forward block, for x [B, T, d]."""

    __call__: Callable[..., Tensor]

    def __init__(self, attention: DraftAttention, block: GatedBlock) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.ones(attention.out.out_features))
        self.attention, self.block = attention, block

    def forward(
        self,
        x: Tensor,
        start: int,
        store: LayerStore | None,
        depth: int | Sequence[int],
        visible: Tensor | None,
    ) -> Tensor:
        """float [B, T, d]; the arguments are `DraftAttention.forward`'s."""
        y = unit_rms_norm(x, self.first, self.block.eps)
        return self.block(x + self.attention(y, start, store, depth, visible))


class Eagle3Layer(DraftVocabularyHead, PairHead):
    """Slot t holds the pair (f_t, e(t+1)) as in EAGLE, but f_t = W [low; middle; high] of the states of token t that enter
    three layers of the target (`fused_layers`), and nothing asks the output g_t to be like f_{t+1}: it is fed back in its
    place. x = [norm(e); norm(f)] is 2 d wide, y = f + attention(x), g = y + FFN(norm(y)). Of norm(g) the rows of the draft
    vocabulary make the logits of token t + 2: the `kept` ids marked in `mask` (float [vocab]), commonly the most frequent,
    in ascending order. The original writes the same as d2t, target id minus draft id. What is not kept has no probability.

    rank > 0: W is the product of [d, rank] and [rank, 3 d], to keep the file small; 0: a whole matrix, as in the original.
    own = 1: rows of the vocabulary of its own, as in the original; 0: the target's. theta: base of the rotation; eps: what
    the norms add to the mean square, in 1e-9; own_embed: rows of an embedding of its own, 0: the target's.

    What later layers of other authors do, each if 1 (vLLM, llama_eagle3.py; speculators, models/eagle3/core.py):
    norm_before_residual: y = norm(f) + attention(x);  norm_before_fc: W reads norm([low; middle; high]);  fc_norm: W reads
    [norm(low); norm(middle); norm(high)], each state with a norm of its own;  norm_output: norm(g), not g, is fed back;
    unfused: there is no W, and f_t is the target's final feature;  fuse_bias: W has a bias;  qkv_bias, out_bias, mlp_bias:
    so have these matrices of every layer;  qk_norm: queries and keys are normed, as in Qwen 3.

    states: how many states of the target W reads;  layer_ids: the layers that have their inputs read, as many; None: those of
    `fused_layers`. The number of the target's layers means the output of the last one, before the final norm.
    layers: how many decoder layers there are; those behind the first one are ordinary ones.
    """

    kind = "eagle3"
    works: ClassVar[tuple[str, ...]] = ("logits", "enter")

    def __init__(  # noqa: PLR0913
        self, d: int, vocab: int, kept: int, n_heads: int, n_kv_heads: int, head_dim: int, d_ff: int,
        rank: int = 0, own: int = 0, theta: int = THETA, eps: int = EPS, own_embed: int = 0,
        norm_before_residual: int = 0, norm_before_fc: int = 0, fc_norm: int = 0, norm_output: int = 0,
        states: int = 3, layers: int = 1, unfused: int = 0, fuse_bias: int = 0,
        qkv_bias: int = 0, out_bias: int = 0, mlp_bias: int = 0, qk_norm: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(
            d=d, vocab=vocab, kept=kept, n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim, d_ff=d_ff,
            rank=rank, own=own, theta=theta, eps=eps, own_embed=own_embed, norm_before_residual=norm_before_residual,
            norm_before_fc=norm_before_fc, fc_norm=fc_norm, norm_output=norm_output, states=states, layers=layers,
            unfused=unfused, fuse_bias=fuse_bias, qkv_bias=qkv_bias, out_bias=out_bias, mlp_bias=mlp_bias, qk_norm=qk_norm,
        )  # fmt: skip
        self.eps = eps * 1e-9
        self.own_embed = nn.Parameter(torch.zeros(own_embed, d)) if own_embed else None
        # of the states together
        self.input_norm = nn.Parameter(torch.ones(states * d)) if norm_before_fc else None
        self.state_norms = nn.Parameter(torch.ones(states, d)) if fc_norm else None  # of each of them
        self.down = HeadLinear(states * d, rank, bias=False) if rank else None
        self.fuse = None if unfused else HeadLinear(rank or states * d, d, bias=bool(fuse_bias))
        self.first, self.second = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))  # norms of e and f

        def attention(width: int) -> DraftAttention:
            sizes = (d, n_heads, n_kv_heads, head_dim, width)
            part = DraftAttention(*sizes, bias=bool(qkv_bias), theta=theta, out_bias=bool(out_bias))
            if qk_norm:
                part.norm_queries_and_keys(self.eps)
            return part

        self.attention = attention(2 * d)
        self.block = GatedBlock(d, d_ff, self.eps, bool(mlp_bias))
        self.more = nn.ModuleList(
            FurtherLayer(attention(d), GatedBlock(d, d_ff, self.eps, bool(mlp_bias)))
            for _ in range(layers - 1)
        )
        self.last = nn.Parameter(torch.ones(d))
        self.words = nn.ModuleList([HeadLinear(d, kept, bias=False)]) if own else None

    def places(self, n_layers: int) -> tuple[int | Literal["final"], ...]:
        """The places of a target of so many layers that have their states read, one after the other."""
        return ("final",) if self.shape["unfused"] else super().places(n_layers)

    def store(self) -> LayerStore:
        """An empty store for keys and values of one sequence, of all layers."""
        return self.attention.store([layer.attention.store() for layer in self._further])

    @property
    def _further(self) -> list[FurtherLayer]:
        return cast("list[FurtherLayer]", list(self.more))

    def enter(self, states: Tensor) -> Tensor:
        """The features [..., d] of states [..., states * d], the low one first."""
        if self.fuse is None:
            return states
        if self.input_norm is not None:
            states = unit_rms_norm(states, self.input_norm, self.eps)
        if self.state_norms is not None:
            apart = states.unflatten(-1, (self.shape["states"], -1))  # [..., states, d]
            states = (unit_rms_norm(apart, None, self.eps) * self.state_norms.to(apart.dtype)).flatten(-2)
        return self.fuse(states if self.down is None else self.down(states))

    def _pair(self, features: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """x [..., 2 d] for features and embeddings [..., d], and what the attention's output is added to, [..., d]."""
        f = unit_rms_norm(features, self.second, self.eps)
        x = torch.cat([unit_rms_norm(embedded, self.first, self.eps), f], -1)
        return x, f if self.shape["norm_before_residual"] else features

    def _output(self, y: Tensor) -> Tensor:
        """The output for y [..., d], which is fed back and predicts the next token, of a net of one layer."""
        return self._fed_back(self.block(y))

    def _fed_back(self, g: Tensor) -> Tensor:
        """The output for what the last layer gives, [..., d]."""
        return unit_rms_norm(g, self.last, self.eps) if self.shape["norm_output"] else g

    def forward(
        self,
        features: Tensor,
        embedded: Tensor,
        start: int = 0,
        store: LayerStore | None = None,
        depth: int = 0,
        visible: Tensor | None = None,
    ) -> Tensor:
        """The outputs [B, T, d] for features and embeddings [B, T, d]; the rest is `Attention.forward`'s."""
        x, residual = self._pair(features, embedded)
        x = self.block(residual + self.attention(x, start, store, depth, visible))
        stores = store.further if isinstance(store, LeadingStore) else [None] * len(self.more)
        for layer, own in zip(self._further, stores, strict=True):
            x = layer(x, start, own, depth, visible)
        return self._fed_back(x)

    def unroll(self, features: Tensor, embedded: Sequence[Tensor]) -> list[Tensor]:
        """The outputs of every level of drafts that begin at all places of whole texts at once, as training sees them.

        features: [B, T, d] of the texts;  embedded[k]: [B, rows_k, d], what slot t + k of the draft that begins at t reads,
        rows_k falling.  -> per level [B, rows_k, d]. Level k goes on from level k - 1's output and sees the true features of
        the slots up to t, and of its own draft what came before it ("training-time test").
        """
        self.require_one_layer()
        states = list[Tensor]()
        keys = list[Tensor]()
        values = list[Tensor]()
        g = features
        for level, e in enumerate(embedded):
            B, R, _ = e.shape
            g = g[:, :R]
            positions = torch.arange(level, level + R, device=e.device)[None].expand(B, R)
            x, residual = self._pair(g, e)
            q, kv = self.attention.project(x, positions, level + R)
            keys.append(kv[0])
            values.append(kv[1])
            sees = [torch.ones(R, keys[0].shape[2], dtype=torch.bool, device=e.device).tril()]
            sees += [torch.eye(R, x.shape[2], dtype=torch.bool, device=e.device) for x in keys[1:]]
            g = self._output(
                residual + self.attention.mix(q, torch.cat(keys, 2), torch.cat(values, 2), torch.cat(sees, 1))
            )
            states.append(g)
        return states

    def require_one_layer(self) -> None:
        """Training knows no other nets; those of published heads are not trained here."""
        assert not self.more and not self.attention.window, (
            "training knows one layer, which sees the whole text"
        )

    def choices(self, features: Tensor, words: Tensor) -> Tensor:
        """Logits [..., kept] of outputs [..., d], words being rows of the unembedding [kept, d]."""
        return linear(
            features if self.shape["norm_output"] else unit_rms_norm(features, self.last, self.eps), words
        )
