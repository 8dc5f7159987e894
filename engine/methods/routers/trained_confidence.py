"""Trained confidence: a head on the small model's states decides whether its answer is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, cast

import torch

from decodescope.engine.core.component import component, param
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.answers import AnswerJudgement, Candidate, answers_form
from decodescope.engine.decoding.bases.router import Router, RouterQuestion
from decodescope.engine.model.heads.correctness import CorrectnessHead
from decodescope.engine.trace.details.declarations import LookForm

CORRECTNESS = replace(
    answers_form(
        "score of the trained head",
        "A trained head scores the answer, from the states that wrote it and the mean and lowest log-probability of its "
        "tokens; at tau or more it is kept.",
        "score",
    ),
    looks=[LookForm("law", "draft", "count(tokens)"), LookForm("net", "draft")],
)


@component
class TrainedConfidence(Router):
    """CascadeBERT's difficulty-aware confidence, by answer: keep the answer if a trained head's score is at least tau.

    The head reads the mean of the states that wrote the small model's answer, and the mean and lowest log-probability of its
    tokens. It was trained so that right answers score above wrong ones by a margin of 0.5 (weight 1, in addition to
    cross-entropy).

    In the paper the classifier itself is trained in this way. Here a net of one hidden layer is added to a frozen model, at two
    products of small matrices per answer. It works for answers of the length and kind that it was trained on: a few words.
    """

    title = "Trained confidence (CascadeBERT)"
    source = "Li et al. 2021, Findings of EMNLP, CascadeBERT; lancopku/CascadeBERT, cascade_bert.py (margin 0.5, weight 1)"
    caution = "The head was trained on answers of three tokens; of long ones it knows little."
    of: ClassVar[frozenset[str]] = frozenset({"answer"})
    details: ClassVar = {"answer_correctness": CORRECTNESS}
    lanes = ("draft",)
    lane_needs: ClassVar[Needs] = Needs(hidden=frozenset({"final"}))

    tau: float = param(
        0.5,
        low=0.0,
        high=1.1,
        step=0.05,
        help="minimum confidence to keep the small model's answer; 1.1: never keep it",
    )

    def refuse_model(self, role: str, spec: ModelSpec) -> str | None:
        if "correctness" in spec.heads:
            return None
        return (
            f"trained_confidence needs a head and {spec.name} has no heads/correctness: train it with python "
            "-m decodescope.training.correctness (shipped models only), "
            "or choose the router answer_confidence, which needs none."
        )

    def judge(self, answers: list[Candidate], question: RouterQuestion) -> AnswerJudgement:
        head, states = cast(CorrectnessHead, question.small.decoder.heads["correctness"]), question.states[0]
        logp = torch.tensor([answers[0].mean_logp, min(answers[0].logp)], device=states.device)
        question.add_look("law", len(answers[0].tokens))
        question.add_look("net", 1, head.sure_widths)
        return AnswerJudgement(float(head.confidence(states.mean(0), logp)))
