"""Optimizers: Muon for the matrices of a head, AdamW for all else, and the course of their rates."""

from __future__ import annotations

import math

import torch

from decodescope.engine.model.heads.base import Head


def rate(step: int, steps: int) -> float:
    """The factor on the learning rate: up over the first twentieth, then down a half cosine."""
    rise = max(1, steps // 20)
    return min(1.0, (step + 1) / rise) * 0.5 * (1 + math.cos(math.pi * step / steps))


def optimizers(head: Head, lr: float, muon: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of linear maps, AdamW for all else.

    A residual block that begins at zero first has to undo the state that it is added to, which is a matrix of full rank. Muon's
    steps have full rank, Adam's hardly.
    """
    maps = [m.weight for m in head.modules() if isinstance(m, torch.nn.Linear)]
    rest = [p for p in head.parameters() if all(p is not m for m in maps)]
    both: list[torch.optim.Optimizer] = [
        torch.optim.Muon(maps, lr=muon, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    ]
    return both + ([torch.optim.AdamW(rest, lr=lr, betas=(0.9, 0.95), weight_decay=0.0)] if rest else [])
