"""Agreement: the small model is asked several times in two forms, and what most answers say is kept if enough agree."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.answers import AnswerJudgement, Candidate, answers_form
from decodescope.engine.decoding.bases.router import Router, RouterQuestion
from decodescope.engine.trace.details.declarations import DetailColumn
from decodescope.engine.trace.records.pieces import join

_NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*")
_FORM = answers_form(
    "votes",
    "The answer with the most votes is kept where they are at least tau: the part of all that agree.",
    "votes",
    score="votes",
)
VOTES = replace(_FORM, columns=[*_FORM.columns, DetailColumn("votes", "number")])


@component
class Agreement(Router):
    """Mixture of Thought, by answer: `samples` answers are drawn to the question in each of two forms, and the share that
    agrees with the most frequent answer, of all samples of both forms, is the score. The first answer that says it is
    kept from tau on. Samples of a form hold and read their prompt once, in one pass a token.

    The paper's forms are a chain of thought and a program of thought, and an interpreter runs the programs. Models as small as
    the shipped ones think in neither: the second form is the prompt with `second` behind it. Its tau is swept from 0.4 to 1.
    Answers agree where they have the same text, white space aside, or, by `compare`, the same last number. With a greedy
    sampler all samples of a form are one and the same: use temperature.
    """

    title = "Agreement (Mixture of Thought)"
    source = "Yue et al. 2024, arXiv:2310.03094; MurongYue/LLM_MoT_cascade, Evaluation/utils.py"
    of: ClassVar[frozenset[str]] = frozenset({"answer"})
    details: ClassVar = {"answer_votes": VOTES}

    tau: float = param(
        0.6,
        low=0.0,
        high=1.1,
        step=0.05,
        help="share of answers that must agree to keep the small model's answer; 1.1: never keep it",
    )
    samples: int = param(
        4, low=1, high=32, unit="answers", help="how many are sampled for each form of the question (k)"
    )
    second_prompt_suffix: str = param(
        "\nAnswer:",
        lines=True,
        most=2000,
        help="text appended to the prompt for its second form; empty: one form only",
    )
    compare: str = param(
        "text",
        choices=("text", "number"),
        help="what must match for two answers to agree: the whole text, or its last number",
    )

    @property
    def copies(self) -> int:
        return self.samples

    def forms(self, question: RouterQuestion) -> list[list[int]]:
        if not self.second_prompt_suffix:
            return [question.tokens]
        behind = [] if question.encode is None else question.encode(self.second_prompt_suffix)
        return [question.tokens, [*question.tokens, *behind]]

    def judge(self, answers: list[Candidate], question: RouterQuestion) -> AnswerJudgement:
        said = [self._answer_text(x, question) for x in answers]
        counts = Counter(said)
        votes = [counts[x] / len(said) for x in said]
        return AnswerJudgement(max(votes), votes.index(max(votes)), {"votes": votes})

    def _answer_text(self, answer: Candidate, question: RouterQuestion) -> str:
        """What an answer says, without the token that ends it."""
        ids = answer.tokens[: len(answer.tokens) - answer.ended]
        if question.piece is None:
            return " ".join(map(str, ids))
        text = " ".join(join(ids, {x: question.piece(x) for x in ids}).split())
        numbers = _NUMBER.findall(text) if self.compare == "number" else []
        return numbers[-1] if numbers else text
