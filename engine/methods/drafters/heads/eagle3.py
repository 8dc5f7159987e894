"""EAGLE-3: EAGLE-2's tree, on a layer that reads three depths of the target and predicts tokens, not features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from decodescope.engine.core.component import component
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.heads.drafting.draft_vocabulary import fused_layers
from decodescope.engine.model.heads.drafting.eagle3 import Eagle3Layer
from decodescope.engine.model.heads.drafting.pairs import PairHead

from ..shared.beam_tree import BeamTree


@component
class Eagle3(BeamTree):
    """The tree of `eagle2`, with another layer.

    Its feature of a token is a linear map of the states that enter a low, a middle and a high layer of the target (see
    `engine/model/heads/drafting/eagle3.py`). EAGLE guesses features and is trained to approximate the true ones. This layer is
    trained on the tokens alone, on its own outputs of several levels. So the output that it feeds back need not be a feature.
    The layer has a draft vocabulary, the most frequent ids, and gives all others the probability 0. Nodes are chosen without
    chance: lossless with any draft vocabulary.

    The head's file may name other layers, any number of them.

    If a depth rule exits the pass early, the states of the high layer are missing; such methods are refused.
    """

    title = "EAGLE-3"
    source = "Li et al. 2025, arXiv:2503.01840, section 3; SafeAILab/EAGLE, eagle/model/cnets.py, eagle/traineagle3"
    needs: ClassVar[Needs] = Needs()
    reads: ClassVar[str] = "eagle3"

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if not method.adaptive_depth.exact:
            rule = method.adaptive_depth.name
            return f"eagle3 reads states of all depths, {rule} may leave before; choose adaptive_depth all_layers."
        return super().refuse(method, spec)

    def pass_needs(self, spec: ModelSpec, heads: Mapping[str, Any]) -> Needs:
        layer = heads.get(self.reads)
        places = (
            layer.places(spec.n_layers) if isinstance(layer, Eagle3Layer) else fused_layers(spec.n_layers)
        )
        return Needs(hidden=frozenset(places))

    def feature_places(self, spec: ModelSpec, layer: PairHead) -> Sequence[int | str]:
        return cast(Eagle3Layer, layer).places(spec.n_layers)
