"""Attention of one layer: one fused call, a causal square, or written out so that its weights can be seen."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.probe import Probe
from decodescope.engine.kernels.choice import kernels_for

from .per_head import HeadStore

TILE = 128  # query rows with attention held at a time when only column sums are needed


class AttentionRequest(NamedTuple):
    """The attention weights of a layer that a probe asks for.

    columns: their sums over queries and group, instead of a row for each query
    """

    probe: Probe
    layer: int
    columns: bool = False


def soft_cap(x: Tensor, cap: float | None) -> Tensor:
    """cap * tanh(x / cap), which bounds x softly; x itself without a cap."""
    if cap is None:
        return x
    if x.dtype == torch.float32 and (kernels := kernels_for(x)) is not None:
        return kernels.soft_cap(x, cap)
    return (x / cap).tanh_().mul_(cap)


def upcast_half(x: Tensor) -> Tensor:
    """x in float32 where it is in a half type: choices and sums are not made in those."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def causal_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Attention [B, H_kv, g, T, D] of T queries (q in that shape) to the T keys before them and to their own."""
    if (kernels := kernels_for(q, k, v)) is not None:
        return kernels.attend(q, k, v, "causal", scale)
    y = F.scaled_dot_product_attention(
        q.flatten(1, 2), k, v, is_causal=True, scale=scale, enable_gqa=q.shape[2] > 1
    )
    return y.view(q.shape)


def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Attention [B, H_kv, g, T, D] in one kernel; mask: bool [B or 1, H_kv or 1, T, S], what a row sees; None: everything."""
    B, H, g, T, D = q.shape
    if (kernels := kernels_for(q, k, v)) is not None:
        return kernels.attend(q, k, v, mask, scale)
    # the query heads of a group become further rows of one head: no key or value is repeated
    if mask is not None:
        mask = mask[:, :, None].expand(-1, -1, g, -1, -1).flatten(2, 3)  # [b, h, g * T, S]
    return F.scaled_dot_product_attention(q.reshape(B, H, g * T, D), k, v, attn_mask=mask, scale=scale).view(
        B, H, g, T, D
    )


def attention_weights(
    q: Tensor, k: Tensor, mask: Tensor | None, scale: float, cap: float | None = None
) -> Tensor:
    """float [B, H_kv, g, T, S]: what the T queries q [B, H_kv, g, T, D] give to each of the S keys k [B, H_kv, S, D], in their
    type, which is no half one; mask as for `fused_attention`. The scores are softly capped at `cap`."""
    B, H, g, T, D = q.shape
    scores = q.reshape(B, H, g * T, D) @ k.mT  # [B, H_kv, g * T, S]
    scores = soft_cap(scores.view(B, H, g, T, -1).mul_(scale), cap)
    if mask is not None:
        scores.masked_fill_(~mask[:, :, None], -torch.inf)
    return scores.softmax(-1)


def attention_by_head(
    q: Tensor, heads: HeadStore, n: int, m: int, mask: Tensor | None, scale: float
) -> Tensor:
    """`fused_attention` where heads hold different numbers of entries, one head after the other: each reads its own slice,
    and nothing is copied. mask: as for `fused_attention`, over the n committed slots of the head that holds most and the m
    pending rows; slots that a head has not may be visible.

    One kernel over copies padded to the fullest head was the other way. On one thread of a CPU in float32, one row: 12 heads of
    width 64 with 100 to 1,200 entries took 0.48 ms by head and 0.99 ms padded (0.47 ms as even heads of the same sum), with two
    heads of 16,384 among ten of 512 it was 2.6 against 160 ms, and with four heads of width 32 and 40 to 400 entries 79 against
    120 us. Only small heads under a tree are faster padded, by a third.
    """
    B, H, g, T, D = q.shape
    y = torch.empty_like(q, memory_format=torch.contiguous_format)
    for b, h in product(range(B), range(H)):
        k, v = heads.head(b, h, m)[:, None, None]  # [1, 1, n + m, D] each: the kernel wants four axes
        seen = None
        if mask is not None:
            rows = mask[b if len(mask) > 1 else 0, h if mask.shape[1] > 1 else 0]
            seen = torch.cat([rows[:, : k.shape[2] - m], rows[:, n:]], 1).repeat(g, 1)  # [g * T, n + m]
        if (kernels := kernels_for(q, k, v)) is not None:
            seen = None if seen is None else seen.view(1, 1, g, T, -1)
            y[b, h] = kernels.attend(q[b, h][None, None], k, v, seen, scale)[0, 0]
            continue
        queries = q[b, h].reshape(1, 1, g * T, D)
        y[b, h] = F.scaled_dot_product_attention(queries, k, v, attn_mask=seen, scale=scale).view(g, T, D)
    return y


def eager_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    scale: float,
    cap: float | None = None,
    wanted: AttentionRequest | None = None,
) -> Tensor:
    """`fused_attention`, written out and tile by tile. The scores are softly capped at `cap`; a probe gets the `wanted`
    weights."""
    B, H, _, T, _ = q.shape
    columns = wanted is not None and wanted.columns
    size = T if wanted is not None and not columns else TILE
    dtype, kernels = v.dtype, kernels_for(q, k, v)
    if kernels is None:
        # half types are widened as a whole: small batched products take three times as long in them on a CPU
        q, k, v = (upcast_half(x) for x in (q, k, v))
    sums = q.new_zeros(B, H, k.shape[2], dtype=torch.float32) if columns else None
    parts = []
    for at in range(0, T, size):
        tile = q[:, :, :, at : at + size]
        seen = None if mask is None else mask[:, :, at : at + size]
        if kernels is None:
            given = attention_weights(tile, k, seen, scale, cap)
            parts.append((given.flatten(2, 3) @ v).to(dtype).view(tile.shape))
        else:
            given = tile.new_empty(*tile.shape[:4], 0 if wanted is None else k.shape[2], dtype=torch.float32)
            weights = None if wanted is None else given
            parts.append(kernels.attend(tile, k, v, seen, scale, cap, weights=weights))
        if sums is not None:
            sums += given.sum((2, 3))
        elif wanted is not None:
            wanted.probe.rows[wanted.layer] = given.float()
    if wanted is not None and sums is not None:
        wanted.probe.columns[wanted.layer] = sums
    return parts[0] if len(parts) == 1 else torch.cat(parts, 3)
