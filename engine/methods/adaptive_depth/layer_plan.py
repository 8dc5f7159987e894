"""Layer plan: a fixed list of sub-layers is skipped for all tokens of the answer."""

from __future__ import annotations

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.adaptive_depth import AdaptiveDepth
from decodescope.engine.decoding.bases.exit_rule import gap_conflict
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import Skip, parse_skip


@component
class LayerPlan(AdaptiveDepth):
    """Every pass of the answer skips the same attention and feed-forward blocks, whatever it reads.

    It is the baseline that each rule which decides by token or position has to beat, with as many layers. The prompt is read
    whole. A layer with skipped attention gets no more entries, and no later pass looks for them (skipped_kv "monotone"). An
    empty list is the whole model, bit for bit. Lossy, without training. A list may come from a search such as EvoPress
    (Sieberling et al. 2024).
    """

    title = "Layer plan (fixed list)"
    source = "control; lists as in Sieberling et al. 2024, arXiv:2410.14649; IST-DASLab/EvoPress, evo_drop_search.py"
    caution = "Blocks that are left out change the text; the shipped model was not trained to do without any."
    skipped_kv = "monotone"

    skip: tuple[str, ...] = param(
        (),
        least=0,
        help="blocks to skip, e.g. a2,f3,l5 (a: attention, f: feed-forward, l: both); empty: none",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        try:
            plan = self._plan(spec)
        except ValueError as e:
            return str(e)
        return gap_conflict(self, method) if plan.attn else None

    def _plan(self, spec: ModelSpec) -> Skip:
        """Convert the list to the sub-layers that a pass skips. Raises ValueError if a word of it names no sub-layer."""
        return parse_skip(self.skip, spec, "layer_plan.skip", self.skipped_kv)

    def begin(self, spec: ModelSpec) -> None:
        self._skip = self._plan(spec)

    def plan(self, position: int, feed: Feed) -> Skip:
        return self._skip
