"""EAGLE-2: EAGLE's layer grows a tree where the draft is confident, and the best nodes are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from decodescope.engine.core.component import component
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.heads.drafting.pairs import PairHead

from ..shared.beam_tree import BeamTree


@component
class Eagle2(BeamTree):
    """EAGLE-1's layer with a dynamic tree.

    A node's score is the sum of log q over its path, the draft's estimate of its log acceptance probability. The root gets its
    `width` likeliest continuations. Then, `depth` - 1 times, one pass reads the best `width` nodes of the last level, on
    guessed features, and each gets `width` continuations. Of all nodes seen, the `nodes` with the highest scores are drafted.
    No node has a higher score than its parent; if both are equal (a q of 1), the parent ranks first. So these nodes are a tree,
    and no other tree from the pool has a larger sum of scores. A pass that can no longer change the choice is skipped.

    Nodes are chosen without chance, also under a random sampler: they are one-hot for the rule, hence lossless. Scores then use
    the distribution after the sampler, by which nodes are accepted; the original scores before it. Costs a pass of the layer
    and the unembedding per level. The paper's tree is nodes=59, depth=8, width=10 (60 with the root, 7 passes ahead). The
    default here is smaller, because on a CPU a pass of many rows is no cheaper per row.
    """

    title = "EAGLE-2"
    source = (
        "Li et al. 2024, arXiv:2406.16858, section 4; SafeAILab/EAGLE, eagle/model/cnets1.py, topK_genrate"
    )
    needs: ClassVar[Needs] = Needs(hidden=frozenset({"final"}))
    reads: ClassVar[str] = "eagle"

    def feature_places(self, spec: ModelSpec, layer: PairHead) -> Sequence[int | str]:
        return ("final",)
