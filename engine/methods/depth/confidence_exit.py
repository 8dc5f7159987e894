"""Confidence exit: stop reading layers once the token seems decided."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

from torch import Tensor

from decodescope.engine.core.company import Company
from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.depth import Depth
from decodescope.engine.trace.events import Exit


@component
class ConfidenceExit(Depth):
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
    caution = "The shipped models were not trained to exit early: expect broken text at low thresholds."
    tells: ClassVar[dict[str, Note]] = {
        "depth": Note("series", "left after", "layers", "that ran for this pass"),
        "sure": Note("series", "sure", what="confidence at the last test", line="threshold"),
        "threshold": Note("series", "bar", what="confidence at which the pass leaves"),
        "tests": Note("grid", "tests by layer", what="confidence in front of each layer that was asked"),
    }

    criterion: str = param("softmax_max", choices=("softmax_max", "softmax_diff", "state"), help="what is asked")
    threshold: float = param(0.9, low=0.0, high=1.01, step=0.01, help="confidence at which the pass leaves")
    first: int = param(2, low=1, high=512, unit="layers", help="layers that always run")
    interval: int = param(1, low=1, high=64, unit="layers", help="layers between two tests")
    decay: float = param(0.0, low=0.0, high=16.0, step=0.5, help="tau: the threshold relaxes to 0.9 of itself; 0: never")
    horizon: int = param(256, low=1, high=65_536, unit="tokens", help="N, the length over which it relaxes")

    def refuse(self, method: Company, spec: ModelSpec) -> str | None:
        if self.first < spec.n_layers:
            return None
        way = f"choose at most {spec.n_layers - 1}" if spec.n_layers > 1 else "choose the depth all_layers"
        return (
            f"confidence_exit.first = {self.first}: {spec.name} has {spec.n_layers} layers, so none could be left out; {way}."
        )

    def begin(self, spec: ModelSpec) -> None:
        self._layers = spec.n_layers
        self.start_pass(0)

    def start_pass(self, position: int) -> None:
        self._tests: list[list[float]] = []
        self._before: Tensor | None = None
        self._left: int | None = None
        relaxed = 0.9 + 0.1 * math.exp(-self.decay * position / self.horizon) if self.decay else 1.0
        self._bound = self.threshold * relaxed

    def leave(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> bool:
        if layer < self.first or (layer - self.first) % self.interval:
            return False
        confidence = self.confidence(x, read)
        self._before = x
        if confidence is None:
            return False
        self._tests.append([layer, confidence, self._bound])
        if confidence >= self._bound:
            self._left = layer
            return True
        return False

    def confidence(self, x: Tensor, read: Callable[[], Tensor]) -> float | None:
        """The least confidence over the rows of x [B, T, d_model]; None where the criterion has nothing to compare."""
        if self.criterion == "state":
            if self._before is None:
                return None
            return float((x.float() * self._before.float()).sum(-1).div(_norm(x) * _norm(self._before)).min())
        best = read().softmax(-1).topk(2, -1).values  # [B, T, 2]
        row = best[..., 0] if self.criterion == "softmax_max" else best[..., 0] - best[..., 1]
        return float(row.min())

    def took(self) -> Exit | None:
        return Exit(self._layers if self._left is None else self._left, self.criterion, self._tests)


def _norm(x: Tensor) -> Tensor:
    return x.float().norm(dim=-1)
