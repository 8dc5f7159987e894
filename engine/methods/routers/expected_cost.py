"""Expected cost: the small model is asked only if its cost and its chance of being wrong make that cheaper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, cast

from decodescope.engine.core.component import component, param
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.cost.cost import PassShape, pass_cost
from decodescope.engine.decoding.bases.answers import (
    ROUNDING,
    UNASKED,
    AnswerJudgement,
    Candidate,
    answers_form,
)
from decodescope.engine.decoding.bases.router import Router, RouterQuestion
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.correctness import CorrectnessHead
from decodescope.engine.trace.details.declarations import (
    DetailColumn,
    LookForm,
    Outcome,
    Relation,
    Sentence,
    TallyForm,
)


def _bet_form() -> TallyForm:
    """The form of a bet's tally: the small model is asked and its answer stays, or it is not asked."""
    rule = "The small model is asked where what it saves is tau times its price or more."
    form = answers_form("price it is worth", rule, "score")
    bet = "Before any answer: {wrong:3} that the small model is wrong, at {small / large:3} of the price."
    chance = "The chance that the small model is wrong was put at {wrong:p}."
    unasked = Outcome(
        False, "tau", [Sentence("the large model at once")], [Relation("kept == 0"), Relation("asked == 0")]
    )
    assert form.scale is not None
    return replace(
        form,
        outcomes={"kept": form.outcomes["kept"], UNASKED: unasked},
        order=[f"kept|{UNASKED}"],
        values=[*form.values, *(DetailColumn(name, "number") for name in ("wrong", "small", "large"))],
        totals=[Relation("score == (1 - wrong) * large / small", ROUNDING)],
        lines=[form.lines[0], Sentence(bet), *form.lines[1:]],
        scale=replace(form.scale, lines=[*form.scale.lines, Sentence(chance)]),
        looks=[LookForm("net", "draft")],
    )


PRICE = _bet_form()


@component
class ExpectedCost(Router):
    """Model multiplexing, by answer: choose one model before either writes.

    A head on the small model's state at the prompt's last token estimates the probability P(wrong) that its answer is wrong.
    The small model is asked if c_S + P(wrong) c_M < c_M, that is if (1 - P(wrong)) c_M / c_S is above tau = 1. Prices are FLOPs
    of the prompt and of `answer_tokens` tokens. An answer of the small model stays without a check: the router bets that it is
    right.

    The paper makes this choice for each query, together with a cache of answers (`decodescope workload` has one). Here the
    small model reads the prompt to estimate P(wrong). For short answers this is most of its price, and it is paid in either
    case.
    """

    title = "Expected cost (multiplexing)"
    source = "Zhu et al. 2023, arXiv:2306.02003"
    caution = "The head was trained on answers of three tokens; of long ones it knows little."
    of: ClassVar[frozenset[str]] = frozenset({"answer"})
    details: ClassVar = {"answer_price": PRICE}
    lanes = ("draft",)
    lane_needs: ClassVar[Needs] = Needs(hidden=frozenset({"final"}))

    tau: float = param(
        1.0,
        low=0.0,
        high=1e6,
        help="multiple of its own cost that the small model must save on average to be asked",
    )
    answer_tokens: int = param(
        16, low=1, high=4096, unit="tokens", help="expected length of an answer, for the estimate of its cost"
    )

    def refuse_model(self, role: str, spec: ModelSpec) -> str | None:
        if CorrectnessHead.kind in spec.heads:
            return None
        return (
            f"expected_cost needs a head and {spec.name} has no heads/correctness: train it with python "
            "-m decodescope.training.correctness (shipped models only), "
            "or choose the router answer_confidence, which needs none."
        )

    def forms(self, question: RouterQuestion) -> list[list[int]]:
        small, large = question.small, question.large
        head = cast(CorrectnessHead, small.decoder.heads[CorrectnessHead.kind])
        small.forward(
            Feed.causal_chain(question.tokens[-1:], len(question.tokens) - 1, small.decoder.device), "draft"
        )
        assert small.probe is not None
        wrong = float(head.wrong_probability(small.probe.hidden["final"][0, -1]))
        question.add_look("net", 1, head.wrong_widths)
        small.commit([])  # the answer, if any, reads this token again
        prices = [self._price(lane.decoder.spec, len(question.tokens)) for lane in (small, large)]
        question.bet = {"wrong": wrong, "small": prices[0], "large": prices[1]}
        return [question.tokens] if self.keeps(saving_ratio(question.bet)) else []

    def judge(self, answers: list[Candidate], question: RouterQuestion) -> AnswerJudgement:
        return AnswerJudgement(saving_ratio(question.bet), values=question.bet)

    def _price(self, spec: ModelSpec, prompt: int) -> float:
        """FLOPs of an answer, including the prompt.

        Its tokens, with a pass each, cost together as much as one block of them.
        """
        read = pass_cost(spec, PassShape(prompt - 1, 0, logits=1)).flops if prompt > 1 else 0
        return float(
            read + pass_cost(spec, PassShape(self.answer_tokens, prompt - 1, logits=self.answer_tokens)).flops
        )


def saving_ratio(bet: Mapping[str, float]) -> float:
    """The mean saving of a small answer, divided by its price: c_S + P(wrong) c_M < c_M if it is above 1.

    bet: "wrong", the probability that the small answer is wrong; "small" and "large", FLOP of an answer of each model
    """
    return (1 - bet["wrong"]) * bet["large"] / bet["small"]
