"""FREE: one shallow exit; tokens that left there run the deep layers together with the next token that does."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.exit_rule import ExitRule
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import Skip

from .shared.best_two import best_two


@component
class Free(ExitRule):
    """FREE's shallow-deep module with synchronized parallel decoding.

    A token exits before layer `min_layers`, the only exit, if its best probability there exceeds the second by the threshold.
    Its state waits in front of that layer. The next deep pass runs the layers from `min_layers` on for all waiting tokens
    together. So their keys and values are those of the whole model, not made from exit states, and the weights are read once
    for all.

    A pass that could leave more than `max_pending` tokens waiting goes deep without a test. This bounds how many tokens the
    deep layers have not seen yet. Before entries are moved or packed, and at the end of the text, the waiting tokens go on in a
    separate pass. Under a policy that reads a part of the entries (Quest), such rows read what they would have read at once.
    Several rows of one pass (a draft being verified) exit together, if the least confident row exits. A threshold above 1 never
    exits. Lossy: a token that has exited is not tested again.

    Deviations: the authors do not bound the number of waiting tokens. They exit above the threshold; this code also exits at
    it. This code leaves out their adaptive threshold (a mixture of two beta distributions), the rollback of tokens that the
    deep layers reject, the confidence by a trained classifier, and their training with layerwise distillation.

    As `early_exit.criterion`, no token waits. The verification pass runs the deep layers for all drafted tokens. A deep
    drafting pass sees nothing above `min_layers` of the tokens that exited.
    """

    title = "Shallow-deep with parallel decoding (FREE)"
    source = (
        "Bae et al. 2023, arXiv:2310.05424; raymin0223/fast_robust_early_exit, models/deploying_t5.py, "
        "util/skip_conf.py"
    )
    interval: ClassVar[int] = 512  # type: ignore[misc] # more than there are layers: one exit
    skipped_kv: ClassVar[str] = "defer"  # type: ignore[misc] # no choice: it is the method

    threshold: float = param(
        0.9,
        low=0.0,
        high=1.01,
        step=0.01,
        help="minimum lead of the best probability over the second to exit; above 1: never",
    )
    max_pending: int = param(
        8, low=1, high=512, unit="tokens", help="maximum number of tokens that may wait for the deep layers"
    )

    @property
    def defer_layer(self) -> int | None:
        return self.min_layers

    def plan(self, position: int, feed: Feed) -> Skip:
        self._room = self._lane.deferred_tokens + feed.length <= self.max_pending
        return super().plan(position, feed)

    def bound(self, layer: int) -> float:
        return self.threshold

    def score(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> Tensor | None:
        best = best_two(read())  # [B, T, 2]
        return best[..., 0] - best[..., 1]

    def leave(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> bool:
        return self._room and super().leave(layer, x, read)
