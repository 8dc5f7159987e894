"""RSD-C: a draft-model tree with a fixed number of children at each level, drawn without replacement."""

from __future__ import annotations

from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.values.draft import ROOT, Draft

from ..shared.model_tree import MOST, ModelTree, tree_size_conflict


@component
class RSDC(DrawnDrafter):
    """Recursive speculative decoding with constant branching: every node of level d has b_d children.

    They are drawn from the draft model's distribution without replacement, and verified in the order in which they were drawn.
    A distribution with fewer tokens than b_d gives as many as it has.

    The paper takes the b_d largest of log q + Gumbel noise. Here children are drawn one after the other, each from what the
    earlier ones leave. The distribution of ordered tokens is the same. It takes one uniform per child, and gives the rule the
    distribution that each child came from. Under a greedy sampler the children are the b_d most likely tokens. b = 1, 1, ... is
    a chain. Lossless. Costs one pass of the draft model per level, all its nodes at once.
    """

    title = "RSD-C (constant branching)"
    source = "Jeon et al. 2024, arXiv:2402.14160, RSD-C: constant branching, Gumbel-top-k children"
    lanes = ("draft",)
    tells: ClassVar[dict[str, Note]] = {
        "branching": Note("set", "branching", what="children of a node at each level"),
    }

    branching: tuple[int, ...] = param(
        (3, 2, 1, 1),
        low=1,
        high=MOST,
        most=MOST,
        unit="children",
        help="children of each node, one number per level from the root on, e.g. 3,2,1",
    )

    @property
    def branches(self) -> bool:
        return any(x > 1 for x in self.branching)

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return tree_size_conflict(self.branching, "rsd_c.branching")

    def propose(self, ctx: Context) -> Draft:
        if ctx.room == 0:
            return Draft()
        tree, frontier = ModelTree(ctx), [ROOT]
        for level, width in enumerate(self.branching[: ctx.room]):
            rows = tree.read(frontier) if level else tree.read_root()
            frontier = [
                child
                for children in tree.add_children(frontier, rows, [width] * len(frontier))
                for child in children
            ]
        tree.close()
        return tree.to_draft(self.proposes, notes={"branching": self.knobs()["branching"]})
