"""Attention of a draft head that reads along: one layer, with keys and values of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from decodescope.engine.core.spec import ModelSpec, Rope

from ...attention.attention import causal_attention, fused_attention
from ...layers.rope import RopeTable, rotate_
from ...stores.cache import LayerStore
from ..base import HeadLinear, RotaryPart, unit_rms_norm

THETA = 10_000


class LeadingStore(LayerStore):
    """The store of the first of several layers that read the same rows. What is committed or dropped here is committed or
    dropped in the stores of the `further` layers too."""

    further: list[LayerStore]

    def commit(self, rows: Sequence[int]) -> None:
        """Keep the pending rows `rows` of every layer, as `LayerStore.commit` does."""
        super().commit(rows)
        for store in self.further:
            store.commit(rows)

    def rollback(self, keep: int = 0) -> None:
        """Drop the pending rows from `keep` on, in every layer."""
        super().rollback(keep)
        for store in self.further:
            store.rollback(keep)


class DraftAttention(RotaryPart):
    """Causal attention with rotary positions; H query heads share H_kv KV heads. It reads states [B, T, width] (d, where
    `width` is 0) and gives [B, T, d]. bias: queries, keys and values have one;  theta: base of the rotation;  out_bias: the
    output has a bias."""

    joins: ClassVar[tuple[str, ...]] = ("q", "k", "v")

    def __init__(
        self,
        d: int,
        n_heads: int,
        n_kv_heads: int,
        head_dim: int,
        width: int = 0,
        bias: bool = False,
        theta: int = THETA,
        out_bias: bool = False,
    ) -> None:
        super().__init__()
        self.sizes, self.rope = (n_heads, n_kv_heads, head_dim), Rope(theta, head_dim)
        self.q = HeadLinear(width or d, n_heads * head_dim, bias=bias)
        self.k = HeadLinear(width or d, n_kv_heads * head_dim, bias=bias)
        self.v = HeadLinear(width or d, n_kv_heads * head_dim, bias=bias)
        self.out = HeadLinear(n_heads * head_dim, d, bias=out_bias)
        self.q_norm: nn.Parameter | None = None
        self.k_norm: nn.Parameter | None = None
        self.eps = 0.0  # of these two norms
        self._tables: dict[tuple[torch.dtype, torch.device], RopeTable] = {}

    def norm_queries_and_keys(self, eps: float) -> None:
        """Norm queries and keys per head before they are rotated, with `eps` in the norm."""
        self.q_norm, self.k_norm = (nn.Parameter(torch.ones(self.sizes[2])) for _ in range(2))
        self.eps = eps

    def store(self, further: Sequence[LayerStore] = ()) -> LayerStore:
        """An empty store for keys and values of one sequence, which takes those of `further` layers along."""
        H, G, D = self.sizes
        spec = ModelSpec("head", 1, H, G, D, self.out.out_features, 0, 0)
        where: dict[str, Any] = dict(dtype=self.out.weight.dtype, device=self.out.weight.device)
        if not further:
            return LayerStore(spec, 0, **where)
        lead = LeadingStore(spec, 0, **where)
        lead.further = list(further)
        return lead

    def project(self, x: Tensor, positions: Tensor, highest: int) -> tuple[Tensor, Tensor]:
        """Queries [B, H, T, D], and keys and values [2, B, H_kv, T, D], of x [B, T, width] at `positions` (int64 [B, T], none
        above `highest`)."""
        (B, T, _), (H, G, D) = x.shape, self.sizes
        qkv = self.project_all(x).view(B, T, H + 2 * G, D)
        if self.q_norm is not None:
            qkv[:, :, :H] = unit_rms_norm(qkv[:, :, :H], self.q_norm, self.eps)
            qkv[:, :, H : H + G] = unit_rms_norm(qkv[:, :, H : H + G], self.k_norm, self.eps)
        self.rotate_in_place(qkv[:, :, : H + G], positions, highest)
        kv = qkv[:, :, H:].view(B, T, 2, G, D).permute(2, 0, 3, 1, 4)
        return qkv[:, :, :H].transpose(1, 2), kv

    def rotate_in_place(self, x: Tensor, positions: Tensor, highest: int) -> None:
        """Rotate x [B, T, H, D] at `positions` (int64 [B, T], none above `highest`)."""
        key = x.dtype, x.device
        if key not in self._tables:
            self._tables[key] = RopeTable(self.rope, 256, *key)
        rotate_(x, *self._tables[key].at(positions, highest))

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
            near = self._near(positions[0], positions[0])
            if near is None:
                return self.mix(q, kv[0], kv[1], causal=True)
            return self.mix(q, kv[0], kv[1], near.tril())
        n, m = store.n, store.m
        store.append(kv, positions)
        seen = torch.ones(T, m + T, dtype=torch.bool, device=x.device).tril(m) if visible is None else visible
        mask = F.pad(seen, (n, 0), value=True) if T > 1 or visible is not None else None
        if self.window and n + m + T > self.window:
            pending = store.pending_positions()
            assert pending is not None
            near = self._near(positions[0], torch.cat([store.positions()[0, 0], pending[0]]))
            mask = near if mask is None or near is None else mask & near
        return self.mix(q, store.k, store.v, mask)

    def _near(self, rows: Tensor, entries: Tensor) -> Tensor | None:
        """bool [T, S]: which entries lie in the window of each row; int64 [T] and [S] are their positions. None: all do."""
        if not self.window or len(entries) <= self.window:
            return None
        return entries[None] > rows[:, None] - self.window
