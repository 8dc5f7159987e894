"""Magic Pyramid: rows are pruned between layers, and the pass ends once the answer is confident."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.exit_rule import ExitRule, routing_conflict
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import Block, Skip

from .shared.entropy import entropy
from .shared.row_pruner import RowPruner, attention_needs, pruning_layer_conflict


@component
class MagicPyramid(ExitRule):
    """The work shrinks in both directions.

    In front of each layer of `pruning_layers`, the rows that draw the least attention leave, as under `row_pruning`. The pass
    ends at the first exit at which the entropy of the answer, as a share of its maximum, is below the threshold. This is the
    test of `normalized_entropy_exit` (FastBERT's). A threshold of 0 with `keep_share` = 1 is the whole model, bit for bit. On a
    decoder, prompts lose rows, and passes of the answer end early. Lossy.

    Deviations: for each layer, the authors train the score at which a token leaves ([recalled]: as LTP does), and train the
    exits with it. Here a fixed share goes on, by a rule.
    """

    title = "Magic Pyramid"
    source = "He et al. 2021, arXiv:2111.00230"
    below: ClassVar[bool] = True
    routes: ClassVar[bool] = True
    reads: ClassVar[bool] = True
    skipped_kv: ClassVar[str] = "absent"  # type: ignore[misc] # no choice: rows that left have none

    threshold: float = param(
        0.1,
        low=0.0,
        high=1.01,
        step=0.01,
        help="entropy, as a share of log V, below which the pass exits; 0: never",
    )
    keep_share: float = param(
        0.5,
        low=0.01,
        high=1.0,
        step=0.05,
        help="share of the remaining rows that continues at each pruning layer; 1: all",
    )
    pruning_layers: tuple[int, ...] = param(
        (2,), low=1, high=511, unit="layers", help="layers before which rows are pruned"
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return (
            pruning_layer_conflict(self.name, self.pruning_layers, spec)
            or routing_conflict(self, method)
            or super().refuse(method, spec)
        )

    @property
    def needs(self) -> Needs:
        return attention_needs(self.keep_share, self.pruning_layers)

    def begin(self, spec: ModelSpec) -> None:
        super().begin(spec)
        self._attended = RowPruner(self.keep_share, self.pruning_layers, spec.causal)

    def plan(self, position: int, feed: Feed) -> Skip:
        self._attended.begin(feed)
        self._prompt = position < 0
        return super().plan(position, feed)

    def rows(self, layer: int, block: Block, x: Tensor, probe: Probe | None) -> Tensor | None:
        return self._attended.select(layer, x.shape[1], probe) if block == "attn" else self._attended.left

    def leave(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> bool:
        return not self._prompt and super().leave(layer, x, read)

    def bound(self, layer: int) -> float:
        return self.threshold

    def score(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> Tensor | None:
        nats, most = entropy(read(), "vocabulary")
        return nats / most
