"""Row pruning: the rows that draw the least attention leave between layers."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.adaptive_depth import AdaptiveDepth
from decodescope.engine.decoding.bases.exit_rule import routing_conflict
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import NOTHING, Block, Skip

from .shared.row_pruner import RowPruner, attention_needs, pruning_layer_conflict


@component
class RowPruning(AdaptiveDepth):
    """A text becomes shorter from layer to layer.

    In front of each layer of `pruning_layers`, the share `keep_share` of the remaining rows goes on: those that drew the most
    attention in the layer below. The other rows keep their state and take no further part in products. They leave no keys and
    values above (skipped_kv "absent"), so the layers above also read fewer entries. Rows with requested logits never leave; on
    an encoder these are the masked positions. With `keep_share` = 1 it is the whole model, bit for bit. Lossy, without
    training.

    The authors work on encoders. TR-BERT selects at a few layers, with a policy that reinforcement learning trains on a task.
    Here a rule selects, by PoWER-BERT's score: the sum of attention over heads and rows. Their code leaves out what a row pays
    to itself; here that counts too. For tasks that label tokens, both papers hand the frozen states of rows that left to the
    last layer; here nothing reads them. The decoder form is ours: it prunes the prompt, so every layer above holds fewer of its
    entries. The tokens of the answer, one per pass, run all layers.
    """

    title = "Row pruning by attention (TR-BERT)"
    source = (
        "Ye et al. 2021, arXiv:2105.11618; the score: Goyal et al. 2020, PoWER-BERT, arXiv:2001.08950; IBM/PoWER-BERT, "
        "model/model.py"
    )
    caution = "Rows that leave are not read further up, which changes the text; nothing was trained for it."
    routes: ClassVar[bool] = True
    reads: ClassVar[bool] = True
    skipped_kv = "absent"

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
        return pruning_layer_conflict(self.name, self.pruning_layers, spec) or (
            routing_conflict(self, method) if self.keep_share < 1 else None
        )

    @property
    def needs(self) -> Needs:
        return attention_needs(self.keep_share, self.pruning_layers)

    def begin(self, spec: ModelSpec) -> None:
        self._attended = RowPruner(self.keep_share, self.pruning_layers, spec.causal)

    def plan(self, position: int, feed: Feed) -> Skip:
        self._attended.begin(feed)
        return NOTHING

    def rows(self, layer: int, block: Block, x: Tensor, probe: Probe | None) -> Tensor | None:
        return self._attended.select(layer, x.shape[1], probe) if block == "attn" else self._attended.left
