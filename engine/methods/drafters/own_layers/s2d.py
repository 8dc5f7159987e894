"""S2D: the target's first layers are several nested drafts; each token comes from the shallowest one that is confident."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar, cast

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context, DraftedToken
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.exits import ExitHeads
from decodescope.engine.model.heads.files import missing_reason
from decodescope.engine.trace.records.exits import Exit

from ..shared.nested_models import NestedModels


@component
class S2D(DrawnDrafter):
    """Sorted drafts: the first E_1 layers are a model, the first E_2 another that contains it, and so on, with one unembedding.

    For each token, the smallest model runs first. If its likeliest token has a probability of at least its threshold, it
    drafts. Otherwise the same token continues from there to the next exit. The last exit always drafts. Under a random sampler,
    the token is drawn from the distribution of the drafting sub-model, which is q for the rule. Lossless.

    A token that exited early has no keys and values in the layers above its exit. When a later token goes deeper, the tokens
    before it are run to the same depth, from their stored states. Then each distribution is that of the whole sub-model over
    all drafted tokens, without approximated entries. (`early_exit` with a criterion fills in keys and values of the exit state.
    That is cheaper, and gives another distribution.) So along a draft no token is deeper than the one before it. Verification
    continues each token from its depth, so no layer runs twice for a token. If a part needs data from inside the pass,
    verification begins at layer 0.

    The paper trains a separate small network by the sum of the losses at its exits (sorted fine-tuning). It drafts for several
    targets with it, with a threshold for each. Here the target's own layers are the sub-models, so they share its cache. Their
    training is that of the target's exits: `lab` was trained with a loss at every layer. Which value is compared with the
    threshold is recalled. With threshold 0 the first exit drafts everything; above 1, the last.
    """

    title = "Sorted drafts (S2D)"
    source = "Kavehzadeh et al. 2024, arXiv:2407.01955, section 3 [the rule of the exits is recalled]"
    resumes = True
    draw_kind = "iid"
    tells: ClassVar[dict[str, Note]] = {
        "exits": Note("node", "exit", "layers", "of the sub-model that drafted the token"),
        "tried": Note(
            "node", "asked", what="largest probability at each exit up to that one, before the sampler"
        ),
        "kept": Note("node", "kept", "layers", "that the token before it has run when the check begins"),
        "deepened": Note("series", "taken deeper", "tokens", "that a later one, going deeper, took along"),
        "layers": Note("span", "checked by", "layers", "where the check begins and ends"),
    }

    max_draft_tokens: int = param(5, low=1, high=16, unit="tokens", help="maximum length of a draft")
    exits: tuple[int, ...] = param(
        (),
        low=1,
        high=512,
        least=0,
        most=16,
        unit="layers",
        help="exit layers of the sub-models, ascending; empty: 1/4, 1/2 and 3/4 of all layers",
    )
    thresholds: tuple[float, ...] = param(
        (0.7,),
        low=0.0,
        high=1.01,
        least=1,
        most=16,
        help="minimum probability for each exit to draft; the last value applies to later exits too",
    )
    heads: str = param(
        "none",
        choices=("none", "exits"),
        help="how to read an exit's state: the final norm alone (none), or trained heads (exits)",
    )

    @property
    def uses_schedule(self) -> bool:
        return True

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if not method.adaptive_depth.exact:
            rule = method.adaptive_depth.name
            return f"s2d checks from its exits on, {rule} may leave before; choose adaptive_depth all_layers."
        if "select" in method.policy.does:
            chooses = f"{method.policy.name} chooses what the rows of a pass read"
            return f"s2d takes tokens deeper one after another, and {chooses}; choose the policy keep_all."
        if self.heads != "none" and (no := missing_reason("exits", spec, "s2d.heads = none")):
            return no
        exits = self.sub_model_depths(spec)
        if exits[-1] < spec.n_layers and all(a < b for a, b in pairwise(exits)):
            return None
        named = ", ".join(map(str, exits))
        way = spec.choose_below("the drafter prompt_lookup")
        return f"s2d.exits = {named}: they have to rise, and {spec.name} has {spec.n_layers} layers; {way}."

    def sub_model_depths(self, spec: ModelSpec) -> tuple[int, ...]:
        """The layers of each sub-model."""
        quarters = (spec.n_layers * i // 4 for i in (1, 2, 3))
        return self.exits or tuple(sorted({max(1, x) for x in quarters}))

    def begin(self, ctx: Context) -> None:
        decoder = ctx.target.decoder
        exits = self.sub_model_depths(decoder.spec)
        bounds = [self.thresholds[min(i, len(self.thresholds) - 1)] for i in range(len(exits) - 1)]
        self._exits = [*zip(exits, [*bounds, 0.0], strict=True)]  # the last one always drafts
        self._heads = None if self.heads == "none" else cast(ExitHeads, decoder.heads["exits"])

    def propose(self, ctx: Context) -> Draft:
        lane = ctx.target
        sampler = ctx.sampler
        state = ctx.state
        lane.rollback()
        rows, token = NestedModels(lane, ctx.position - 1, self._heads), ctx.tokens[-1]
        laws = list[Tensor]()
        us = list[float | None]()
        left = list[Exit]()
        read = list[Tensor]()
        longest, more = ctx.schedule.draft_limit(ctx, self.max_draft_tokens), True
        while more and len(left) < longest:
            rows.push(token)
            logits, exit = self._ask(rows)
            read.append(logits)
            if sampler.greedy:
                token = int((sampler.warp(logits, state) if sampler.stateful else logits).argmax())
            else:
                laws.append(ctx.law(logits, state))
                token, u, *_ = ctx.chance.draw(laws[-1], ctx.position + len(left), "draft")
                us.append(u)
            left.append(exit)
            more = ctx.schedule.continue_drafting(DraftedToken(token, logits))
            state = sampler.update(state, token, logits) if sampler.stateful else state
        if not left:
            return Draft()
        kept = [0] * len(left) if lane.needs else rows.depths
        notes = {
            "exits": [x.depth for x in left],
            "tried": [[round(test[1], 4) for test in x.tests] for x in left],
            "kept": list(kept),
            "deepened": rows.deepened,
            "layers": [kept[-1], lane.decoder.spec.n_layers],
            **ctx.schedule.notes(),
        }
        draft = Draft.chain([*rows.tokens[1:], token], source="target, sorted drafts", notes=notes)
        draft.exits = left
        draft.logits = ctx.keep_logits([ROOT, *range(len(draft) - 1)], read)
        if laws:
            draft.kind = "iid"
            draft.q = torch.stack(laws)
            draft.q_row = list(range(len(laws)))
            draft.u = us
        if not kept[-1]:
            lane.rollback()
            return draft
        last = lane.states_before(
            Feed.causal_chain([token], ctx.position - 1 + len(left), lane.decoder.device), kept[-1]
        )
        draft.enter, draft.states = kept[-1], torch.cat([*rows.states, last], 1)
        draft.entries = [*kept, kept[-1]] if kept[0] > kept[-1] else None
        return draft

    def _ask(self, rows: NestedModels) -> tuple[Tensor, Exit]:
        """Logits [V] of the sub-model that drafts behind the last row, and the exit tests up to it."""
        tests, best = list[list[float]](), list[int]()
        for layer, bound in self._exits:
            logits = rows.run(layer)
            tests.append([layer, float(logits.softmax(-1).amax()), bound])
            best.append(int(logits.argmax()))
            if tests[-1][1] >= bound:
                break
        rank = 0 if self._heads is None else self._heads.shape["rank"]
        return logits, Exit(layer, self.name, tests, asks="head", best=best, drafted=True, rank=rank)
