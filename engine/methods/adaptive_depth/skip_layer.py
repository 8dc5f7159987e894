"""SkipLayer: before every sub-layer a trained router decides, token by token, whether it runs."""

from __future__ import annotations

from typing import ClassVar, cast

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.probe import Probe
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.adaptive_depth import AdaptiveDepth, DepthLane
from decodescope.engine.decoding.bases.exit_rule import routing_conflict
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.files import missing_reason
from decodescope.engine.model.heads.skip_layer import SkipRouters
from decodescope.engine.model.layers.partial_pass import NOTHING, Block, Skip
from decodescope.engine.trace.records.events import Exit


@component
class SkipLayer(AdaptiveDepth):
    """A token runs the attention or feed-forward block of a layer if the block's router score is above the threshold.

    The score is w x + b for the state x in front of the block. Otherwise the state bypasses the block. Each token chooses
    alone, in the prompt and in each row of a draft, so verifying a draft changes no choice. Skipped rows are left out of the
    products. A score costs 2 d_model FLOPs per row and sub-layer.

    `skipped_kv` decides what a layer holds of a token that skipped its attention. "propagate" holds keys and values of the
    bypassing state, without a query. "absent" holds nothing, so later tokens read fewer entries there. The paper's abstract
    does not say which of them it uses. Lossy. Routers with infinite biases are the whole model, bit for bit.

    As `early_exit.criterion`, the routed model drafts and all layers verify. In this role the prompt is read whole.

    Deviations: the paper trains router and model from the beginning. The shipped routers and the adapter `lab+skip_layer` were
    trained on a frozen model (training/skip_layer.py). The form of gate, noise and budget is [recalled]. A router here reads
    the state at unit mean square.
    """

    title = "Learning to skip (SkipLayer)"
    source = "Zeng et al. 2023, arXiv:2311.15436, abstract; the form of the gates is [recalled]"
    caution = "Sub-layers that tokens leave out change the text, and more so under a model that was not trained for it."
    routes: ClassVar[bool] = True
    reads: ClassVar[bool] = True
    tells: ClassVar[dict[str, Note]] = {
        "open": Note("series", "open", what="share of the sub-layers that the rows of the pass ran"),
        "scores": Note(
            "grid",
            "scores",
            what="of the first row in front of each sub-layer, which runs above the threshold",
        ),
    }

    threshold: float = param(
        0.0, low=-100.0, high=100.0, step=0.1, help="router score above which a token runs a sub-layer"
    )
    skipped_kv: str = param(
        "propagate",
        choices=("propagate", "absent"),
        help="keys and values of tokens that skip attention: from the passing state, or none",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return missing_reason(
            "skip_layer", spec, "the adaptive_depth confidence_exit, which needs no training"
        ) or routing_conflict(self, method)

    def attach_lane(self, lane: DepthLane) -> None:
        self._lane = lane

    def begin(self, spec: ModelSpec) -> None:
        self._layers, self._scores = spec.n_layers, list[Tensor]()
        self._routers = cast(SkipRouters, self._lane.decoder.heads["skip_layer"])

    def plan(self, position: int, feed: Feed) -> Skip:
        self._scores = []
        return NOTHING

    def rows(self, layer: int, block: Block, x: Tensor, probe: Probe | None) -> Tensor:
        score = self._routers(x[0], 2 * layer + (block == "ffn"))
        if self.shown:
            self._scores.append(score)
        chosen: Tensor = score.double() > self.threshold
        return chosen

    def take_exit(self) -> Exit | None:
        scores = torch.stack(self._scores, 1).clamp(-1e6, 1e6).tolist() if self._scores else None
        return Exit(self._layers, "router", asks="router", scores=scores, over=self.threshold)
