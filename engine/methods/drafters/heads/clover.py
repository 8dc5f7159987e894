"""Clover: a sequence of heads; each reads the token before its guess through attention, on a state that has seen the text."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.heads.drafting.clover import CloverHeads

from ..shared.feature_walk import FeatureWalk
from ..shared.head_tree import HeadTree
from ..shared.trees import SHAPED, TemplateGrowth

# How often the guess of rank 0, 1, ... is right, per head, for files that do not record it.
RATES = tuple(
    tuple(x * 0.9**k for x in (0.55, 0.13, 0.07, 0.05, 0.03, 0.025, 0.02, 0.015, 0.01, 0.01))
    for k in range(16)
)


@component
class Clover(HeadTree):
    """Three parts read the target's final feature [d] of the token before the root.

    The *augmenting block*, a decoder layer with its own cache, reads the features of the whole text, each with the token that
    came after it. The *regressive connection*: head k continues from the state of head k - 1, and reads the token drafted
    there. The *attention decoder* weights that token: the token is the only key, and a cosine per attention head replaces the
    softmax. So guesses depend on the path to them, as Hydra's do and Medusa's do not.

    The tree is fixed, with the most expected tokens under the rank accuracies measured when the heads were trained. The
    authors' first version has Medusa's tree; their second one grows by probability. The draft is chosen without chance:
    lossless with the lossless rule. Costs one pass of the block over the accepted tokens. Each level costs one head and the
    unembedding, all its nodes at once. The parts are those of Clover-2's code; the layout of the first Clover is recalled only.
    """

    title = "Clover"
    source = "Xiao et al. 2024, arXiv:2405.00263 and 2408.00264; XiaoBin1992/clover, clover/model/clover2.py"
    reads = "clover"
    rates = RATES
    tells: ClassVar[dict[str, Note]] = {
        **SHAPED,
        "gates": Note("node", "cosines", what="of state and token, by head, where the token was taken in"),
        "state": Note("node", "state", what="its root mean square after that, times that at the root"),
        "passes": Note("series", "passes", what="of the heads"),
    }

    nodes: int = param(24, low=1, high=64, unit="nodes", help="size of the draft tree")

    def begin(self, ctx: Context) -> None:
        super().begin(ctx)
        self._net = cast(CloverHeads, self._heads)
        self._walk = FeatureWalk(ctx, self._net, ("final",))

    def observe(self, outcome: DraftOutcome) -> None:
        self._walk.note_accepted(outcome)

    def propose(self, ctx: Context) -> Draft:
        state, growth = self._walk.read_root(), TemplateGrowth(self._template, ctx.room)
        if state is None or not growth.open:
            return Draft()
        features = self._net.feature(state)
        size = state.square().mean().sqrt()
        passes = 1
        kept: dict[int, Tensor] = {}
        notes: dict[str, Any] = {"gates": [], "state": []}
        while True:
            logits = self._net.logits(features[None], ctx.target.decoder)[0]  # [R, V]
            row = {place.at: i for i, place in enumerate(growth.open)}
            widest = min(max(map(growth.child_count, growth.open)), logits.shape[-1])
            kept |= growth.keep_logits(ctx, logits)
            growth.grow(logits.topk(widest).indices.tolist())
            for name in ("gates", "state"):
                notes[name] += [None] * (len(growth.tokens) - len(notes[name]))
            if not growth.open:
                break
            above = torch.tensor(
                [row[growth.parents[place.at]] for place in growth.open], device=logits.device
            )
            embedded = self._walk.embed([place.path[-1] for place in growth.open])
            cosines, _ = self._net.after.parts(state[above], embedded)
            state = self._net.step(state[above], embedded)  # [R, d]
            features, passes = self._net.feature(state, embedded), passes + 1
            sizes = state.square().mean(-1).sqrt() / size
            for place, gates, x in zip(growth.open, cosines.tolist(), sizes.tolist(), strict=True):
                notes["gates"][place.at], notes["state"][place.at] = [round(c, 4) for c in gates], round(x, 4)
        notes |= {"ranks": growth.ranks, "expected": round(self._template.expected, 4), "passes": passes}
        return Draft(growth.tokens, growth.parents, source="Clover heads", notes=notes, logits=kept)
