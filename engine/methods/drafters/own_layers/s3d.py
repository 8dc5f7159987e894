"""S3D: in one pass without its middle layers, the target guesses all tokens of a draft from masks behind the text."""

from __future__ import annotations

from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import Skip

from ..shared.chain_drawing import SURE, draw_together
from ..shared.layer_skipping import SKIPPED
from ..shared.mask_token import mask_id, mask_knob, mask_refusal


@component
class S3D(DrawnDrafter):
    """Skippy simultaneous speculative decoding: mid-layer skipping and several tokens a pass, with no second model.

    A draft is one pass of `max_draft_tokens` rows: the root, and masks behind it. The root's row guesses the next token, the
    row of mask j the token j + 1 of the draft. A mask sees the text, the root and the masks before it. Only the first and the
    last layers run; a span in the middle is left out. They read the target's own cache, and their pending rows are dropped.
    Then the whole target verifies the chain, so a step costs this part of its layers for the draft and all of them once.

    The model was fine-tuned to guess from the mask while the span is left out. The text is that of the tuned model, and the
    method is lossless for it, with any mask and any span. Under a random sampler each token is drawn from the distribution of
    its own row, which the draft records. With one token there is no mask. With no layer skipped it is PARD's pass, by the
    target itself.
    """

    title = "S3D (masks, middle layers skipped)"
    source = "Zhong and Bharadwaj 2024, arXiv:2405.20314 (its abstract; the rest recalled); no code was found"
    draw_kind = "iid"
    tells: ClassVar[dict[str, Note]] = {**SKIPPED, "sure": SURE}

    max_draft_tokens: int = param(
        4,
        low=1,
        high=16,
        unit="tokens",
        help="length of the draft, guessed in one pass; the paper finds about 4 best",
    )
    skip_ratio: float = param(
        0.5,
        low=0.0,
        high=0.9,
        step=0.05,
        help="share of the layers that a draft leaves out, in the middle; first and last layer always run",
    )
    mask_token: int = mask_knob()

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.max_draft_tokens == 1:
            return None
        return mask_refusal(self.name, self.mask_token, spec)

    def skipped_layers(self, spec: ModelSpec) -> range:
        """The layers that a draft leaves out: a span with as many layers before it as behind it, or one more behind."""
        count = min(round(self.skip_ratio * spec.n_layers), max(0, spec.n_layers - 2))
        first = (spec.n_layers - count) // 2
        return range(first, first + count)

    def begin(self, ctx: Context) -> None:
        span = frozenset(self.skipped_layers(ctx.target.decoder.spec))
        self._skip = Skip(span, span)

    def propose(self, ctx: Context) -> Draft:
        lane, count = ctx.target, min(self.max_draft_tokens, ctx.room)
        if count == 0:
            return Draft()
        mask = mask_id(self.mask_token, lane.decoder.spec)
        assert mask is not None or count == 1, "a model without a mask token was refused"
        fed = [ctx.tokens[-1], *[mask or 0] * (count - 1)]
        feed = Feed.causal_chain(fed, ctx.position - 1, lane.decoder.device)
        logits = lane.forward(feed, "draft", skip=self._skip)[0]
        lane.rollback()
        draft = draw_together(ctx, logits, "masks, layers skipped")
        span = sorted(self._skip.attn)
        draft.notes = {"attn": span, "ffn": span, **(draft.notes or {})}
        return draft
