"""EAGLE: one small layer predicts the target's next features, and the target's own unembedding turns them into tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.values.chance import Drawn, remainders, remaining_distributions
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.heads.drafting.eagle import EagleLayer
from decodescope.engine.model.heads.files import missing_reason

from ..shared.feature_walk import FeatureWalk
from ..shared.trees import PATH, SHAPED, TemplateGrowth, shaped_tree

# How often the guess of rank 0, 1, ... is right at any level, for a file that does not record it.
RATES = ((0.6, 0.13, 0.06, 0.04, 0.025, 0.02, 0.015, 0.01),)


@component
class Eagle(DrawnDrafter):
    """EAGLE-1.

    Slot t of the layer reads (f_t, e(t+1)): the target's final feature of token t and the embedding of the next token. It
    guesses f_{t+1}, from which the unembedding gives the distribution of token t + 2. After a verification, one pass reads the
    true features of the accepted tokens into the layer's own cache. Then a fixed tree grows level by level on guessed features.
    Its entries in the cache are dropped.

    Under a random sampler, siblings are drawn without replacement from the guessed distribution, under the same sampler. Under
    a greedy sampler they are the most likely tokens. Lossless. Costs one pass of the layer and the unembedding per level. The
    first level uses true features, the deeper ones guesses. The tree has the most expected tokens under the rank accuracies
    measured in training; the original's is a fixed one of 25 nodes.
    """

    title = "EAGLE-1"
    source = "Li et al. 2024, arXiv:2401.15077, section 4; SafeAILab/EAGLE, eagle/model/cnets1.py, utils.py"
    needs: ClassVar[Needs] = Needs(hidden=frozenset({"final"}))
    tells: ClassVar[dict[str, Note]] = {
        **SHAPED,
        "scores": PATH,
        "passes": Note("series", "passes", what="of the layer on guessed features"),
    }

    nodes: int = param(25, low=1, high=64, unit="nodes", help="size of the draft tree")
    depth: int = param(5, low=1, high=10, unit="levels", help="maximum depth of the draft tree")

    @property
    def branches(self) -> bool:
        return self.nodes > 1

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return missing_reason("eagle", spec)

    def begin(self, ctx: Context) -> None:
        layer = cast(EagleLayer, ctx.target.decoder.heads["eagle"])
        rates = layer.rates or RATES
        rates += rates[-1:] * self.depth
        self._template = shaped_tree(rates[: self.depth], self.nodes)
        self._walk = FeatureWalk(ctx, layer, ("final",))

    def propose(self, ctx: Context) -> Draft:
        growth, features = TemplateGrowth(self._template, ctx.room, ctx.state), self._walk.read_root()
        if features is None or not growth.open:
            return Draft()
        laws: list[Drawn] = []
        us: list[float | None] = []
        kept: dict[int, Tensor] = {}
        while True:
            row = {place.at: i for i, place in enumerate(growth.open)}
            logits = self._walk.logits(features)
            kept |= growth.keep_logits(ctx, logits)
            self._grow(ctx, growth, logits, laws, us)
            if not growth.open:
                break
            above = [row[growth.parents[place.at]] for place in growth.open]
            features = self._walk.next_level(features, above, [place.path[-1] for place in growth.open])
        self._walk.close()
        passes = self._walk.level
        notes: dict[str, Any] = {
            "ranks": growth.ranks,
            "expected": round(self._template.expected, 4),
            "passes": passes,
        }
        if ctx.sampler.greedy:
            return Draft(growth.tokens, growth.parents, source="EAGLE", notes=notes, logits=kept)
        q, rows = remaining_distributions(laws), list(range(len(laws)))
        notes["scores"] = path_scores(growth, q)
        draft = Draft(growth.tokens, growth.parents, self.proposes, q, rows, us, source="EAGLE", notes=notes)
        draft.logits = kept
        return draft

    def _grow(
        self, ctx: Context, growth: TemplateGrowth, logits: Tensor, laws: list[Drawn], us: list[float | None]
    ) -> None:
        """Choose or draw the children of every open place from its row of logits [R, V]; record distributions and uniforms."""
        sampler = ctx.sampler
        wanted = [growth.child_count(place) for place in growth.open]
        if sampler.greedy:
            own = self._map_open_rows(sampler.warp, growth, logits) if sampler.stateful else logits
            best = own.topk(min(max(wanted), own.shape[1])).indices.tolist()
            tokens = [x[:count] for x, count in zip(best, wanted, strict=True)]
        else:
            tokens, at = [], ctx.position + self._walk.level
            own = (
                self._map_open_rows(ctx.law, growth, logits)
                if sampler.stateful
                else ctx.law(logits, ctx.state)
            )
            for rest, count in zip(remainders(own), wanted, strict=True):
                drawn = ctx.chance.draw_distinct(rest, count, at)
                tokens.append([x.token for x in drawn])
                laws += [(rest.law, rest.taken[:i]) for i in range(len(drawn))]
                us += [x.u for x in drawn]
        if not sampler.stateful:
            return growth.grow(tokens)
        rows = zip(growth.open, tokens, logits, strict=True)
        growth.grow(
            tokens, [[sampler.update(place.state, token, row) for token in own] for place, own, row in rows]
        )

    def _map_open_rows(
        self, work: Callable[[Tensor, Any], Tensor], growth: TemplateGrowth, logits: Tensor
    ) -> Tensor:
        """float [R, V]: the result of `work` on each open place's row of logits [R, V] under its own state."""
        return torch.stack([work(row, place.state) for row, place in zip(logits, growth.open, strict=True)])

    def observe(self, outcome: DraftOutcome) -> None:
        self._walk.note_accepted(outcome)


def path_scores(growth: TemplateGrowth, q: Tensor) -> list[float]:
    """Per node the sum of log q, in nats, over its path; q float [N, V] is the distribution that each node was drawn from."""
    scored: list[float] = []
    shares = q.gather(1, torch.tensor(growth.tokens, device=q.device)[:, None])[:, 0].tolist()
    for share, parent in zip(shares, growth.parents, strict=True):
        above = scored[parent] if parent >= 0 else 0.0
        scored.append(round(above + math.log(share), 4))
    return scored
