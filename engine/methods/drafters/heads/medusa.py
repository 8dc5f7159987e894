"""Medusa: additional heads on the target's last state guess the tokens after the next one, all at once."""

from __future__ import annotations

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.values.draft import Draft

from ..shared.head_tree import HeadTree
from ..shared.trees import TemplateGrowth

# How often the guess of rank 0, 1, ... is right, per head, for files that do not record it.
RATES = tuple(
    tuple(x * 0.7**k for x in (0.5, 0.13, 0.07, 0.05, 0.03, 0.025, 0.02, 0.015, 0.01, 0.01))
    for k in range(16)
)


@component
class Medusa(HeadTree):
    """K heads read the target's final feature [d] of the token before the root.

    Head k guesses the token k + 1 after the root, whatever the tokens between are. So all nodes of level k share one list of
    guesses, and a tree tries combinations of them. A node holds the guess of its rank in the list of its level, regardless of
    its parent.

    The tree is fixed: the `nodes` combinations with the most expected tokens under the rank accuracies that were measured on
    held-out text when the heads were trained, by the authors' own rule (medusa/eval/gen_results.py). Their list of 63 nodes
    follows by that rule from accuracies that they do not publish. It cannot be reproduced, and is left out. The draft is chosen
    without chance, so it is lossless under any sampler with the lossless rule; the paper replaces this rule by a lossy one
    (typical). Costs one pass of K blocks and the unembedding. At the first step after a prompt of one token, the target has no
    state yet and nothing is drafted.
    """

    title = "Medusa heads"
    source = "Cai et al. 2024, arXiv:2401.10774, sections 2.1.1 and 2.3.3; FasterDecoding/Medusa, medusa/model/medusa_model.py"
    reads = "medusa"
    rates = RATES

    nodes: int = param(24, low=1, high=64, unit="nodes", help="size of the draft tree")

    def propose(self, ctx: Context) -> Draft:
        if self._state is None or ctx.room == 0:
            return Draft()
        growth = TemplateGrowth(self._template, ctx.room)
        logits = self._heads.logits(self._heads(self._state), ctx.target.decoder)  # [K, V]
        guesses = logits.topk(min(max(self._template.ranks) + 1, logits.shape[-1])).indices.tolist()
        level = 0
        kept: dict[int, Tensor] = {}
        while growth.open:
            kept |= growth.keep_logits(ctx, [logits[level]] * len(growth.open))
            growth.grow([guesses[level]] * len(growth.open))
            level += 1
        notes = {"ranks": growth.ranks, "expected": round(self._template.expected, 4)}
        return Draft(growth.tokens, growth.parents, source="Medusa heads", notes=notes, logits=kept)
