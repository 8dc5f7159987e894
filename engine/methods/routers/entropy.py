"""Entropy: the large model writes if the distributions of the last tokens have a high entropy."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.answers import AnswerJudgement, Candidate, answers_form
from decodescope.engine.decoding.bases.router import Router, RouterQuestion, Turn, WrittenToken
from decodescope.engine.trace.details.declarations import (
    BesideForm,
    DetailColumn,
    LookForm,
    Outcome,
    Relation,
    Sentence,
    TallyForm,
)
from decodescope.engine.trace.details.shapes import Detail, TallyDetail
from decodescope.engine.trace.details.turns import LANES, WRITER_LANES, Size, next_writer, turn_outcome

_LARGE, _SMALL = "the large model goes on", "the small model goes on"
_SHORT = ": {turn} of at least {min_turn_tokens} in a row"
_FREE = Relation("turn >= min_turn_tokens")
_BOUND = Relation("turn <= min_turn_tokens - 1")
TURN = TallyForm(
    title="Which model writes",
    number="bits, mean",
    bar="tau",
    value="mean",
    says=[
        Sentence(f"by the {lane} model, the {following} one goes on", {"lane": lane, "outcome": outcomes})
        for following, outcomes in (
            ("large", ["large", "large stays"]),
            ("small", ["small", "even", "small stays"]),
        )
        for lane in LANES
    ],
    row=[Sentence("{token}")],
    outcomes={
        "large": Outcome(True, "bar", [Sentence(_LARGE)], [_FREE]),
        "small": Outcome(False, "bar", [Sentence(_SMALL)], [_FREE]),
        "even": Outcome(False, "", [Sentence(_SMALL)], [_FREE, Relation("mean == bar", 0.0)]),
        "large stays": Outcome(True, "", [Sentence(_LARGE + _SHORT)], [_BOUND]),
        "small stays": Outcome(False, "", [Sentence(_SMALL + _SHORT)], [_BOUND]),
    },
    lines=[
        Sentence("The {lane} model wrote this token, of a law of {bits:2} bits."),
        Sentence(
            "Where its last laws have tau bits or less on average the small model writes, else the large one."
        ),
        Sentence(
            "Before that the {lane} model read {caught} tokens that it had not seen: that is paid too.",
            where="caught >= 1",
        ),
    ],
    columns=[
        DetailColumn("token", "token"),
        DetailColumn("lane", "text"),
        DetailColumn("bits", "number"),
        DetailColumn("mean", "number"),
        DetailColumn("outcome", "text"),
    ],
    values=[DetailColumn(name, "number") for name in ("bar", "turn", "caught")],
    order=["large|small|even|large stays|small stays"],
    relations=[Relation("caught >= 0"), Relation("turn >= 1")],
    emits="",
    check="turns",
    part="router",
    beside=BesideForm("Whose turn it is then:", Sentence("{mean:3} bits on average")),
    lanes=replace(
        WRITER_LANES,
        number="bits",
        what="entropy of the writer's law, bits",
        head="bits",
        bar="bar",
        mean="mean",
    ),
    looks=[LookForm("entropy", role, given={"lane": lane}) for lane, role in LANES.items()],
)
_FORM = answers_form(
    "bits of a token",
    "The answer is kept where its laws have at most tau bits on average.",
    "mean(bits)",
    score="mean(bits)",
    above=False,
)
ANSWER = replace(_FORM, looks=[LookForm("entropy", "draft", "count(tokens)")])


@component
class Entropy(Router):
    """Entropy Adaptive Decoding, by token: the mean entropy of the last tokens decides which model writes.

    H_t is the entropy in bits of the writing model's next-token distribution, before the sampler. If the mean of the last
    `window` values is above tau, the large model writes, otherwise the small one. The decision applies once the writer has made
    `min_turn_tokens` tokens in a row. A model that takes over first reads, in one block, what the other one wrote. The trace
    charges this; the paper's cost, parameters per token, leaves it out.

    The entropies of two models are not on one scale: `large_tau_offset` is added to tau while the large one writes. The
    accessible parts of the paper do not state `first_model`, the handling of the window at a change (`reset_window`), or the
    minimum stay; 10 is ours. With tau at its highest and the small model first, the text is the small model's. With tau below 0
    and the large model first, it is the large model's.

    By answer (strategy cascade) the window is the whole answer: the small model's answer is kept if its tokens have up to tau
    bits on average. That form is ours.
    """

    title = "Entropy (EAD)"
    source = "Simonds 2025, arXiv:2502.06833 [recalled: reviews of it; no official code was found]"
    of = frozenset({"token", "answer"})
    above = False
    details: ClassVar = {"model_turn": TURN, "answer_entropy": ANSWER}

    tau: float = param(
        1.0, low=-1.0, high=64.0, unit="bits", help="mean entropy above which the large model takes over"
    )
    large_tau_offset: float = param(
        0.0, low=-64.0, high=64.0, unit="bits", help="offset added to tau while the large model writes"
    )
    window: int = param(
        5, low=1, high=1024, unit="tokens", help="length of the window over which the entropy is averaged (w)"
    )
    min_turn_tokens: int = param(
        10,
        low=1,
        high=1024,
        unit="tokens",
        help="minimum length of a turn before the other model may take over (d_min)",
    )
    first_model: str = param("large", choices=("small", "large"), help="which model writes the first token")
    reset_window: bool = param(
        False, help="empty the window of entropies whenever the other model takes over"
    )

    @property
    def opening_model(self) -> Size:
        return "small" if self.first_model == "small" else "large"

    def score(self, logits: Tensor) -> float:
        law = logits.double().log_softmax(-1)
        # a token with probability 0 adds no bits
        return float(-(law.exp() * law.clamp_min(-1e4)).sum()) / math.log(2)

    def turn(self, active: Size, scores: list[float], stay: int) -> Turn:
        del scores[: -self.window]
        mean = sum(scores) / len(scores)
        tau = self.tau + (self.large_tau_offset if active == "large" else 0.0)
        following = next_writer(active, mean, tau, stay, self.min_turn_tokens)
        if self.reset_window and following != active:
            scores.clear()
        return Turn(mean, tau, following)

    def turn_details(self, written: WrittenToken, turn: Turn) -> list[Detail]:
        outcome = turn_outcome(written.wrote, turn.mean, turn.bar, written.stay, self.min_turn_tokens)
        columns: dict[str, list[Any]] = {
            "token": [written.token],
            "lane": [written.wrote],
            "bits": [written.score],
            "mean": [turn.mean],
            "outcome": [outcome],
        }
        values = {"bar": turn.bar, "turn": written.stay, "caught": written.caught}
        return [TallyDetail("model_turn", columns, values)]

    def judge(self, answers: list[Candidate], question: RouterQuestion) -> AnswerJudgement:
        question.add_look("entropy", len(answers[0].tokens))
        return AnswerJudgement(answers[0].mean_bits)
