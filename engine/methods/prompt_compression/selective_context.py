"""Selective Context: what a model expects anyway is left out of the prompt."""

from __future__ import annotations

import numpy as np

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.prompt_compression import UnreadPrompt
from decodescope.engine.trace.records.events import Cut
from decodescope.engine.trace.records.prompt_cut import shorten

from .shared.scoring_context import ScoringContext, scorer_knob
from .shared.surprise import surprise_by_piece
from .shared.units import PromptText, question_knob, tokens_to_read, unit_scores


@component
class SelectiveContext(ScoringContext):
    """A scorer reads the prompt, and tells of each token I = -ln p(token | what stands before it): its own loss there. Units,
    the mean of their tokens', are ranked; those that tell least are left out, the least first, until the next one would make it
    more than `ratio` of the tokens that may go. Marks of a chat, the last token and the question may not.

    The scorer reads sentence by sentence, each behind the model's own mark of a beginning, in a pass each; or the prompt as a
    whole, so that what is said twice is expected the second time. It costs a prefill of the scorer with all its logits [n, V],
    256 rows at a time. A first token with nothing before it has no score, and stays.

    Beside the authors' code: their phrases are spaCy's noun chunks, ours end at commas and before function words; their
    threshold is a percentile of units, ours counts tokens, so what is kept is as long as was asked for, to a unit; the question
    stays, which they leave to the caller. The paper sums what tokens tell [recalled], its code takes the mean: `by` is either.
    """

    title = "Selective Context"
    source = (
        "Li et al. 2023, arXiv:2310.06201; liyucheng09/Selective_Context, src/selective_context/__init__.py"
    )

    reduce_ratio: float = param(
        0.35,
        low=0.0,
        high=1.0,
        step=0.01,
        unit="of the tokens",
        help="share of the removable prompt that is left out",
    )
    unit: str = param(
        "phrase",
        choices=("phrase", "sentence", "token"),
        help="what is left out as a whole: a phrase, a sentence or a token",
    )
    unit_score: str = param(
        "mean",
        choices=("mean", "sum"),
        help="score of a unit: the mean or the sum of its tokens' self-information",
    )
    scorer_context: str = param(
        "sentence",
        choices=("sentence", "prompt"),
        help="what the scorer reads before a token: its own sentence, or the whole text so far",
    )
    scorer: str = scorer_knob()
    keep_question: str = question_knob()

    def cut(self, reading: UnreadPrompt) -> Cut | None:
        text = PromptText(reading)
        stays = text.protected_mask(self.keep_question)
        due = tokens_to_read(stays, self.reduce_ratio)
        if due == text.n:
            return None
        pieces = text.unit_starts("sentence") if self.scorer_context == "sentence" else [0]
        with reading.lane(self.scorer) as lane:
            scores = surprise_by_piece(
                lane, reading.front, reading.tokens, pieces, reading.between(self.scorer)
            )
        stays |= np.isnan(scores)
        scores = np.nan_to_num(scores)
        unit = self.unit if text.known else "token"
        if unit == "token":
            return shorten(scores, stays, due)
        starts = text.unit_starts(unit)
        units, by_unit = np.array(starts, np.int32), unit_scores(scores, starts, self.unit_score)
        return shorten(scores, stays, due, unit=unit, units=units, worth=by_unit)
