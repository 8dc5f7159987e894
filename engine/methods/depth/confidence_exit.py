"""Confidence exit: stop reading layers once the token seems decided."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.exits import ExitRule, cosine
from decodescope.engine.model.feed import Feed
from decodescope.engine.model.partial import Skip
from decodescope.engine.trace.exited import Price


@component
class ConfidenceExit(ExitRule):
    """CALM: after each layer from `first` on, every `interval` layers, ask for a confidence and leave if it reaches the
    threshold. Layers that did not run get keys and values from the exit state (state propagation), so later tokens find
    no gap, only an approximation.

    Criteria: "softmax_max", the best probability under the final norm and unembedding; "softmax_diff", best minus second;
    "state", the cosine between this layer's state and the last tested one (never at the first test). With several rows
    in one pass (a draft being verified) the least confident one decides for all. A threshold above 1 never leaves.
    A model with no more layers than `first` is refused: nothing could be left out.
    Lossy. On a model whose exits were never trained the confidence of an early layer means little.
    """

    title = "Confidence exit (CALM)"
    source = "Schuster et al. 2022, arXiv:2207.07061, sections 3.1, 3.3, 3.5"

    criterion: str = param("softmax_max", choices=("softmax_max", "softmax_diff", "state"), help="what is asked")
    threshold: float = param(0.9, low=0.0, high=1.01, step=0.01, help="confidence at which the pass leaves")
    decay: float = param(0.0, low=0.0, high=16.0, step=0.5, help="tau: the threshold relaxes to 0.9 of itself; 0: never")
    horizon: int = param(256, low=1, high=65_536, unit="tokens", help="N, the length over which it relaxes")

    @property
    def measure(self) -> str:
        return self.criterion

    @property
    def asks(self) -> Price:
        return "cosine" if self.criterion == "state" else "head"

    def plan(self, position: int, feed: Feed) -> Skip:
        self._before: Tensor | None = None
        relaxed = 0.9 + 0.1 * math.exp(-self.decay * position / self.horizon) if self.decay else 1.0
        self._bound = self.threshold * relaxed
        return super().plan(position, feed)

    def bound(self, layer: int) -> float:
        return self._bound

    def score(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> Tensor | None:
        if self.criterion == "state":
            before, self._before = self._before, x
            return None if before is None else cosine(x, before)
        best = read().softmax(-1).topk(2, -1).values  # [B, T, 2]
        return best[..., 0] if self.criterion == "softmax_max" else best[..., 0] - best[..., 1]

