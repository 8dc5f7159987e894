"""Passing: rows of a pass that a rule leaves out of a sub-layer, and what becomes of their keys and values there."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from decodescope.engine.core.probe import Probe

from .partial_pass import Block, DepthRule


@dataclass(frozen=True)
class SkippedRows:
    """Rows without attention that still leave entries among those of the rows with attention.

    kv:   float [2, B, H_kv, T - R, D], of the `others` (int64 [T - R]);  rows: int64 [R], those that run
    positions: int64 [B, T] of all
    """

    kv: Tensor
    rows: Tensor
    others: Tensor
    positions: Tensor

    def merge_kv(self, kv: Tensor) -> Tensor:
        """Keys and values float [2, B, H_kv, T, D] of all rows in their order; kv: [2, B, H_kv, R, D] of those that run."""
        both = kv.new_empty(*kv.shape[:3], self.positions.shape[1], kv.shape[4])
        return both.index_copy_(3, self.rows, kv).index_copy_(3, self.others, self.kv)


def choose_rows(rule: DepthRule, layer: int, block: Block, x: Tensor, probe: Probe | None) -> Tensor | None:
    """The rows of x [B, T, d_model] that run a sub-layer, int64 [R], ascending; None: all."""
    rows = rule.rows(layer, block, x, probe)
    if rows is None:
        return None
    if rows.dtype == torch.bool:
        rows = rows.nonzero()[:, 0]
    return None if len(rows) == x.shape[1] else rows


def complement_rows(rows: Tensor, count: int) -> Tensor:
    """Of `count` rows those that are not among `rows`, int64 each, ascending."""
    rest = torch.ones(count, dtype=torch.bool, device=rows.device)
    rest[rows] = False
    return rest.nonzero()[:, 0]
