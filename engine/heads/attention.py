"""Attention of a draft head that reads along: one layer, with keys and values of its own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..cache import LayerStore
from ..rope import RopeTable, rotate_
from ..spec import ModelSpec, Rope

THETA = 10_000.0


class Attention(nn.Module):
    """Causal attention with rotary positions over states [B, T, d], without biases; H query heads share H_kv KV heads."""

    def __init__(self, d: int, n_heads: int, n_kv_heads: int, head_dim: int) -> None:
        super().__init__()
        self.sizes = (n_heads, n_kv_heads, head_dim)
        self.q = nn.Linear(d, n_heads * head_dim, bias=False)
        self.k = nn.Linear(d, n_kv_heads * head_dim, bias=False)
        self.v = nn.Linear(d, n_kv_heads * head_dim, bias=False)
        self.out = nn.Linear(n_heads * head_dim, d, bias=False)
        self._tables: dict[tuple[torch.dtype, torch.device], RopeTable] = {}

    def store(self) -> LayerStore:
        """An empty store for keys and values of one sequence."""
        H, G, D = self.sizes
        spec = ModelSpec("head", 1, H, G, D, self.q.in_features, 0, 0)
        return LayerStore(spec, 0, dtype=self.q.weight.dtype, device=self.q.weight.device)

    def _turn(self, x: Tensor, positions: Tensor, highest: int) -> Tensor:
        key = x.dtype, x.device
        if key not in self._tables:
            self._tables[key] = RopeTable(Rope(THETA, self.sizes[2]), 256, *key)
        rotate_(x, *self._tables[key].at(positions, highest))
        return x.transpose(1, 2)  # [B, T, heads, D] -> [B, heads, T, D]

    def forward(
        self, x: Tensor, start: int, store: LayerStore | None = None, depth: int = 0, visible: Tensor | None = None
    ) -> Tensor:
        """The block's output [B, T, d] for x [B, T, d].

        Without a store the rows are whole texts from position `start` on. With one they are appended to it as pending: a
        chain that goes on at `start`, or, where `visible` (bool [T, m + T]: which pending entries each row sees) is
        given, siblings that all stand at position start + depth.
        """
        (B, T, _), (H, G, D) = x.shape, self.sizes
        if visible is None:
            positions = torch.arange(start, start + T, device=x.device)[None].expand(B, T)
        else:
            positions = torch.full((B, T), start + depth, device=x.device)
        highest = start + max(T - 1, depth)
        q = self._turn(self.q(x).view(B, T, H, D), positions, highest)
        k = self._turn(self.k(x).view(B, T, G, D), positions, highest)
        v = self.v(x).view(B, T, G, D).transpose(1, 2)
        if store is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=G < H)
        else:
            n, m = store.n, store.m
            store.append(torch.stack([k, v]), positions)
            seen = torch.ones(T, m + T, dtype=torch.bool, device=x.device).tril(m) if visible is None else visible
            mask = F.pad(seen, (n, 0), value=True) if T > 1 or visible is not None else None
            y = F.scaled_dot_product_attention(q, store.k, store.v, attn_mask=mask, enable_gqa=G < H)
        return self.out(y.transpose(1, 2).reshape(B, T, H * D))
