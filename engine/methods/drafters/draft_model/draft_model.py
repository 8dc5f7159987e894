"""Draft model: a smaller model drafts, and the target verifies."""

from __future__ import annotations

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.values.draft import ROOT, Draft

from ..shared.model_tree import ModelTree, scheduled_chain


@component
class DraftModel(DrawnDrafter):
    """Speculative sampling: draw a chain, or a tree of `width` chains, from the draft model under the target's own sampler.

    Tokens are drawn one by one. The first tokens of a tree's chains are drawn without replacement.

    Each node is drawn from its parent's distribution, which the draft records. Under a greedy sampler the chain takes the most
    likely token; the tree takes the `width` most likely first tokens. A chain costs `max_draft_tokens` passes of the draft
    model. A tree costs the same, because its chains grow together in one pass per level. The schedule decides the length of a
    chain.
    """

    title = "Draft model"
    source = "Leviathan et al. 2023, arXiv:2211.17192, section 2.3; Chen et al. 2023, arXiv:2302.01318"
    lanes = ("draft",)
    speaks = "draft"

    max_draft_tokens: int = param(4, low=1, high=16, unit="tokens", help="maximum length of a draft (gamma)")
    width: int = param(
        1,
        low=1,
        high=8,
        help="number of parallel chains, each with a different first token; 1: a single chain",
    )

    @property
    def branches(self) -> bool:
        return self.width > 1

    @property
    def largest_draft(self) -> tuple[int, int]:
        return self.width * self.max_draft_tokens, self.max_draft_tokens

    @property
    def uses_schedule(self) -> bool:
        return self.width == 1

    def propose(self, ctx: Context) -> Draft:
        if self.uses_schedule:
            return scheduled_chain(ctx, self.max_draft_tokens)
        if ctx.room == 0:
            return Draft()
        tree = ModelTree(ctx)
        frontier = tree.grow(ROOT, tree.read_root()[0], self.width)
        for _ in range(1, min(self.max_draft_tokens, ctx.room)):
            rows = tree.read(frontier)
            frontier = [node for (node,) in tree.add_children(frontier, rows, [1] * len(frontier))]
        tree.close()
        return tree.to_draft(self.proposes)
