"""Chains: drafts several independent continuations, so that more of them may match the target."""

from __future__ import annotations

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.values.draft import ROOT, Draft

from ..shared.model_tree import ModelTree


@component
class Chains(DrawnDrafter):
    """Draft `chains` chains of `max_draft_tokens` tokens, each drawn independently from the draft model, with replacement.

    Chains may begin alike. Equal tokens stay separate siblings: two draws of one token give a rule two chances, and a merged
    node would hide one of them. Chains that are equal so far continue from one distribution, that of the first of them. A pass
    may round their rows differently, but a rule judges the draws of one position by one distribution. A chain continues its own
    tokens only. Under a greedy sampler all chains are the same, and one is drafted. `chains` chains cost `max_draft_tokens`
    passes of the draft model, one batched pass per level, and `chains` * `max_draft_tokens` rows of the target's pass.
    """

    title = "Independent chains"
    source = "Sun et al. 2023 (SpecTr), arXiv:2310.15141; Miao et al. 2023 (SpecInfer), arXiv:2305.09781, section 4.3"
    lanes = ("draft",)
    draw_kind = "iid"

    max_draft_tokens: int = param(
        4, low=1, high=16, unit="tokens", help="maximum length of each chain (gamma)"
    )
    chains: int = param(
        4, low=1, high=8, unit="chains", help="number of independent chains drafted per step (k)"
    )

    @property
    def branches(self) -> bool:
        return self.chains > 1

    def propose(self, ctx: Context) -> Draft:
        if ctx.room == 0:
            return Draft()
        tree, count = ModelTree(ctx), 1 if ctx.sampler.greedy else self.chains
        rows = tree.read_root()
        (frontier,) = tree.add_children([ROOT], rows, [count], again=True)
        for _ in range(1, min(self.max_draft_tokens, ctx.room)):
            rows = tree.read(frontier, keep=count == 1)
            frontier = [node for (node,) in tree.add_children(frontier, rows, [1] * len(frontier))]
        tree.close()
        return tree.to_draft("iid")
