"""CoLoR: reads the sentences of a long passage that a scorer keeps; the scorer was trained on pairs of shortened versions."""

from __future__ import annotations

from typing import cast

import numpy as np

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.prompt_compression import PromptCompression, UnreadPrompt
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.color import SentenceScorer
from decodescope.engine.model.heads.files import missing_reason
from decodescope.engine.model.heads.relevance import center_embeddings
from decodescope.engine.trace.records.events import Cut
from decodescope.engine.trace.records.prompt_cut import shorten

from .shared.units import PromptText, question_knob, tokens_to_read


@component
class Color(PromptCompression):
    """A scorer rates each sentence, and the target reads the best ones.

    The score depends on the sentence's embeddings [t, d] and those of the protected tokens (the question, the chat's marks).
    Sentences above 0 are read, the highest first, until `keep_rate` of the removable tokens are read, to the nearest sentence.

    It was trained on preferences between two short versions of a prompt. The preferred version is the one behind which the
    target has the smaller loss on the right answer, with a penalty on length. Training minimises -ln sigmoid of how much
    likelier the scorer makes this version than the other (DPO). The reference of DPO, here a scorer that keeps every sentence
    with one half, cancels. The scorer reads embeddings alone, so no model runs before the target reads.

    Difference from the paper: there a language model of billions of parameters rewrites passages for retrieval, trained by ORPO
    with a length term. This code chooses sentences and rewrites nothing.
    """

    title = "CoLoR (chosen sentences)"
    source = "Seo et al. 2024, Efficient Long Context Language Model Retrieval with Compression (recalled); going-doer/CoLoR"

    keep_rate: float = param(
        0.5,
        low=0.0,
        high=1.0,
        step=0.01,
        unit="of the tokens",
        help="maximum share of the removable prompt that the target reads",
    )
    unit: str = param(
        "sentence",
        choices=("sentence", "phrase"),
        help="what is kept or left out as a whole: a sentence or a phrase",
    )
    keep_question: str = question_knob()

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return missing_reason("color", spec, "the prompt_compression selective_context")

    def cut(self, reading: UnreadPrompt) -> Cut | None:
        text = PromptText(reading)
        stays = text.protected_mask(self.keep_question)
        starts = text.unit_starts(self.unit) if text.known else [0]
        spans = list(zip(starts, [*starts[1:], text.n], strict=True))
        if stays.all() or len(spans) < 2:
            return None
        head = cast(SentenceScorer, reading.decoder.heads["color"])
        e = center_embeddings(
            reading.decoder.embed_rows(Feed.causal_chain(reading.tokens, 0, reading.decoder.device))[0]
        )
        free, fixed = np.add.reduceat((~stays).astype(np.int64), starts), int(stays.sum())
        worth = np.zeros(len(starts), np.float32)
        some = [x for x, y in zip(spans, free.tolist(), strict=True) if y]
        worth[free > 0] = head.scores(e, e[np.flatnonzero(stays).tolist()], some).cpu().numpy()
        due = fixed + min(int(free[worth > 0].sum()), tokens_to_read(stays, 1 - self.keep_rate) - fixed)
        if due == text.n:
            return None
        scores = np.repeat(worth, np.diff([*starts, text.n]))
        return shorten(scores, stays, due, unit=self.unit, units=np.array(starts, np.int32), worth=worth)
