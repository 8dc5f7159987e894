"""ParallelSpec: EAGLE-2's tree, on a layer that guesses several tokens per pass with the help of mask tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.heads.drafting.pairs import PairHead
from decodescope.engine.model.heads.drafting.parallelspec import ParallelSpecLayer

from ..shared.beam_tree import BeamTree
from ..shared.group_walk import GroupWalk


@component
class ParallelSpec(BeamTree):
    """The tree of `eagle2`, with one pass of the layer per `tokens_per_pass` levels.

    It takes ceil(levels / k) passes, where EAGLE takes one per level. k - 1 masks follow the slot of the last pair. In one
    pass, slot and masks guess the features of the next k tokens, and the unembedding makes k distributions from them. A mask
    knows the text and its distance, not the tokens between. So the k levels of a group each have one list of guesses, as with
    Medusa's heads. A path's score is still the sum of its log q. From group to group the guesses depend on the path: the next
    pass reads the drafted tokens as pairs, each node once.

    With k = 1 it is EAGLE-2 on the layer inside, to the bit. Nodes are chosen without chance: lossless. A pass has the rows of
    the nodes since the last pass, and k - 1 masks for each node that goes on, at most width (2 k - 1) rows. In addition, each
    level costs one unembedding. The paper fits the masks to the fixed trees of its hosts; the growing tree is ours.
    """

    title = "ParallelSpec"
    source = (
        "Xiao et al. 2024, arXiv:2410.05589, abstract; masks and their training as recalled, no code is known"
    )
    needs: ClassVar[Needs] = Needs(hidden=frozenset({"final"}))
    reads: ClassVar[str] = "parallelspec"
    tells: ClassVar[dict[str, Note]] = {
        **BeamTree.tells,
        "pass": Note(
            "node", "pass", what="of the layer that guessed it; 0 is that over the text's last pair"
        ),
    }

    depth: int = param(6, low=1, high=11, unit="levels", help="maximum depth of the draft tree")
    tokens_per_pass: int = param(
        3,
        low=1,
        high=8,
        unit="tokens",
        help="levels guessed in one pass of the draft layer (k); its training sets the upper limit",
    )

    def feature_places(self, spec: ModelSpec, layer: PairHead) -> Sequence[int | str]:
        return ("final",)

    def begin(self, ctx: Context) -> None:
        layer = cast(ParallelSpecLayer, ctx.target.decoder.heads[self.reads])
        self._k = min(self.tokens_per_pass, layer.shape["masks"] + 1)
        self._walk = GroupWalk(ctx, layer, self._k)

    def propose(self, ctx: Context) -> Draft:
        draft = super().propose(ctx)
        if draft.notes is not None:
            passes = [(level - 1) // self._k for level in draft.depth]
            draft.notes |= {"pass": passes, "predicted": [x > 0 for x in passes]}
        return draft
