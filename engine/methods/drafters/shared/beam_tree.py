"""BeamTree: base of drafters that grow a tree on a layer's own outputs where it is confident, and keep the best nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.model.heads.drafting.pairs import PairHead
from decodescope.engine.model.heads.files import missing_reason

from .feature_walk import FeatureWalk
from .trees import PATH, SHAPED, BeamPool

SHOWN = 8  # dropped nodes in the trace


@component
class BeamTree(Drafter):
    """EAGLE-2's tree, over the layer `reads`.

    The layer's feature of a token is made from the target's states at `places`. The trace records each node's score, its rank
    by score, and whether its q rests on a guessed feature. It also records the best of the dropped nodes.
    """

    reads: ClassVar[str]
    tells: ClassVar[dict[str, Note]] = {
        "scores": PATH,
        "ranks": SHAPED["ranks"],
        "places": Note("node", "place", what="of the score among all that are kept, the best 0"),
        "predicted": Note("node", "on a guess", what="whether its score rests on a guessed feature"),
        "passes": Note("series", "passes", what="of the layer on guessed features"),
        "pool": Note("series", "grown", "nodes", "of which the best are kept"),
        "dropped.reason": Note("set", "dropped by"),
        "dropped.nodes": Note("series", "dropped", "nodes"),
        "dropped.best": Note(
            "set", "the best dropped", "node, token, nats", "behind which node, and its score"
        ),
    }

    nodes: int = param(
        16,
        low=1,
        high=128,
        unit="nodes",
        help="size of the draft tree after pruning; the EAGLE-2 paper uses 59",
    )
    depth: int = param(
        5, low=1, high=11, unit="levels", help="maximum depth of the draft tree; the EAGLE-2 paper uses 8"
    )
    width: int = param(
        4,
        low=1,
        high=16,
        unit="nodes",
        help="nodes expanded per level, and continuations of each (k); the EAGLE-2 paper uses 10",
    )

    @property
    def branches(self) -> bool:
        return self.nodes > 1 and self.width > 1

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return missing_reason(self.reads, spec)

    def feature_places(self, spec: ModelSpec, layer: PairHead) -> Sequence[int | str]:
        """The layers of the target with states that make a feature, one after the other."""
        raise NotImplementedError

    def begin(self, ctx: Context) -> None:
        layer: Any = ctx.target.decoder.heads[self.reads]
        self._walk = FeatureWalk(ctx, layer, self.feature_places(ctx.target.decoder.spec, layer))

    def propose(self, ctx: Context) -> Draft:
        features, deepest = self._walk.read_root(), min(self.depth, ctx.room)
        if features is None or deepest == 0:
            return Draft()
        beam, states = BeamPool(self.width), [ctx.state]
        kept: dict[int, Tensor] = {}
        while True:
            read, logits = beam.open, self._walk.logits(features)
            kept |= ctx.keep_logits(read, logits)
            beam.grow(self._laws(ctx, logits, states))
            if self._walk.level + 1 == deepest or beam.is_settled(self.nodes):
                break
            row = {node: i for i, node in enumerate(read)}
            tokens, above = [beam.tokens[x] for x in beam.open], [row[beam.parents[x]] for x in beam.open]
            if ctx.sampler.stateful:
                states = [
                    ctx.sampler.update(states[i], x, logits[i]) for i, x in zip(above, tokens, strict=True)
                ]
            features = self._walk.next_level(features, above, tokens)
        self._walk.close()
        return self._best_draft(beam, kept)

    def _laws(self, ctx: Context, logits: Tensor, states: Sequence[Any]) -> Tensor:
        """float [R, V]: q of the token after each open node, from its logits [R, V] and the sampler's state there."""
        if not ctx.sampler.stateful:
            return ctx.estimate(logits, ctx.state)
        return torch.stack([ctx.estimate(row, state) for row, state in zip(logits, states, strict=True)])

    def _best_draft(self, beam: BeamPool, kept: dict[int, Tensor]) -> Draft:
        """The best nodes of the pool as a draft; the notes record the scores and the dropped nodes.

        kept: node of the pool -> `Draft.logits`
        """
        ranking = beam.ranking()
        keep, dropped = sorted(ranking[: self.nodes]), ranking[self.nodes :]
        at = {ROOT: ROOT, **{node: i for i, node in enumerate(keep)}}
        place = {node: i for i, node in enumerate(ranking[: self.nodes])}
        rim = [x for x in dropped if beam.parents[x] in at][:SHOWN]
        notes = {
            "ranks": [beam.ranks[x] for x in keep],
            "scores": [round(beam.scores[x], 4) for x in keep],
            "places": [place[x] for x in keep],  # rank of the score among all kept nodes, best 0
            "predicted": [
                beam.depth[x] > 1 for x in keep
            ],  # whether q rests on a guessed feature or on a true one
            "passes": self._walk.passes,
            "pool": len(beam),
            "dropped": {
                "reason": "rerank",
                "nodes": len(dropped),
                "best": [[at[beam.parents[x]], beam.tokens[x], round(beam.scores[x], 4)] for x in rim],
            },
        }
        tokens, parents = [beam.tokens[x] for x in keep], [at[beam.parents[x]] for x in keep]
        logits = {at[x]: row for x, row in kept.items() if x in at}
        return Draft(tokens, parents, source=self.title, notes=notes, logits=logits)

    def observe(self, outcome: DraftOutcome) -> None:
        self._walk.note_accepted(outcome)
