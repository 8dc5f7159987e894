"""PaSS: trained look-ahead tokens after the text let the target itself guess its later tokens."""

from __future__ import annotations

from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.values.draft import Draft

from ..shared.chain_drawing import SURE
from ..shared.slot_drafter import SLOTS, SlotDrafter


@component
class LookAheadTokens(DrawnDrafter, SlotDrafter):
    """Parallel speculative sampling, PaSS, with L trained embeddings.

    `pass` cannot name a module, so the file is named after what is trained. The L look-ahead tokens are rows of a pass behind
    the root. In row k (from 0) the target guesses the token k + 2 after the root; the root's own row gives the next token.

    The paper alternates two passes, and here each is a step. One pass has the look-ahead tokens behind the root, drafts nothing
    and commits the next token. The other verifies the chain of L guesses, and commits its correct part and one token more. This
    is `placement` = "alone". With "everywhere", look-ahead tokens follow the root and every drafted token of each pass, which
    then verifies and drafts. Only the first step of a text has no draft, and a pass has (L + 1)^2 rows instead of L + 1. That
    is the form of SPACE and BiTA, with only embeddings trained.

    A random sampler draws each guess from its distribution of the target's logits there, and passes this distribution to the
    rule. Lossless.

    Notes: `slots`, look-ahead tokens behind the root and each drafted token; `look_ahead`, the number (from 1) of the
    look-ahead token that guessed each token of the draft; `sure`, the largest probability there, before the sampler.
    """

    title = "PaSS (look-ahead tokens)"
    source = "Monea et al. 2023, arXiv:2311.13581; both passes in one: Yi et al. 2024, arXiv:2402.11809"
    draw_kind = "iid"
    reads = "look_ahead_tokens"
    tells: ClassVar[dict[str, Note]] = {
        "slots": SLOTS,
        "look_ahead": Note("node", "look-ahead", what="token in whose row it was guessed, from 1"),
        "sure": SURE,
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
        """The guesses as a chain, and the look-ahead token of each."""
        draft = self.draw_chain(ctx, "look-ahead tokens")
        draft.notes = {"look_ahead": list(range(1, len(draft) + 1)), **(draft.notes or {"sure": []})}
        return draft
