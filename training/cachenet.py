"""A pass of the frozen model in which a part of the cache computes the attention: for training such parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .net import Net, apply_rotary

# layer, queries [B, H, T, d], keys and values [B, G, T, d], queries and keys rotated -> [B, H, T, d]
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


def features(net: Net, x: Tensor, attend: Attend, first: int = 0) -> Tensor:
    """The final features [B, T, D] of inputs x float [B, T, D] at the places first, first + 1, ...

    `attend` computes the attention of every layer, and has to hide what comes later.
    """
    turn, s = (net.cosine[first : first + x.shape[1]], net.sine[first : first + x.shape[1]]), net.shape
    for i, layer in enumerate(net.layers):
        y, a = layer.input_layernorm(x), layer.self_attn
        q, k, v = (
            p(y).unflatten(2, (n, s.head_width)).transpose(1, 2)
            for p, n in ((a.q_proj, s.heads), (a.k_proj, s.kv_heads), (a.v_proj, s.kv_heads))
        )
        y = attend(i, apply_rotary(q, turn), apply_rotary(k, turn), v)
        x = x + a.o_proj(y.transpose(1, 2).flatten(2).to(x.dtype))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return net.model.norm(x)


def group_queries(q: Tensor, kv_heads: int) -> Tensor:
    """[B, G, g, T, d] of queries [B, H, T, d]: each grouped with the others that read its key/value head."""
    return q.unflatten(1, (kv_heads, q.shape[1] // kv_heads))


def causal_mask(rows: int, columns: int, device: torch.device) -> Tensor:
    """bool [1, 1, rows, columns]: each row sees all columns up to its own, the last row the last one."""
    return torch.ones(1, 1, rows, columns, dtype=torch.bool, device=device).tril(columns - rows)


def nats(net: Net, feature: Tensor, ids: Tensor) -> Tensor:
    """-ln p of the tokens ids int64 [B, T], a mean, each by the feature [B, T, D] of the place before it."""
    logits = F.linear(feature, net.model.embed_tokens.weight).float()
    return F.cross_entropy(logits.flatten(0, 1), ids.flatten())


def batches(stream: np.ndarray, length: int, windows: int, seed: int, device: str) -> Iterator[Tensor]:
    """int64 [windows, length + 1] of a stream, at random places, without end."""
    r = np.random.default_rng(seed)
    while True:
        at = r.integers(len(stream) - length - 1, size=windows)
        yield torch.from_numpy(np.stack([stream[x : x + length + 1] for x in at]).astype(np.int64)).to(device)
