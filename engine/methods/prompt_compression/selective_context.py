"""Selective Context: removes the parts of the prompt that a model predicts easily."""

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
    """A scorer reads the prompt, and units that it predicts well are removed.

    The score of a token is its loss I = -ln p(token | the text before it). Units are ranked by the mean of their tokens'
    scores. Units with the lowest scores are removed first, until the next one would exceed `reduce_ratio` of the removable
    tokens. Marks of a chat, the last token and the question are not removable.

    The scorer reads sentence by sentence, one pass each, with the model's beginning-of-text mark in front. Or it reads the
    prompt as a whole, so that a repeated statement is expected the second time. It costs a prefill of the scorer with all its
    logits [n, V], 256 rows at a time. A first token with nothing before it has no score, and stays.

    Differences from the authors' code: their phrases are spaCy's noun chunks; here phrases end at commas and before function
    words. Their threshold is a percentile of units; this one counts tokens, so the kept prompt has the requested length, to the
    nearest unit. The question stays; they leave that to the caller. The paper sums the scores of tokens, and its
    code takes their mean: `unit_score` chooses either.
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
            return text.shorten_by_character(scores, stays, due)
        starts = text.unit_starts(unit)
        units, by_unit = np.array(starts, np.int32), unit_scores(scores, starts, self.unit_score)
        return shorten(scores, stays, due, unit=unit, units=units, worth=by_unit)
