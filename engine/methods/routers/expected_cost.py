"""Expected cost: whether the small model is asked at all, by its price and its chance of being wrong."""

from __future__ import annotations

from typing import ClassVar, cast

from decodescope.engine.core.component import component, param
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.cost.cost import PassShape, pass_cost
from decodescope.engine.decoding.bases.router import Judged, Question, Router
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.correctness import CorrectnessHead
from decodescope.engine.trace.details.answered import Bet, Candidate, keeps, worth_of


@component
class ExpectedCost(Router):
    """Model multiplexing, by answer, before either model writes: a head on the small model's state at the prompt's last token
    says how likely its answer is wrong, and the small model is asked where c_S + P(wrong) c_M < c_M, that is where
    (1 - P(wrong)) c_M / c_S is above tau = 1. Prices are FLOPs of the prompt and of `length` tokens. An answer of the small
    model stays, unseen: that it is right is the bet.

    The paper chooses so for each query beside a cache of answers (`decodescope workload` has one). Here the small model reads
    the prompt to say P(wrong), which is most of its price where answers are short, and is paid for either way.
    """

    title = "Expected cost (multiplexing)"
    source = "Zhu et al. 2023, arXiv:2306.02003"
    caution = "The head was trained on answers of three tokens; of long ones it knows little."
    of: ClassVar[frozenset[str]] = frozenset({"answer"})
    by = "expected"
    lanes = ("draft",)
    lane_needs: ClassVar[Needs] = Needs(hidden=frozenset({"final"}))

    tau: float = param(
        1.0, low=0.0, high=1e6, help="the small model is asked where its answer is worth so much of its price"
    )
    length: int = param(16, low=1, high=4096, unit="tokens", help="that an answer is expected to have")

    def lacks(self, role: str, spec: ModelSpec) -> str | None:
        if CorrectnessHead.kind in spec.heads:
            return None
        return (
            f"expected_cost needs a head and {spec.name} has no heads/correctness: train it with python "
            "-m decodescope.training.correctness (shipped models only), "
            "or choose the router answer_confidence, which needs none."
        )

    def forms(self, question: Question) -> list[list[int]]:
        small, large = question.small, question.large
        head = cast(CorrectnessHead, small.decoder.heads[CorrectnessHead.kind])
        small.forward(
            Feed.causal(question.tokens[-1:], len(question.tokens) - 1, small.decoder.device), "draft"
        )
        assert small.probe is not None
        wrong = float(head.wrong(small.probe.hidden["final"][0, -1]))
        question.look("net", 1, head.wrong_widths)
        small.commit([])  # the answer, if there is one, reads this token again
        prices = (self._price(lane.decoder.spec, len(question.tokens)) for lane in (small, large))
        question.bet = Bet(wrong, *prices)
        return [question.tokens] if keeps(worth_of(question.bet), self.tau, self.above) else []

    def judge(self, answers: list[Candidate], question: Question) -> Judged:
        assert question.bet is not None
        return Judged(worth_of(question.bet), bet=question.bet)

    def _price(self, spec: ModelSpec, prompt: int) -> float:
        """FLOPs of an answer, prompt included. Its tokens, a pass for each, cost together what one block of them does."""
        read = pass_cost(spec, PassShape(prompt - 1, 0, logits=1)).flops if prompt > 1 else 0
        return float(read + pass_cost(spec, PassShape(self.length, prompt - 1, logits=self.length)).flops)
