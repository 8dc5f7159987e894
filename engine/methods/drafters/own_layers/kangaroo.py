"""Kangaroo: the target's first layers and a small adapter draft, and the layers above verify."""

from __future__ import annotations

from typing import ClassVar, cast

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.bases.policy import CHUNK
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.drafting.kangaroo import KangarooAdapter
from decodescope.engine.model.heads.files import missing_reason
from decodescope.engine.model.layers.faults import require_finite


@component
class Kangaroo(DrawnDrafter):
    """Double early exit.

    First exit: a draft token costs the target's layers below E, the adapter, and the unembedding. E is the layer where the
    adapter was trained. Second exit: the chain ends after `max_draft_tokens` tokens, or with the first token with a confidence
    (the draft's largest probability before the sampler) below `min_probability`. That token is still verified.

    The keys and values of the layers below E stay pending in the target's own cache. Verification continues from layer E with
    the stored states, so these layers run once per token. They run again only if a part needs attention. The adapter's own
    cache keeps the accepted tokens. To fill it for the prompt takes one pass of the layers below E at the start. A random
    sampler draws from the draft's distribution. Lossless.
    """

    title = "Kangaroo"
    source = (
        "Liu et al. 2024, arXiv:2404.18911, section 3; Equationliu/Kangaroo, evaluation/inference_kangaroo.py"
    )
    resumes = True
    draw_kind = "iid"
    tells: ClassVar[dict[str, Note]] = {
        "exit": Note("set", "ended by", what="what ended the draft"),
        "sure": Note(
            "node", "sure", what="the draft's largest probability, before the sampler", line="min_probability"
        ),
        "layers": Note("span", "checked by", "layers", "where the check begins and ends"),
    }

    max_draft_tokens: int = param(6, low=1, high=16, unit="tokens", help="maximum length of a draft (gamma)")
    min_probability: float = param(
        0.6,
        low=0.0,
        high=1.0,
        step=0.05,
        help="the draft ends after a token whose largest probability is below this (eta); 0: no limit",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if not method.adaptive_depth.exact:
            rule = method.adaptive_depth.name
            return f"kangaroo checks from its exit layer on, {rule} may leave before; choose adaptive_depth all_layers."
        return missing_reason("kangaroo", spec)

    def begin(self, ctx: Context) -> None:
        self._adapter = cast(KangarooAdapter, ctx.target.decoder.heads["kangaroo"])
        self._enter = self._adapter.shape["layer"]
        self._store = self._adapter.attention.store()
        self._due: Tensor | None = None  # [1, k, d], states of committed tokens that the adapter has not read
        self._last: Tensor | None = (
            None  # [1, 1, d], the state of the last drafted token, which it reads only if accepted
        )
        if len(ctx.tokens) > 1:
            feed = Feed.causal_chain(ctx.tokens[:-1], 0, ctx.target.decoder.device)
            self._due = ctx.target.states_before(feed, self._enter, "catch_up", alone=True)

    def propose(self, ctx: Context) -> Draft:
        lane = ctx.target
        sampler = ctx.sampler
        position = ctx.position - 1
        lane.rollback()
        self._catch_up()
        if ctx.room == 0:
            return Draft()
        tokens = [ctx.tokens[-1]]
        states = list[Tensor]()
        laws = list[Tensor]()
        sure = list[float]()
        rows = list[Tensor]()
        us: list[float | None] = []
        state, longest = ctx.state, min(self.max_draft_tokens, ctx.room)
        while len(tokens) <= longest and (not sure or sure[-1] >= self.min_probability):
            feed = Feed.causal_chain(tokens[-1:], position + len(states), lane.decoder.device)
            x = lane.states_before(feed, self._enter, logits=1)
            states.append(x)
            feature = self._adapter(x, self._store.n + self._store.m, self._store)
            logits = require_finite(lane.decoder.unembed(feature), "the adapter kangaroo")[0, 0]
            rows.append(logits)
            sure.append(float(logits.softmax(-1).amax()))
            if sampler.greedy:
                token = int((sampler.warp(logits, state) if sampler.stateful else logits).argmax())
            else:
                laws.append(ctx.law(logits, state))
                token, u, *_ = ctx.chance.draw(laws[-1], position + len(states), "draft")
                us.append(u)
            tokens.append(token)
            state = sampler.update(state, token, logits) if sampler.stateful else state
        self._last = lane.states_before(
            Feed.causal_chain(tokens[-1:], position + len(states), lane.decoder.device), self._enter
        )
        notes = {
            "exit": "threshold" if sure[-1] < self.min_probability else "length",
            "sure": [round(x, 4) for x in sure],
            "layers": [self._enter, lane.decoder.spec.n_layers],
        }
        draft = Draft.chain(tokens[1:], source="target's first layers", notes=notes)
        draft.logits = ctx.keep_logits([ROOT, *range(len(draft) - 1)], rows)
        if laws:
            draft.kind, draft.q = "iid", torch.stack(laws)
            draft.q_row, draft.u = list(range(len(laws))), us
        if not lane.needs.attends:
            draft.enter, draft.states = self._enter, torch.cat([*states, self._last], 1)
        else:
            lane.rollback()
        return draft

    def _catch_up(self) -> None:
        """Let the adapter read the pending committed states."""
        self._store.rollback()
        if self._due is not None:
            for rows in self._due.split(CHUNK, 1):
                self._adapter(rows, self._store.n, self._store)
                self._store.commit(range(rows.shape[1]))
            self._due = None

    def observe(self, outcome: DraftOutcome) -> None:
        kept = len(outcome.verdict.path) + 1  # the root and the accepted nodes
        drafted = len(outcome.draft)
        self._store.commit(range(min(kept, drafted)))
        self._due = self._last if kept > drafted else None
