"""Universal assisted decoding: a draft model with another vocabulary drafts text, which the target's tokenizer splits."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context, DraftLength
from decodescope.engine.decoding.bases.draft_sampler import DraftSampler
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.bases.sampler import Sampler
from decodescope.engine.decoding.values.draft import Draft

from ..shared.model_tree import ModelTree, scheduled_chain


@component
class UniversalAssisted(Drafter):
    """The draft model drafts text greedily, in its own tokens, and the target's tokenizer splits it into tokens of the target.

    Draft tokens have no probability of their own, so each is judged as chosen without chance, q = 1. The text keeps the
    target's distribution. Unlike `tli`, a draft may hold any token of the target, also ones that the draft model lacks.

    What was drafted is encoded together with the last tokens of the text. If the tokenizer would then split these differently,
    fewer are taken, in the end none: committed tokens never change. A draft ends before a mark of the draft model, or with it
    if the target has the same one, and before half a character for which the target has no tokens. The draft model reads
    the text as in `tli`.

    With equal tokenizers the drafts are those of `draft_model` at `draft_temperature` = 0, without the sampler's warps. A draft
    costs `max_draft_tokens` passes of the draft model and two encodings. It is cut to `max_draft_tokens` tokens of the target.
    Note `written`: the tokens that the draft model wrote.
    """

    title = "Universal assisted decoding"
    source = "huggingface/transformers, generation/candidate_generator.py, AssistedCandidateGeneratorDifferentTokenizers"
    lanes = ("draft",)
    own_tokens = ("draft",)
    tells: ClassVar[dict[str, Note]] = {
        "written": Note("series", "written", "tokens", "of the draft model, in its own vocabulary"),
    }

    max_draft_tokens: int = param(
        8, low=1, high=32, unit="tokens", help="maximum length of a draft, in tokens of either model"
    )

    @property
    def no_guess_reason(self) -> str:
        return "what the draft model wrote made no token of the target"

    def draft_sampler(self, sampler: Sampler) -> Sampler:
        return DraftSampler(Sampler(), 0.0)

    def propose(self, ctx: Context) -> Draft:
        lane = ctx.lanes["draft"]
        text = lane.own_ids(ctx.tokens)
        room = min(ctx.room, lane.decoder.spec.max_positions - len(text))
        if not text or room < 1:
            return Draft()
        own = replace(ctx, tokens=text, room=room, state=None, schedule=DraftLength())
        chain = scheduled_chain(own, self.max_draft_tokens, ModelTree(own, own_ids=True))
        written = tokens = chain.tokens
        if lane.translated is not None:
            tokens = lane.translated.vocabulary.to_target_tokens(ctx.tokens, written)
        notes = {"written": len(written)} if tokens else None
        limit = min(self.max_draft_tokens, ctx.room)
        draft = Draft.chain(tokens[:limit], source=lane.decoder.spec.name, notes=notes)
        draft.logits = chain.logits if lane.translated is None else {}  # else it is over other ids
        return draft
