"""Luck: a router that no file of the package knows. It keeps an answer whose first token is likely enough."""

from __future__ import annotations

import math
from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.answers import AnswerJudgement, Candidate, answers_form
from decodescope.engine.decoding.bases.router import Router, RouterQuestion

LUCK = answers_form(
    "luck", "An answer is kept where its luck reaches tau.", "exp(sum(logp))", score="exp(sum(logp))"
)


@component
class BorrowedRouter(Router):
    """The luck of an answer is the probability of its tokens together."""

    title = "Luck"
    source = "made up for a test"
    of: ClassVar[frozenset[str]] = frozenset({"answer"})
    details: ClassVar = {"lucky_answer": LUCK}

    tau: float = param(0.1, low=0.0, high=1.1, help="luck from which on an answer is kept")

    def judge(self, answers: list[Candidate], question: RouterQuestion) -> AnswerJudgement:
        return AnswerJudgement(math.exp(sum(answers[0].logp)))
