"""Patience: leave once the answer has stayed the same for some exits."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.exit_rule import ExitRule
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import Skip


@component
class Patience(ExitRule):
    """PABEE: count how many exits in a row had the same best token as the exit before.

    A change sets the count to 0. Exit when the count reaches `patience`. The first comparison is at the second exit. A patience
    of 0 runs all layers, as in the authors' code. The rule needs no probability, but each exit still unembeds its state. Lossy.
    """

    title = "Patience (PABEE)"
    source = "Zhou et al. 2020, arXiv:2006.04152, section 3.2; JetRunner/PABEE, pabee/modeling_albert.py"

    patience: int = param(
        2,
        low=0,
        high=64,
        unit="exits",
        help="exits in a row that must name the same token as the one before; 0: never exit",
    )

    def plan(self, position: int, feed: Feed) -> Skip:
        self._before: Tensor | None = None  # best token of each row at the exit before, int64 [B, T]
        self._count: Tensor | None = None
        return super().plan(position, feed)

    def bound(self, layer: int) -> float:
        return self.patience

    def score(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> Tensor | None:
        if self.patience == 0:
            return None
        before, self._before = self._before, read().argmax(-1)
        if before is None:
            self._count = torch.zeros_like(self._before)
            return None
        assert self._count is not None
        self._count = torch.where(self._before == before, self._count + 1, 0)
        return self._count
