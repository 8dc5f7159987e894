"""Groups: the query heads that read one KV head, where a layer was cut and they are not as many for each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby

import torch
from torch import Tensor

from .attention import causal_attention, fused_attention

Groups = tuple[int, ...]  # by KV head, how many query heads read it


@lru_cache(maxsize=256)
def _head_places(groups: Groups, device: torch.device) -> tuple[Tensor, Tensor]:
    """int64 [H_kv * g]: the query head at each place of a table as wide as the widest group; a smaller group repeats its last
    head. int64 [H]: the place of each head."""
    widest, firsts = max(groups), [sum(groups[:k]) for k in range(len(groups))]
    stands = [first + min(j, n - 1) for first, n in zip(firsts, groups, strict=True) for j in range(widest)]
    at = [k * widest + j for k, n in enumerate(groups) for j in range(n)]
    return torch.tensor(stands, device=device), torch.tensor(at, device=device)


def pad_groups(groups: Groups, q: Tensor) -> Tensor:
    """Queries [B, T, H_kv * g, D] of [B, T, H, D], g being the widest group: smaller ones show their last head again. So who
    looks at attention by KV head sees as many rows of each."""
    return q.index_select(2, _head_places(groups, q.device)[0])


def unpad_groups(groups: Groups, y: Tensor) -> Tensor:
    """The heads that there are, [B, T, H, D], of [B, T, H_kv * g, D]."""
    return y.index_select(2, _head_places(groups, y.device)[1])


def equal_group_runs(groups: Groups) -> Iterator[tuple[slice, int]]:
    """Runs of adjacent KV heads with equally many query heads, and that number."""
    first = 0
    for size, run in groupby(groups):
        stop = first + len(list(run))
        yield slice(first, stop), size
        first = stop


def attention_by_group_size(
    groups: Groups, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, *, causal: bool
) -> Tensor:
    """Attention [B, H_kv, g, T, D] of the existing heads, run by run, for q in that shape as `pad_groups` makes it; causal:
    of a square. Keys and values [B, H_kv, S, D] are read in place; nothing is computed at the places without a head."""
    y = torch.zeros_like(q, memory_format=torch.contiguous_format)
    for at, size in equal_group_runs(groups):
        own = q[:, at, :size], k[:, at], v[:, at]
        if causal:
            y[:, at, :size] = causal_attention(*own, scale)
        else:
            y[:, at, :size] = fused_attention(
                *own, mask if mask is None or mask.shape[1] == 1 else mask[:, at], scale
            )
    return y
