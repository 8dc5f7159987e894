"""Hydra: Medusa's heads, but each also reads the drafted tokens before its own guess."""

from __future__ import annotations

from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.bases.policy import CHUNK
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.heads.drafting.hydra import HydraHeads

from ..shared.head_tree import HeadTree
from ..shared.trees import SHAPED, TemplateGrowth

# How often the guess of rank 0, 1, ... is right, per head, for files that do not record it.
RATES = tuple(
    tuple(x * 0.9**k for x in (0.55, 0.13, 0.07, 0.05, 0.03, 0.025, 0.02, 0.015, 0.01, 0.01))
    for k in range(16)
)


@component
class Hydra(HeadTree):
    """Each head reads the tokens drafted before the one that it guesses.

    Head k reads the target's final feature [d] of the token before the root, the embedding of the root, and the embeddings of
    the k tokens on the path to a node. It guesses the children of that node. So guesses depend on what they follow, unlike
    Medusa's.

    The tree is fixed, with the most expected tokens under the rank accuracies measured when the heads were trained. The draft
    is chosen without chance: lossless under any sampler with the lossless rule. Costs one head and the unembedding per level,
    all nodes of the level at once, not one per node. Published heads of Hydra++ have a layer before them. In one pass after
    each verification, it reads the features of all accepted tokens; it has its own cache. Its output row replaces the feature.
    """

    title = "Hydra heads"
    source = (
        "Ankner et al. 2024, arXiv:2402.05109, section 3; zankner/Hydra, hydra/model/hydra_heads/mlp_head.py"
    )
    reads = "hydra"
    rates = RATES
    tells: ClassVar[dict[str, Note]] = {**SHAPED, "passes": Note("series", "passes", what="of the heads")}

    nodes: int = param(24, low=1, high=64, unit="nodes", help="size of the draft tree")

    def begin(self, ctx: Context) -> None:
        super().begin(ctx)
        self._prefix = cast(HydraHeads, self._heads).prefix
        self._store = None if self._prefix is None else self._prefix.attention.store()
        self._due: Tensor | None = None if ctx.target.probe is None else ctx.target.probe.hidden["final"][0]

    def observe(self, outcome: DraftOutcome) -> None:
        super().observe(outcome)
        self._due = outcome.hidden["final"][0, [0, *(node + 1 for node in outcome.verdict.path)]]

    def _catch_up(self) -> None:
        """Let the layer before the heads, if there is one, read the pending features [n, d]; its last row is the state."""
        if self._prefix is None or self._store is None or self._due is None:
            return
        for rows in self._due.split(CHUNK):
            self._state = self._prefix(rows[None], self._store.n, self._store)[0, -1]
            self._store.commit(range(len(rows)))
        self._due = None

    def propose(self, ctx: Context) -> Draft:
        self._catch_up()
        if self._state is None or ctx.room == 0:
            return Draft()
        decoder = ctx.target.decoder
        growth = TemplateGrowth(self._template, ctx.room)
        passes = 0
        kept: dict[int, Tensor] = {}
        while growth.open:
            tokens = [[ctx.tokens[-1], *place.path] for place in growth.open]
            table = self._heads.embedding(decoder)
            embedded = F.embedding(torch.tensor(tokens, device=decoder.device), table)  # [R, k + 1, d]
            features = self._heads(passes, self._state.expand(len(tokens), -1), embedded)
            logits = self._heads.logits(features[None], decoder, passes)[0]  # [R, V]
            widest = min(max(map(growth.child_count, growth.open)), logits.shape[-1])
            kept |= growth.keep_logits(ctx, logits)
            growth.grow(logits.topk(widest).indices.tolist())
            passes += 1
        notes = {"ranks": growth.ranks, "expected": round(self._template.expected, 4), "passes": passes}
        return Draft(growth.tokens, growth.parents, source="Hydra heads", notes=notes, logits=kept)
