"""Subsets: choose the set to score next, by a Gaussian process over those already scored."""

from __future__ import annotations

import torch
from torch import Tensor


def propose_subset(seen: Tensor, scores: list[float], used: Tensor, window: int) -> Tensor | None:
    """The unseen set one exchange away from `used` (bool [n]) with the highest upper confidence bound; None if all were seen.

    The bound is that of a Gaussian process over `seen` (bool [R, n]) and their `scores`.

    The kernel falls as exp(-d / l) with the number d of sub-layers in which two sets differ. l is the mean difference of two
    random sets of this size. A score over `window` places has a variance of at most 1 / (4 window); this is the noise.
    """
    n, count = len(used), int(used.sum())
    out, come = (
        x.flatten() for x in torch.meshgrid(used.nonzero()[:, 0], (~used).nonzero()[:, 0], indexing="ij")
    )
    pool, rows = used.repeat(len(out), 1), torch.arange(len(out))
    pool[rows, out], pool[rows, come] = False, True
    distance = _count_differences(pool, seen)  # [P, R]
    new = distance.amin(1) > 0
    if not bool(new.any()):
        return None
    pool, distance = pool[new], distance[new]
    y = torch.tensor(scores, dtype=torch.float64)
    noise = 0.25 / window
    reach = 2 * count * (n - count) / n
    signal = max(float(y.var(correction=0)), noise)
    near = signal * torch.exp(-distance / reach)
    among = signal * torch.exp(-_count_differences(seen, seen) / reach) + noise * torch.eye(
        len(y), dtype=torch.float64
    )
    weights = torch.cholesky_solve(near.mT, torch.linalg.cholesky(among)).mT  # [P, R]
    mean = y.mean() + weights @ (y - y.mean())
    deviation = (signal - (weights * near).sum(1)).clamp(min=0).sqrt()
    return pool[int((mean + 2.5 * deviation).argmax())]


def _count_differences(a: Tensor, b: Tensor) -> Tensor:
    """float64 [A, B]: in how many places the rows of a (bool [A, n]) and b (bool [B, n]) differ."""
    x, y = a.double(), b.double()
    return x @ (1 - y).mT + (1 - x) @ y.mT
