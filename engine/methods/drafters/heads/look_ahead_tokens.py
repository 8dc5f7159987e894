"""PaSS: look-ahead tokens behind the text, where the target itself guesses what it will say later."""

from __future__ import annotations

from typing import ClassVar

import torch

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.values.draft import Draft

from ..shared.slot_drafter import SLOTS, SlotDrafter


@component
class LookAheadTokens(SlotDrafter):
    """Parallel speculative sampling, PaSS, which is no name that a module can have: the file is called after what is trained, L
    embeddings. Behind the root they are rows of a pass like any other; in number k (from 0) the target guesses the token k + 2
    after the root, while the root's own row says the next token.

    The paper takes two passes by turns, and here each is a step: one has the look-ahead tokens behind the root, drafts nothing
    and commits the next token; the other checks the chain of L guesses, and commits what is right of it and one token more. So
    `where` = "alone". With "everywhere" the look-ahead tokens hang behind the root and every drafted token of each pass, which
    then checks and drafts: only a text's first step has no draft, and a pass has (L + 1)^2 rows instead of L + 1. That is the
    form of SPACE and BiTA, with embeddings alone trained.

    A sampler that draws draws each guess from what it makes of the target's logits there, which the rule is told. Lossless.

    Notes: `slots`, look-ahead tokens behind the root and each drafted token; `look_ahead`, in which of them each token of the
    draft was guessed, from 1; `sure`, the largest probability there, before the sampler.
    """

    title = "PaSS (look-ahead tokens)"
    source = "Monea et al. 2023, arXiv:2311.13581; both passes in one: Yi et al. 2024, arXiv:2402.11809"
    proposes = "iid"
    reads = "look_ahead_tokens"
    tells: ClassVar[dict[str, Note]] = {
        "slots": SLOTS,
        "look_ahead": Note("node", "look-ahead", what="token in whose row it was guessed, from 1"),
        "sure": Note("node", "sure", what="the largest probability of the guess, before the sampler"),
    }

    max_draft_tokens: int = param(
        3,
        low=1,
        high=16,
        unit="tokens",
        help="maximum length of a draft (L); the number of trained tokens also limits it",
    )
    placement: str = param(
        "alone",
        choices=("alone", "everywhere"),
        help="add look-ahead tokens only to passes without a draft (alone), or to all (everywhere)",
    )

    def propose(self, ctx: Context) -> Draft:
        if ctx.room == 0:
            return Draft()
        draft = self._chain(ctx)
        asks = self.placement == "everywhere" or not draft.tokens
        most = min(self.max_draft_tokens, self._trained.shape["heads"]) if asks else 0
        draft.notes = {
            "slots": self.attach_slots(draft, [most] * (len(draft) + 1), ctx.room),
            **(draft.notes or {}),
        }
        return draft

    def _chain(self, ctx: Context) -> Draft:
        """The guesses as a chain, drawn one after the other where the sampler draws."""
        sampler, state = ctx.sampler, ctx.state
        guessed = () if self._guessed is None else tuple(self._guessed[: ctx.room])
        tokens = list[int]()
        laws = list[torch.Tensor]()
        us = list[float | None]()
        sure = list[float]()
        for i, logits in enumerate(guessed):
            sure.append(round(float(logits.softmax(-1).amax()), 4))
            if sampler.greedy:
                tokens.append(int((sampler.warp(logits, state) if sampler.stateful else logits).argmax()))
            else:
                laws.append(ctx.law(logits, state))
                token, u, *_ = ctx.chance.draw(laws[-1], ctx.position + i, "draft")
                tokens.append(token)
                us.append(u)
            state = sampler.update(state, tokens[-1], logits) if sampler.stateful else state
        draft = Draft.chain(tokens, source="look-ahead tokens")
        draft.notes = {"look_ahead": list(range(1, len(tokens) + 1)), "sure": sure}
        if laws:
            draft.kind = "iid"
            draft.q = torch.stack(laws)
            draft.q_row = list(range(len(laws)))
            draft.u = us
        return draft
