"""Gating: gates trained on a frozen model: a relaxed choice of K, hard concrete gates, and their training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from decodescope.engine.core.progress import Progress

# the stretch limits of hard concrete gates, and their temperature
LOW = -0.1
HIGH = 1.1
HEAT = 0.33


def soft_top(r: Tensor, k: int, heat: float) -> Tensor:
    """A relaxed indicator of the k largest of r float64 [n] (Xie and Ermon 2019).

    It is the sum of k softmaxes at temperature `heat`; each first subtracts what the ones before it took. It sums to k; towards
    heat 0 it is the indicator.
    """
    mask, tiny = torch.zeros_like(r), torch.finfo(r.dtype).tiny
    for _ in range(k):
        p = (r / heat).softmax(0)
        mask = mask + p
        r = r + (1 - p).clamp_min(tiny).log()
    return mask


def gumbel_noise(like: Tensor, g: torch.Generator) -> Tensor:
    """Gumbel noise in that shape."""
    u = torch.rand(like.shape, generator=g, dtype=like.dtype).clamp_(1e-300, 1 - 1e-16)
    return -(-u.log()).log()


def hard_concrete(log_a: Tensor, u: Tensor | None = None, heat: float = HEAT) -> Tensor:
    """Gates in [0, 1], exactly 0 or 1 with some probability, from uniforms u in that shape; None: the gates without noise."""
    s = torch.sigmoid(log_a) if u is None else torch.sigmoid((u.log() - (1 - u).log() + log_a) / heat)
    return (s * (HIGH - LOW) + LOW).clamp(0, 1)


def probability_open(log_a: Tensor, heat: float = HEAT) -> Tensor:
    """P(z > 0) of such gates."""
    return torch.sigmoid(log_a - heat * torch.log(torch.tensor(-LOW / HIGH, dtype=log_a.dtype)))


def train_tables(
    tables: list[Tensor],
    objective: Callable[[Tensor, int], Tensor],
    rows: Tensor,
    steps: int,
    rate: float,
    phase: str,
    further: Sequence[Mapping[str, Any]] = (),
    settle: float = 0.0,
) -> list[float]:
    """Train only `tables` in place with Adam, and return the objectives.

    objective(texts int64 [1, T], step) takes one text per step, in their order. further: parameter groups of Adam with their
    own rates;  settle: share of the steps, at the end, in which the rates fall linearly to nearly 0.
    """
    groups = [{"params": tables}, *(dict(x) for x in further)]
    tables = [table for group in groups for table in group["params"]]
    for table in tables:
        table.requires_grad_(True)
    optimiser, came = torch.optim.Adam(groups, lr=rate), list[float]()
    falling = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda k: min(1.0, (steps - k) / (settle * steps)) if settle else 1.0
    )
    with torch.enable_grad(), Progress(phase, steps, "steps") as progress:
        for step in range(steps):
            at = step % len(rows)
            value = objective(rows[at : at + 1], step)
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
            falling.step()
            came.append(float(value.detach()))
            progress.add()
    for table in tables:
        table.requires_grad_(False)
    return came
