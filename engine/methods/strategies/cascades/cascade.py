"""Cascade: a small model answers, and a large model is asked if a router does not trust the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from decodescope.engine.core.component import component
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.decoding.bases.answers import Candidate
from decodescope.engine.decoding.bases.router import RouterQuestion
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.trace.details.looks import Look
from decodescope.engine.trace.details.shapes import Detail
from decodescope.engine.trace.records.events import EndReason

from ..shared.answers import write_answers
from ..shared.turns import prefill_model, router_conflict, write_token

if TYPE_CHECKING:
    from decodescope.engine.core.spec import ModelSpec


@dataclass
class _Decision:
    """The router's decision on the small model's answers. answer: the kept one;  details, looks: the step's records"""

    answer: Candidate | None
    details: list[Detail]
    looks: list[Look]


@component
class Cascade(Strategy):
    """The small model answers first, and the large model answers only if the router rejects the answer.

    The small model (the role draft) writes its whole answer, or several, and the router scores them. A kept answer is the text.
    Otherwise the target, the large model, reads the prompt and writes the text as in plain decoding. The trace records the
    small model's work in both cases: the cost of a run is the sum of both branches.

    The first step is the small model's answers and the decision. If no answer is kept, it also has the large model's first
    token; each later step is one further token.
    """

    title = "Cascade"
    source = "Li et al. 2021 (CascadeBERT), Findings of EMNLP; Yue et al. 2024, arXiv:2310.03094"
    uses = frozenset({"router", "sampler"})
    lanes = ("draft",)
    lossless = False
    changes = "a smaller model's answer may be kept"

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return router_conflict(self.name, method, "answer")

    def prefill(self, s: State) -> None:
        prefill_model(s, "small")

    def begin(self, s: State) -> None:
        s.scratch = None  # the small model has not run yet

    def step(self, s: State) -> Move:
        clock = s.target.executor
        started = clock.mark()
        record: dict[str, Any] = {}
        if s.scratch is None:
            decision, s.scratch = self._decide(s), True
            record = {"details": decision.details, "looks": decision.looks}
            if (answer := decision.answer) is not None:
                s.tokens += answer.tokens
                end: EndReason | None = "stop_token" if answer.ended else s.limit_reason(0)
                us = clock.elapsed_us(started, clock.mark())
                origins, state = ["draft"] * len(answer.tokens), s.sampler_state
                return Move(list(answer.tokens), origins, end, draft_us=us, sampler_state=state, **record)
        drafted = clock.mark()
        new = write_token(s, "large")
        token = new.verdict.token
        assert token is not None
        _, end = s.cut([token])
        s.tokens.append(token)
        s.chance.forget(len(s.tokens))
        return Move(
            [token],
            ["target"],
            end,
            Draft(),
            new.verdict,
            new.logits,
            draft_us=clock.elapsed_us(started, drafted),
            verify_us=clock.elapsed_us(drafted, new.at),
            commit_us=clock.elapsed_us(new.at, clock.mark()),
            sampler_state=new.before,
            **record,
        )

    def _decide(self, s: State) -> _Decision:
        """The small model's answers, and the router's decision on them."""
        small, router = s.lanes["draft"], s.router
        question = RouterQuestion(
            list(s.tokens), s.remaining_tokens, small, s.target, s.sampler, s.encode, s.piece
        )
        answers: list[Candidate] = []
        forms = router.forms(question)
        for form, prompt in enumerate(forms):
            if form == 0:
                answers += write_answers(s, small, prompt, router.copies, form, question.states)
                continue
            with s.target.open_side_lane("draft") as lane:
                answers += write_answers(s, lane, prompt, router.copies, form)
        judged = router.judge(answers, question)
        read = sum(x.tokens * x.batch for lane in (small, s.target) for x in lane.passes if x.lane == "draft")
        kept = bool(answers) and router.keeps(judged.score)
        details = router.answer_details(answers, judged, kept=kept, forms=len(forms), read=read)
        return _Decision(answers[judged.chosen] if kept else None, details, question.looks)
