"""Past-future exit: leave once a classifier trusts the answer, from the states so far and a guess at those to come."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.exit_rule import ExitRule
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.base import unit_rms_norm
from decodescope.engine.model.heads.files import missing_reason
from decodescope.engine.model.heads.past_future import PastFutureHeads
from decodescope.engine.model.layers.partial_pass import Skip
from decodescope.engine.trace.records.exits import Exit, Price


@component
class PastFuture(ExitRule):
    """Exit in front of the first layer at which a trained classifier is confident that the exit's best token is the whole
    model's. The classifier looks at both sides of the exit. The past is the mean of the states that entered the layers up to
    it. The future is a guess at the mean of the states behind it; a small trained net makes this guess from the state at the
    exit. All states are scaled to unit mean square. A test costs the net and the classifier (recorded as "imitation"), not the
    head. The exit gives the pass's answer, as in all of these rules. A threshold above 1 never exits. Lossy.

    Deviations: the paper's classifiers give the answer itself, one of a few classes, from past and future together. The pass
    exits by the entropy of that answer. Here the answer is a token, so the classifier decides and the unembedding answers. The
    mean is one of the authors' ways to join the states ([recalled]: they try several). Their net imitates each future state;
    this one imitates their mean.
    """

    title = "Past-future exit"
    source = "Liao et al. 2021, 2021.naacl-main.162, sections 3.2 and 3.3 [recalled]"

    threshold: float = param(
        0.9, low=0.0, high=1.01, step=0.01, help="minimum score of the classifier to exit; above 1: never"
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return missing_reason("past_future", spec, "the adaptive_depth confidence_exit") or super().refuse(
            method, spec
        )

    def begin(self, spec: ModelSpec) -> None:
        self._net = cast(PastFutureHeads, self._lane.decoder.heads["past_future"])
        super().begin(spec)

    def plan(self, position: int, feed: Feed) -> Skip:
        self._past: Tensor | None = None  # sum of the states so far, [B, T, d]
        return super().plan(position, feed)

    @property
    def test_price(self) -> Price:
        return "imitation"

    def bound(self, layer: int) -> float:
        return self.threshold

    def leave(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> bool:
        if layer:
            self._past = unit_rms_norm(x) if self._past is None else self._past + unit_rms_norm(x)
        return super().leave(layer, x, read)

    def score(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> Tensor | None:
        assert self._past is not None
        return self._net.confidence(self._past / layer, self._net(x, layer), layer)

    def take_exit(self) -> Exit | None:
        left = super().take_exit()
        assert left is not None
        left.inner = self._net.shape["rank"]
        return left
