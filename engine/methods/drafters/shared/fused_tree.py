"""FusedTree: base of drafters with a net that reads states of several depths of the target at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from decodescope.engine.core.component import component
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.heads.drafting.draft_vocabulary import fused_layers
from decodescope.engine.model.heads.drafting.pairs import PairHead

from .beam_tree import BeamTree


@component
class FusedTree(BeamTree):
    """EAGLE-2's tree over a net that makes a feature of the states that enter several layers of the target.

    The head's file may name other layers than the usual three, any number of them. If a depth rule exits the pass early, the
    states of the high layer are missing; such methods are refused.
    """

    needs: ClassVar[Needs] = Needs()

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if not method.adaptive_depth.exact:
            rule = method.adaptive_depth.name
            return f"{self.name} reads states of all depths, {rule} may leave before; choose adaptive_depth all_layers."
        return super().refuse(method, spec)

    def pass_needs(self, spec: ModelSpec, heads: Mapping[str, Any]) -> Needs:
        layer = heads.get(self.reads)
        places = layer.places(spec.n_layers) if isinstance(layer, PairHead) else fused_layers(spec.n_layers)
        return Needs(hidden=frozenset(places))

    def feature_places(self, spec: ModelSpec, layer: PairHead) -> Sequence[int | str]:
        return layer.places(spec.n_layers)
