"""TLI: a draft model with another vocabulary drafts only tokens that the target has too."""

from __future__ import annotations

from typing import ClassVar

import torch

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.values.draft import Draft

from ..shared.model_tree import ModelTree, scheduled_chain


@component
class TLI(DrawnDrafter):
    """Token-level intersection: speculative sampling as in `draft_model`, by a draft model with another tokenizer.

    The draft model samples only tokens that both vocabularies have: its logits are set to -inf at all others, before the
    sampler. So its distribution q is renormalised over the intersection, and is 0 outside of it. The rule gets q over the
    target's ids, and the text keeps the target's distribution. Tokens are the same if they have the same bytes and are marks
    in both vocabularies or in neither.

    The draft model reads the text as its own tokenizer splits it. When the text grows, its end is encoded again, and the model
    reads again from the first token that differs. If the text ends within a character that the draft model has no tokens for,
    nothing is drafted. If the sampler leaves no token of the intersection, a chain ends with the token that it chose.

    With equal tokenizers the drafts are those of `draft_model`, to the bit. `shared` is the probability that the draft model
    gave to the intersection: what is missing from 1 was cut. A chain costs `max_draft_tokens` passes of the draft model and an
    encoding of the text's end. transformers translates the token after the accepted ones alone; here the text is always as the
    draft model's tokenizer would write it.
    """

    title = "Token-level intersection (TLI)"
    source = "Timor et al. 2025, arXiv:2502.05202, algorithm 4; huggingface/transformers, generation/candidate_generator.py"
    lanes = ("draft",)
    own_tokens = ("draft",)
    tells: ClassVar[dict[str, Note]] = {
        "shared": Note(
            "node", "shared", what="probability that the draft model gave to tokens of both vocabularies"
        ),
    }

    max_draft_tokens: int = param(4, low=1, high=16, unit="tokens", help="maximum length of a draft (gamma)")

    @property
    def uses_schedule(self) -> bool:
        return True

    def propose(self, ctx: Context) -> Draft:
        tree = ModelTree(ctx)
        draft = scheduled_chain(ctx, self.max_draft_tokens, tree)
        if draft.tokens:
            shares = torch.stack([x[0] for x in tree.shared]).tolist() if tree.shared else [1.0] * len(draft)
            draft.notes = {**(draft.notes or {}), "shared": [round(x, 4) for x in shares[: len(draft)]]}
        return draft
