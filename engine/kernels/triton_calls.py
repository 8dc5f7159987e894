"""Triton's kernels over tensors: what a forward pass calls in the place of torch's operators, as `tensors` does for `rows`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal

import torch
import triton
from torch import Tensor

from . import triton_kernels as kernels

NAME = "triton"
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
READS_PACKED = False  # matrices of few bits are unpacked whole for each product

# the block of every product, and how many visible entries of the cache attention reads at a time; the interpreter is slow
ROWS, OUTPUTS, DEPTH, ENTRIES = (8, 32, 32, 32) if INTERPRETED else (32, 64, 64, 64)
COLUMNS = 512  # numbers of a task that goes number by number
LEAST = 1 if INTERPRETED else 16  # rows and width of the smallest product of tensor cores


def pass_program(spec: Any, layers: Sequence[Any]) -> None:
    """There is no program of all layers: kernels are called one by one."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """`tensors.linear`: x [..., in] times weight [out, in], transposed; plus bias [out]. -> [..., out] of `dtype`"""
    if weight.stride(1) != 1:
        weight = weight.contiguous()
    n, k = weight.shape
    y = x.new_empty(*x.shape[:-1], n, dtype=dtype)
    if y.numel():
        x, rows = x.contiguous(), y.numel() // n
        grid = (-(-rows // ROWS), -(-n // OUTPUTS))
        shape = (n, k, weight.stride(0), INTERPRETED, ROWS, OUTPUTS, DEPTH)
        kernels.product[grid](x, weight, bias, y, rows, *shape, num_warps=4)
    return y


def packed_linear(*_: Any) -> Tensor:
    """Nobody calls it: `READS_PACKED` is False."""
    raise AssertionError("matrices of few bits are unpacked before")


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """`tensors.rms_norm`: x [..., d] / sqrt(mean(x^2) + eps) * weight [d]."""
    d, x = x.shape[-1], x.contiguous()
    y = torch.empty_like(x)
    if y.numel():
        kernels.rms_norm[(x.numel() // d,)](x, weight, y, eps, d, triton.next_power_of_2(d), num_warps=4)
    return y


def rotate_(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """`tensors.rotate_`: the leading dim features of x [..., heads, D] in place; cos, sin [..., 1, dim]."""
    if not x.numel():
        return
    *_, heads, width = x.shape
    dim = cos.shape[-1]
    rows = x.numel() // heads // width
    flat = x.flatten(0, -3)  # a view if the rows have one stride, else a copy
    flat = flat if flat.stride(-1) == 1 else flat.contiguous()
    table = [part.expand(*x.shape[:-2], 1, dim).reshape(rows, dim).contiguous() for part in (cos, sin)]
    shape = (flat.stride(0), flat.stride(1), dim // 2, triton.next_power_of_2(dim // 2))
    kernels.rotate[(rows, heads)](flat, *table, *shape, num_warps=1)
    if flat.data_ptr() != x.data_ptr():
        x.copy_(flat.view(x.shape))


def apply_gate(both: Tensor, activation: str) -> Tensor:
    """`tensors.apply_gate`: activation(gate) * up for both [..., 2 * F], the gate first: [..., F]."""
    width, both = both.shape[-1] // 2, both.contiguous()
    y = both.new_empty(*both.shape[:-1], width)
    if y.numel():
        grid = (y.numel() // width, -(-width // COLUMNS))
        kernels.gate[grid](both, y, width, activation == "silu", COLUMNS, num_warps=4)
    return y


def soft_cap(x: Tensor, cap: float) -> Tensor:
    """`tensors.soft_cap`: cap * tanh(x / cap) of x, float32."""
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        kernels.soft_cap[(-(-x.numel() // COLUMNS),)](x, y, x.numel(), cap, COLUMNS, num_warps=4)
    return y


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | Literal["causal"] | None,
    scale: float,
    cap: float | None = None,
    *,
    weights: Tensor | None = None,
    sums: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """`tensors.attend`: attention [B, H_kv, g, T, D] of queries in that shape over keys and values [B, H_kv, S, D]."""
    B, H, g, T, D = q.shape
    S = k.shape[2]
    y = q.new_empty(B, T, H, g, D, dtype=torch.float32 if sums is not None else q.dtype).permute(
        0, 2, 3, 1, 4
    )
    if not y.numel():
        return y
    if isinstance(mask, Tensor) and mask.dim() == 5 and mask.shape[2] > 1:
        return _attend_by_query_head(q, k, v, mask, scale, cap, weights, sums)
    q, k, v = (x if x.stride(-1) == 1 or D == 1 else x.contiguous() for x in (q, k, v))
    order, counts = _visible_entries(mask, T, S, q.device)
    order = order.expand(B, H, T, S)
    counts = counts.expand(B, H, T)
    totals, maxima = sums or q.new_empty(2, B, H, g, T, dtype=torch.float32).unbind(0)
    if weights is not None:
        weights.zero_()
    strides = (*q.stride()[:4], *k.stride()[:3], *v.stride()[:3], *order.stride()[:3], *counts.stride())
    numbers = (float(scale), float(cap or 0), int(sums is None), H, g, T, S)
    shape = (D, max(LEAST, triton.next_power_of_2(D)), max(LEAST, triton.next_power_of_2(g)), ENTRIES)
    tensors = (q, k, v, order, counts, y, totals, maxima, weights)
    kernels.attention[(B * H * T,)](*tensors, *numbers, *strides, *shape, INTERPRETED, num_warps=4)
    return y


def _visible_entries(
    mask: Tensor | str | None, rows: int, entries: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The places of what each row sees in their order, int32 [B or 1, H_kv or 1, T or 1, S], and how many they are, int32
    [B or 1, H_kv or 1, T or 1]. So a row has the same blocks whatever lies between its entries."""
    if isinstance(mask, Tensor):
        mask = mask[:, :, 0] if mask.dim() == 5 else mask
        order = torch.argsort(mask.to(torch.int8), dim=-1, descending=True, stable=True)
        return order.int().contiguous(), mask.sum(-1, dtype=torch.int32)
    order = torch.arange(entries, dtype=torch.int32, device=device)[None, None, None]
    first = entries if mask is None else entries - rows + 1
    return order, torch.arange(first, entries + 1, dtype=torch.int32, device=device)[None, None]


def _attend_by_query_head(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor,
    scale: float,
    cap: float | None,
    weights: Tensor | None,
    sums: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """`attend` where the query heads of a group see different entries: mask bool [B or 1, H_kv or 1, g, T, S]."""
    parts = []
    for j in range(q.shape[2]):
        own = slice(j, j + 1)
        some = None if weights is None else torch.empty_like(weights[:, :, own])
        pair = None if sums is None else (sums[0][:, :, own].clone(), sums[1][:, :, own].clone())
        parts.append(attend(q[:, :, own], k, v, mask[:, :, j], scale, cap, weights=some, sums=pair))
        if weights is not None and some is not None:
            weights[:, :, own] = some
        if sums is not None and pair is not None:
            for whole, part in zip(sums, pair, strict=True):
                whole[:, :, own] = part
    return torch.cat(parts, 2)
