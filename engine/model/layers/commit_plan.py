"""The moves of a commit in every layer, computed once for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from decodescope.engine.core.lazy import lazy

FEW = 2  # rows that are copied one by one: that takes no index


class CommitPlan:
    """Of the pending rows that a commit keeps those that move: `rows`, ascending, to the pending places from `first` on.

    few: these rows where they are no more than FEW, else empty
    """

    def __init__(self, first: int, rows: Sequence[int] | Tensor, device: torch.device):
        self.first = first
        self._rows = rows
        self._device = device
        self.count = rows.shape[0] if isinstance(rows, Tensor) else len(rows)
        self.few: Sequence[int] = () if isinstance(rows, Tensor) or self.count > FEW else rows
        self._slots: dict[int, Tensor] = {}

    @classmethod
    def of(cls, rows: Sequence[int], device: torch.device) -> CommitPlan | None:
        """The moves needed to keep `rows`; None: they are the first ones, and nothing moves."""
        first = next((i for i, row in enumerate(rows) if row != i), None)
        return None if first is None else cls(first, rows[first:], device)

    @lazy
    def rows(self) -> Tensor:
        """int64 [M]."""
        return torch.as_tensor(self._rows, device=self._device)

    def slots(self, committed: int) -> Tensor:
        """int64 [M]: the slots of the rows after `committed` entries; computed once for all layers with that many."""
        if committed not in self._slots:
            self._slots[committed] = self.rows + committed
        return self._slots[committed]


def are_pending(rows: Sequence[int], pending: int) -> bool:
    """True if `rows`, ascending, are among `pending` pending ones."""
    return not rows or (rows[0] >= 0 and rows[-1] < pending and len(rows) <= pending)
