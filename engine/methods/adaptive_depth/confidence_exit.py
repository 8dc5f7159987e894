"""Confidence exit: stop running layers once the token seems decided."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.exit_rule import ExitRule, cosine_similarity
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import Skip
from decodescope.engine.trace.records.events import Exit
from decodescope.engine.trace.records.exits import Price

from .shared.best_two import best_two

CRITERIA = ("softmax_max", "softmax_diff", "state", "meta", "oracle")


@component
class ConfidenceExit(ExitRule):
    """CALM: from layer `min_layers` on, every `interval` layers, measure a confidence and exit if it reaches the threshold.

    The skipped layers get their keys and values from the exit state (state propagation). So later tokens find no missing
    entries, only approximate ones.

    Criteria: "softmax_max", the best probability under the final norm and unembedding; "softmax_diff", best minus second;
    "state", the cosine between this layer's state and the last tested one (never at the first test); "meta", the output of the
    exit's trained classifier (`heads` = "exits"). With several rows in one pass (a draft being verified), the least confident
    row decides for all. A threshold above 1 never exits. `thresholds` gives each exit its own, as conformal calibration does. A
    model with no more layers than `min_layers` is refused, because no layer could be skipped.

    Two knobs separate decision errors from cache errors, as the authors' oracles do (google/flaxformer, calm_architecture.py).
    They save no work. The criterion "oracle" first runs all layers in a separate pass. It then exits in front of the first
    layer that gives the same best token. No decision is wrong, so the text changes only because later tokens read entries made
    from exit states. With `kv_source` = "full", the layers above an exit still run for their keys and values. The cache is
    right, so the text changes only through decisions. Oracle and full entries together are greedy decoding.

    Lossy: the shipped `lab` was trained to answer at every exit, but an early answer still differs from the last layer's. The
    authors choose a threshold that keeps the difference below a bound, as `decodescope calibrate` does. With `--how`, that
    command also calibrates each exit for a single prediction, as in CATs (`engine/bench/calibration/scores.py`).
    """

    title = "Confidence exit (CALM)"
    source = "Schuster et al. 2022, arXiv:2207.07061, sections 3.1, 3.3, 3.5; google/flaxformer, calm_t5"

    criterion: str = param(
        "softmax_max",
        choices=CRITERIA,
        help="confidence measure; meta needs trained exits, oracle runs all layers first",
    )
    threshold: float = param(
        0.9, low=0.0, high=1.01, step=0.01, help="minimum confidence to exit; above 1: never"
    )
    threshold_decay: float = param(
        0.0,
        low=0.0,
        high=16.0,
        step=0.5,
        help="how fast the threshold relaxes to 0.9 of its value (tau); 0: it stays as it is",
    )
    decay_horizon: int = param(
        256, low=1, high=65_536, unit="tokens", help="text length over which the threshold relaxes (N)"
    )
    thresholds: tuple[float, ...] = param(
        (),
        low=0.0,
        high=1.01,
        help="thresholds of the exits, the last one for all further exits; empty: one for all",
        least=0,
    )
    kv_source: str = param(
        "own",
        choices=("own", "full"),
        help="keys and values above an exit: from its state (own), or by running layers (full)",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.criterion == "meta" and self.heads == "none":
            return (
                f"{self.name}.criterion = meta asks trained exits: set heads = exits, or choose softmax_max."
            )
        if self.criterion == "oracle" and method.adaptive_depth is not self:
            return f"{self.name}.criterion = oracle reads all layers first, so it drafts nothing sooner; choose softmax_max."
        return super().refuse(method, spec)

    @property
    def measure_name(self) -> str:
        return self.criterion

    @property
    def test_price(self) -> Price:
        return {"state": "cosine", "meta": "classifier"}.get(self.criterion, "head")  # type: ignore[return-value] # of Price

    @property
    def whole(self) -> bool:
        return self.kv_source == "full"

    def plan(self, position: int, feed: Feed) -> Skip:
        self._before: Tensor | None = None
        self._relaxed = (
            0.9 + 0.1 * math.exp(-self.threshold_decay * position / self.decay_horizon)
            if self.threshold_decay
            else 1.0
        )
        self._wanted = self._full_depth_tokens(feed) if self.criterion == "oracle" else None
        return super().plan(position, feed)

    def _full_depth_tokens(self, feed: Feed) -> Tensor:
        """The best token of each row when all layers run, int64 [B, T]. The pass leaves nothing in the cache."""
        logits = self._lane.forward(replace(feed, logits="all"), "search")
        self._lane.rollback()
        return logits.argmax(-1)

    def bound(self, layer: int) -> float:
        return (
            1.0
            if self.criterion == "oracle"
            else self.exit_bound(layer, self.thresholds, self.threshold) * self._relaxed
        )

    def score(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> Tensor | None:
        if self.criterion == "state":
            before, self._before = self._before, x
            return None if before is None else cosine_similarity(x, before)
        if self.criterion == "meta":
            assert self._heads is not None
            return self._heads.confidence(x, layer)
        if self._wanted is not None:
            return (read().argmax(-1) == self._wanted).float()
        best = best_two(read())  # [B, T, 2]
        return best[..., 0] if self.criterion == "softmax_max" else best[..., 0] - best[..., 1]

    def take_exit(self) -> Exit | None:
        left = super().take_exit()
        if left is not None and self._wanted is not None:
            left.whole = self._wanted[0].tolist()
        return left
