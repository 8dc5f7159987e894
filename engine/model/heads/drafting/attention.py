"""Attention of a draft head that reads along: one layer, with keys and values of its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec, Rope

from ...attention.attention import causal_attention, fused_attention
from ...layers.rope import RopeTable, rotate_
from ...stores.cache import LayerStore
from ..base import HeadLinear, RotaryPart

THETA = 10_000


class DraftAttention(RotaryPart):
    """Causal attention with rotary positions; H query heads share H_kv KV heads. It reads states [B, T, width] (d, where
    `width` is 0) and gives [B, T, d]. bias: queries, keys and values have one;  theta: base of the rotation."""

    joins = ("q", "k", "v")

    def __init__(
        self,
        d: int,
        n_heads: int,
        n_kv_heads: int,
        head_dim: int,
        width: int = 0,
        bias: bool = False,
        theta: int = THETA,
    ) -> None:
        super().__init__()
        self.sizes, self.rope = (n_heads, n_kv_heads, head_dim), Rope(theta, head_dim)
        self.q = HeadLinear(width or d, n_heads * head_dim, bias=bias)
        self.k = HeadLinear(width or d, n_kv_heads * head_dim, bias=bias)
        self.v = HeadLinear(width or d, n_kv_heads * head_dim, bias=bias)
        self.out = HeadLinear(n_heads * head_dim, d, bias=False)
        self._tables: dict[tuple[torch.dtype, torch.device], RopeTable] = {}

    def store(self) -> LayerStore:
        """An empty store for keys and values of one sequence."""
        H, G, D = self.sizes
        spec = ModelSpec("head", 1, H, G, D, self.out.out_features, 0, 0)
        return LayerStore(spec, 0, dtype=self.out.weight.dtype, device=self.out.weight.device)

    def project(self, x: Tensor, positions: Tensor, highest: int) -> tuple[Tensor, Tensor]:
        """Queries [B, H, T, D], and keys and values [2, B, H_kv, T, D], of x [B, T, width] at `positions` (int64 [B, T], none
        above `highest`)."""
        (B, T, _), (H, G, D) = x.shape, self.sizes
        key = x.dtype, x.device
        if key not in self._tables:
            self._tables[key] = RopeTable(self.rope, 256, *key)
        qkv = self.project_all(x).view(B, T, H + 2 * G, D)
        rotate_(qkv[:, :, : H + G], *self._tables[key].at(positions, highest))
        kv = qkv[:, :, H:].view(B, T, 2, G, D).permute(2, 0, 3, 1, 4)
        return qkv[:, :, :H].transpose(1, 2), kv

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """The output [B, T, d] for queries [B, H, T, D] over keys and values [B, H_kv, S, D]; mask: bool [T, S]."""
        grouped, scale = q.unflatten(1, (self.sizes[1], -1)), q.shape[-1] ** -0.5
        if causal:
            y = causal_attention(grouped, k, v, scale)
        else:
            y = fused_attention(grouped, k, v, None if mask is None else mask[None, None], scale)
        return self.out(y.flatten(1, 2).transpose(1, 2).flatten(2))

    def forward(
        self, x: Tensor, start: int, store: LayerStore | None = None, depth: int | Sequence[int] = 0,
        visible: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """The block's output [B, T, d] for x [B, T, width].

        Without a store the rows are whole texts from position `start` on. With one they are appended to it as pending: a
        chain that goes on at `start`, or, if `visible` (bool [T, m + T]: which pending entries each row sees) is
        given, siblings that are all at position start + depth, or each at its own of T depths.
        """
        B, T, _ = x.shape
        deepest = depth if isinstance(depth, int) else max(depth)
        if visible is None:
            positions = torch.arange(start, start + T, device=x.device)[None].expand(B, T)
        elif isinstance(depth, int):
            positions = torch.full((B, T), start + depth, device=x.device)
        else:
            positions = (start + torch.tensor(depth, device=x.device))[None].expand(B, T)
        q, kv = self.project(x, positions, start + max(T - 1, deepest))
        if store is None:
            return self.mix(q, kv[0], kv[1], causal=True)
        n, m = store.n, store.m
        store.append(kv, positions)
        seen = torch.ones(T, m + T, dtype=torch.bool, device=x.device).tril(m) if visible is None else visible
        mask = F.pad(seen, (n, 0), value=True) if T > 1 or visible is not None else None
        return self.mix(q, store.k, store.v, mask)
