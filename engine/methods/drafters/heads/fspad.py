"""FSPAD: EAGLE-2's tree, on a layer that also reads the sampled token and predicts tokens separately from features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

from decodescope.engine.core.component import component
from decodescope.engine.core.note import Note
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.heads.drafting.fspad import FspadLayer
from decodescope.engine.model.heads.drafting.pairs import PairHead

from ..shared.beam_tree import BeamTree


@component
class Fspad(BeamTree):
    """The tree of `eagle2`, with EAGLE's layer between two further parts (`engine/model/heads/drafting/fspad.py` has the
    formulas). A feature blends all tokens that might come next, but the layer should continue with the one that came. So the
    embedding of that token gates the dimensions of the feature [d] before the layer reads it. The layer's output is trained to
    be near the next true feature. The unembedding does not read it directly: a separate map between them is trained on the
    tokens alone, so the two losses train different weights.

    With gates of 1 and both further maps at 0 it drafts what EAGLE-2 does, to the bit. Nodes are chosen without chance:
    lossless. In addition to EAGLE's layer, it costs three products of low rank per row. This is an approximation: it follows
    the paper's abstract; the paper's description of the layers was not read. The paper's tree is EAGLE-2's; defaults are those
    of `eagle2`.
    """

    title = "FSPAD (an approximation)"
    source = "Gui et al. 2024, arXiv:2408.15562, abstract; the layers themselves recalled, no code is known"
    needs: ClassVar[Needs] = Needs(hidden=frozenset({"final"}))
    reads: ClassVar[str] = "fspad"
    tells: ClassVar[dict[str, Note]] = {
        **BeamTree.tells,
        "gate": Note(
            "node",
            "gate",
            what="mean factor that the token puts on the feature before it; 1 leaves it as it is",
        ),
    }

    def feature_places(self, spec: ModelSpec, layer: PairHead) -> Sequence[int | str]:
        return ("final",)

    def propose(self, ctx: Context) -> Draft:
        draft = super().propose(ctx)
        if draft.notes is not None:
            gates = cast(FspadLayer, self._walk.layer).gate(self._walk.embed([ctx.tokens[-1], *draft.tokens]))
            draft.notes["gate"] = [round(x, 4) for x in gates.mean(-1).tolist()]  # the root's first
        return draft
