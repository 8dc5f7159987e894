"""FREE: one shallow exit; tokens that left there go on together with the next one that goes deep."""

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
    """FREE's shallow-deep module with synchronized parallel decoding. A token leaves before layer `first`, the one exit, if
    its best probability there is above the second by the threshold. Its state waits in front of that layer. The next pass
    that goes deep takes all that wait along and runs the layers from `first` on for them together, so their keys and values
    are those of the whole model, not made of exit states; weights are read once for all.

    A pass that could leave more than `max_pending` tokens waiting asks nothing and goes deep, which bounds how many tokens the
    deep layers do not see yet. Before entries are moved or packed, and at the end of the text, what waits goes on in a pass of
    its own. Under a policy that reads a part of the entries (Quest) such rows read what they would have read at once. Several
    rows of one pass (a draft being verified) leave together, if the least sure one does. A threshold above 1 never leaves.
    Lossy: a token that has left is not judged again.

    Deviations: the authors have no bound on what waits; they leave above the threshold, here at it as well. Left out are their
    adaptive threshold (a mixture of two beta laws), the rollback of tokens that the deep layers disown, the confidence by a
    trained classifier, and their training with layerwise distillation.

    As `early_exit.criterion` nothing waits: the check runs the deep layers for all drafted tokens, and a deep drafting pass
    sees nothing above `first` of those that left.
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
