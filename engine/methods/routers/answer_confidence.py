"""Answer confidence: the small model's answer is kept if it is sure of it."""

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
    """CascadeBERT, by answer: the small model's answer stays where its confidence reaches tau, else the next complete model is
    asked, and not further layers of the same one. The paper's confidence is a classifier's largest probability; an answer of
    several tokens has no such number, so it is here the geometric mean of what the small model gave its tokens, exp of the
    mean log-probability, before the sampler. It needs no training, and costs a softmax a token.

    The paper also trains the classifier so that easy items stand above hard ones by a margin of 0.5. `trained_confidence` has a
    head trained so.
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
