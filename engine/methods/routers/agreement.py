"""Agreement: the small model is asked several times in two forms; its majority answer is kept if enough answers agree."""

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
    """Mixture of Thought, by answer: score the small model by the agreement of its samples.

    `samples` answers are drawn to the question in each of two forms. The score is the share of all samples that agree with the
    most frequent answer. If the score is at least tau, the first sample with this answer is kept. The samples of a form share
    one copy of their prompt, with one pass per token.

    The paper's forms are a chain of thought and a program of thought, and an interpreter runs the programs. Models as small as
    the shipped ones can use neither: the second form is the prompt with `second_prompt_suffix` behind it. The paper sweeps tau
    from 0.4 to 1. Answers agree if they have the same text, ignoring white space, or, by `compare`, the same last number. With
    a greedy sampler all samples of a form are the same: use temperature.
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
        """The text of an answer, without the token that ends it."""
        ids = answer.tokens[: len(answer.tokens) - answer.ended]
        if question.piece is None:
            return " ".join(map(str, ids))
        text = " ".join(join(ids, {x: question.piece(x) for x in ids}).split())
        numbers = _NUMBER.findall(text) if self.compare == "number" else []
        return numbers[-1] if numbers else text
