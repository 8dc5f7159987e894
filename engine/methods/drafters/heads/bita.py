"""BiTA: mask tokens after every candidate, with a soft prefix that only they see, so that one pass verifies and drafts."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.values.draft import Draft

from ..shared.slot_drafter import SLOTS, SlotDrafter
from ..shared.trees import SHAPED, TemplateGrowth, shaped_tree

# How often the guess of rank 0, 1, ... is right, per mask token, for a file that does not record it.
RATES = tuple(
    tuple(x * 0.7**k for x in (0.5, 0.13, 0.07, 0.05, 0.03, 0.025, 0.02, 0.015, 0.01, 0.01))
    for k in range(16)
)


@component
class BiTA(SlotDrafter):
    """Bi-directional tuning.

    A group of m mask tokens follows the root and every candidate. In the row of mask token k (from 0), the target guesses the
    token k + 2 after the group's place. The group at the end of the accepted path makes the next candidates. So every pass
    verifies and drafts, whichever candidates are right. 1 + N candidates cost (1 + N)(1 + m) rows.

    The trained parts are the m embeddings and a prefix: P keys and values in every layer, [L, 2, H_kv, P, D]. Only the mask
    tokens see the prefix. So the logits of root and candidates are the same as without masks and prefix, and no cache ever
    holds the prefix.

    The candidates are a tree of `nodes` nodes. It combines the group's guesses as Medusa combines those of its heads: it has
    the most expected tokens under the rank accuracies measured in training. The authors' code has a full tree, or one in which
    only the best of each level goes on, and runs it without a cache. Their rule for random samplers compares with the mask
    token's distribution, but draws the replacement of a rejected candidate from the target's. Here candidates are chosen
    without chance, so the method is lossless under any sampler with the rule `lossless`. The authors' prefix precedes the text.
    Here the prefix is equally far from every row, because its keys meet queries that are not rotated; a long text does not move
    it away. The first step has no guesses.
    """

    title = "BiTA (mask tokens and a prefix)"
    source = "Lin et al. 2024, arXiv:2401.12522; linfeng93/BiTA, tests/eval_infer.py, src/prefix_encoder.py"
    reads = "bita"
    tells: ClassVar[dict[str, Note]] = {"slots": SLOTS, **SHAPED}

    nodes: int = param(
        5,
        low=1,
        high=32,
        unit="nodes",
        help="size of the draft tree; a group of mask tokens follows every node",
    )

    @property
    def branches(self) -> bool:
        return self.nodes > 1

    def begin(self, ctx: Context) -> None:
        super().begin(ctx)
        self._template = shaped_tree(
            (self._trained.rates or RATES)[: self._trained.shape["heads"]], self.nodes
        )

    def propose(self, ctx: Context) -> Draft:
        if ctx.room == 0:
            return Draft()
        guesses = list[list[int]]()
        if self._guessed is not None:
            ranks = min(max(self._template.ranks) + 1, self._guessed.shape[-1])
            guesses = self._guessed.topk(ranks).indices.tolist()
        growth = TemplateGrowth(self._template, min(ctx.room, len(guesses)))
        kept: dict[int, Tensor] = {}
        for level, row in zip(guesses, () if self._guessed is None else self._guessed, strict=True):
            kept |= growth.keep_logits(ctx, [row] * len(growth.open))
            growth.grow([level] * len(growth.open))
        draft = Draft(growth.tokens, growth.parents, source="mask tokens", logits=kept)
        hung = self.attach_slots(draft, [self._trained.shape["heads"]] * (len(draft) + 1), ctx.room)
        draft.notes = {"slots": hung, "ranks": growth.ranks, "expected": round(self._template.expected, 4)}
        return draft
