"""Blockwise parallel decoding: heads guess the next few tokens at once, and the target verifies them as one block."""

from __future__ import annotations

from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.values.draft import ROOT, Draft

from ..shared.head_tree import HeadState


@component
class Blockwise(HeadState):
    """The heads read the target's final feature [d] of the token before the root.

    Head k guesses the token k + 1 after the root, whatever the tokens between are. The likeliest tokens of all heads make one
    chain. One pass of the target verifies this block and gives the heads the state for the next one.

    The paper's head 1 is the target itself, so its k is the number of heads here plus one. Its rule, the longest prefix that
    head 1 would have chosen, is exact matching: greedy text is the target's. The draft is chosen without chance, so it is
    lossless under any sampler with the lossless rule. The paper's looser rules are left out: a token within the target's top k,
    a token within a distance where tokens are numbers, a minimum block length. They change greedy text, which no rule here
    does. Costs one pass of the heads and the unembedding. At the first step after a prompt of one token, the target has no
    state yet and nothing is drafted.
    """

    title = "Blockwise parallel decoding"
    source = "Stern et al. 2018, arXiv:1811.03115, sections 3, 4 and 6"
    reads = "blockwise"
    tells: ClassVar[dict[str, Note]] = {
        "sure": Note("node", "sure", what="probability that the head gives its likeliest token"),
    }

    max_draft_tokens: int = param(
        16,
        low=1,
        high=16,
        unit="tokens",
        help="maximum length of a draft; the number of trained heads also limits it",
    )

    def propose(self, ctx: Context) -> Draft:
        if self._state is None or ctx.room == 0:
            return Draft()
        logits = self._heads.logits(self._heads(self._state), ctx.target.decoder)  # [K, V]
        sure, tokens = logits[: min(ctx.room, self.max_draft_tokens)].softmax(-1).max(-1)
        notes = {"sure": [round(x, 4) for x in sure.tolist()]}
        draft = Draft.chain(tokens.tolist(), source="blockwise heads", notes=notes)
        draft.logits = ctx.keep_logits([ROOT, *range(len(draft) - 1)], logits)
        return draft
