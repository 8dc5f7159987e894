"""Answer confidence: the small model's answer is kept if the model is confident of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.answers import AnswerJudgement, Candidate, answers_form
from decodescope.engine.decoding.bases.router import Router, RouterQuestion
from decodescope.engine.trace.details.declarations import LookForm

_FORM = answers_form(
    "p of a token",
    "The answer is kept where its tokens have at least tau, in the geometric mean.",
    "exp(mean(logp))",
    score="exp(mean(logp))",
)
LIKELIHOOD = replace(_FORM, looks=[LookForm("law", "draft", "count(tokens)")])


@component
class AnswerConfidence(Router):
    """CascadeBERT, by answer: keep the small model's answer if its confidence reaches tau.

    Otherwise the next complete model answers, not further layers of the same one. The paper's confidence is a classifier's
    largest probability. An answer of several tokens has no such number. Here it is the geometric mean of the small model's
    token probabilities, exp of the mean log-probability, before the sampler. It needs no training, and costs one softmax per
    token.

    The paper also trains the classifier so that easy items score above hard ones by a margin of 0.5. `trained_confidence` has a
    head trained in this way.
    """

    title = "Confidence (CascadeBERT)"
    source = "Li et al. 2021, Findings of EMNLP, CascadeBERT; lancopku/CascadeBERT, cascade_bert.py"
    of: ClassVar[frozenset[str]] = frozenset({"answer"})
    details: ClassVar = {"answer_likelihood": LIKELIHOOD}

    tau: float = param(
        0.6,
        low=0.0,
        high=1.1,
        step=0.05,
        help="minimum confidence to keep the small model's answer; 1.1: never keep it",
    )

    def judge(self, answers: list[Candidate], question: RouterQuestion) -> AnswerJudgement:
        question.add_look("law", len(answers[0].tokens))
        return AnswerJudgement(math.exp(answers[0].mean_logp))
