"""PARD: a draft model guesses all tokens of a draft in one pass, from mask tokens behind the text."""

from __future__ import annotations

from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.values.draft import Draft, Proposal
from decodescope.engine.model.forward.feed import Feed

from ..shared.chain_drawing import SURE, draw_together


@component
class Pard(DrawnDrafter):
    """A draft model that was fine-tuned to guess several tokens ahead.

    Its one pass a draft reads the new tokens of the text and `max_draft_tokens` - 1 mask tokens behind them. The row of the
    last token guesses the next one, the row of mask j the token j + 1 of the draft. A mask sees the text and the masks before
    it, so no guess knows another. Tokens join the model's cache, masks do not. With one token there is no mask, and it is
    `draft_model` with one token.

    The draft is a chain; each token is drawn, under a sampler that draws, from the distribution of its own distance, which the
    draft records. Costs a pass of as many rows as tokens are guessed, where a chain of `draft_model` takes as many passes.

    The model is a folder as AMD publishes it: config.json names the mask token as `pard_token`. Any other model guesses badly
    from a token that it never saw, so one without that key is refused. The authors draft 12 tokens greedily, which is
    `draft_temperature` 0.
    """

    title = "PARD"
    source = "An et al. 2025, arXiv:2504.18583, section 3; AMD-AGI/PARD, pard/pard_infer.py"
    lanes = ("draft",)
    independent = True
    tells: ClassVar[dict[str, Note]] = {
        "sure": SURE,
    }

    max_draft_tokens: int = param(
        8, low=1, high=32, unit="tokens", help="length of the draft, guessed in one pass; the authors use 12"
    )

    @property
    def draw_kind(self) -> Proposal:
        """Each token is drawn from the distribution of its own distance."""
        return "iid"

    def refuse_model(self, role: str, spec: ModelSpec) -> str | None:
        if spec.causal and spec.mask_token is not None and spec.mask_token < spec.vocab:
            return None
        return (
            f"{self.name} drafts from mask tokens, and {spec.name} has learnt none: give a draft model of AMD's PARD, whose "
            "config.json names pard_token, or choose the drafter draft_model."
        )

    def propose(self, ctx: Context) -> Draft:
        count = min(self.max_draft_tokens, ctx.room)
        if count == 0:
            return Draft()
        lane = ctx.lanes["draft"]
        mask = lane.decoder.spec.mask_token
        assert mask is not None, "a model without a mask token was refused"
        read = min(lane.common_prefix_length(ctx.tokens), len(ctx.tokens) - 1)
        lane.truncate(read)
        new = ctx.tokens[read:]
        fed = [*new, *[mask] * (count - 1)]
        guessing = list(range(len(new) - 1, len(fed)))
        feed = Feed.causal_chain(fed, read, lane.decoder.device, logits=guessing)
        rows = lane.forward(feed, "draft")[0, -count:]
        lane.commit(list(range(len(new))), compress=False)
        return draw_together(ctx, rows, lane.decoder.spec.name)
