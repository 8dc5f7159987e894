"""Layer plan: a fixed list of sub-layers that no token of the answer runs."""

from __future__ import annotations

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.depth import Depth
from decodescope.engine.decoding.bases.exits import unfit
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial import Skip, planned


@component
class LayerPlan(Depth):
    """Every pass of the answer leaves out the same attention and feed-forward blocks, whatever it reads: the control that each
    rule which decides by token or place has to beat, at as many layers. The prompt is read whole. A layer whose attention is
    left out gets no more entries, and no later pass looks for them (gap "monotone"). An empty list is the whole model, bit for
    bit. Lossy, without training: a list may come from a search, as EvoPress makes one (Sieberling et al. 2024).
    """

    title = "Layer plan (fixed list)"
    source = "control; lists as in Sieberling et al. 2024, arXiv:2410.14649; IST-DASLab/EvoPress, evo_drop_search.py"
    caution = "Blocks that are left out change the text; the shipped model was not trained to do without any."
    gap = "monotone"

    skip: tuple[str, ...] = param(
        (),
        least=0,
        help="left out of every pass, e.g. a2,f3,l5 (attention 2, feed-forward 3, both of layer 5); empty: nothing",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        try:
            plan = self._plan(spec)
        except ValueError as e:
            return str(e)
        return unfit(self, method) if plan.attn else None

    def _plan(self, spec: ModelSpec) -> Skip:
        """The list as what a pass leaves out. Raises ValueError if a word of it names no sub-layer."""
        return planned(self.skip, spec, "layer_plan.skip", self.gap)

    def begin(self, spec: ModelSpec) -> None:
        self._skip = self._plan(spec)

    def plan(self, position: int, feed: Feed) -> Skip:
        return self._skip
