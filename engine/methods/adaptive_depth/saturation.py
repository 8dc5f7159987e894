"""Saturation: leave once the layers hardly move the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.exit_rule import ExitRule
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import Skip
from decodescope.engine.trace.records.exits import Price


@component
class Saturation(ExitRule):
    """Exit in front of the first exit at which the state x has moved by less than the threshold since the exit before.

    The movement is |x - x'| / |x|. It is the Euclidean form of CALM's cosine test (`confidence_exit`, criterion "state"); a
    state that only grows does not satisfy it. Nothing is unembedded, so a test costs next to nothing. There is no test at the
    first exit. A threshold of 0 never exits. Lossy. The form comes from this family of methods, not from one paper: [recalled].
    """

    title = "Saturation exit"
    source = 'after Schuster et al. 2022, arXiv:2207.07061, section 3.5, "hidden-state saturation"'
    below: ClassVar[bool] = True

    threshold: float = param(
        0.2,
        low=0.0,
        high=2.0,
        step=0.01,
        help="relative change of the state below which the pass exits; 0: never",
    )

    @property
    def test_price(self) -> Price:
        return "cosine"

    def plan(self, position: int, feed: Feed) -> Skip:
        self._before: Tensor | None = None
        return super().plan(position, feed)

    def bound(self, layer: int) -> float:
        return self.threshold

    def score(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> Tensor | None:
        before, self._before = self._before, x
        return None if before is None else (x - before).float().norm(dim=-1) / x.float().norm(dim=-1)
