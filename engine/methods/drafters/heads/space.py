"""SPACE: a target that was fine-tuned with mask tokens verifies candidates and guesses the next ones in the same pass."""

from __future__ import annotations

from typing import ClassVar

import torch

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.drafting.slot_tokens import SlotTokens

from ..shared.chain_drawing import SURE
from ..shared.mask_token import mask_id, mask_knob, mask_refusal
from ..shared.slot_drafter import SLOTS, SlotDrafter


@component
class Space(DrawnDrafter, SlotDrafter):
    """Smart parallel auto-correct decoding: k masks follow the root and each of k candidates.

    In the row of mask j (from 0) the target guesses the token j + 2 after the group's place. The group at the end of the
    accepted path makes the next candidates, so one pass of (k + 1)^2 rows verifies and drafts. All masks are one token of the
    vocabulary. The model has no further net: its own weights were fine-tuned, on ordinary text and on groups of masks, which
    learn the tokens ahead. So the text is that of the tuned model, and the method is lossless for this model. A model
    that never learnt the mask guesses badly, and its text stays the same.

    The first pass has no candidates; the authors' code fills it with masks, which never match. Under a random sampler each
    candidate is drawn from its row's distribution. The authors' code then draws the replacement of a rejected one from the
    target's distribution p, which is not exact. Here the acceptance rule does it.

    Notes: `slots`, masks behind the root and each candidate; `mask`, the number (from 1) of the mask that guessed each token;
    `sure`, the largest probability there, before the sampler.
    """

    title = "SPACE (masks of a tuned target)"
    source = "Yi et al. 2024, arXiv:2402.11809, section 3; cteant/SPACE, tests/eval_infer.py, src/llmtuner/dsets/preprocess.py"
    draw_kind = "iid"
    tells: ClassVar[dict[str, Note]] = {
        "slots": SLOTS,
        "mask": Note("node", "mask", what="in whose row it was guessed, from 1"),
        "sure": SURE,
    }

    max_draft_tokens: int = param(
        5,
        low=1,
        high=16,
        unit="tokens",
        help="candidates of a pass, and masks behind each of them (k); as many as the model was tuned with",
    )
    mask_token: int = mask_knob()

    def missing_slots(self, spec: ModelSpec) -> str | None:
        return mask_refusal(self.name, self.mask_token, spec)

    def slot_tokens(self, ctx: Context) -> SlotTokens:
        decoder = ctx.target.decoder
        mask = mask_id(self.mask_token, decoder.spec)
        assert mask is not None, "a model without a mask token was refused"
        row = decoder.embed_rows(Feed.causal_chain([mask], 0, decoder.device))[0]  # [1, d]
        slots = SlotTokens(row.shape[1], self.max_draft_tokens)
        slots.embeds = torch.nn.Parameter(row.expand(self.max_draft_tokens, 1, -1), requires_grad=False)
        return slots

    def propose(self, ctx: Context) -> Draft:
        if ctx.room == 0:
            return Draft()
        draft = self.draw_chain(ctx, "mask tokens")
        draft.notes = {
            "slots": self.attach_slots(draft, [self.max_draft_tokens] * (len(draft) + 1), ctx.room),
            "mask": list(range(1, len(draft) + 1)),
            **(draft.notes or {"sure": []}),
        }
        return draft
