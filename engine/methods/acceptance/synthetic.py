"""Synthetic acceptance: drafts stay at set rates, whatever the models say. For timing only: the text is nobody's."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.acceptance import (
    AcceptanceRule,
    Cursor,
    origin_behind,
    residual_distribution,
)
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import Draft, Origin, Trial, Verdict, as_array
from decodescope.engine.trace.records.evidence import (
    DRAW,
    TARGET,
    Column,
    Quantity,
    Relation,
    Telling,
    make_line,
)


@component
class Synthetic(AcceptanceRule):
    """Accept the i-th drafted token with a set probability, without looking at p or q. The text is not the model's.

    a_i is the share of drafts of which at least the first i tokens stay. So token i, once it is reached, stays with probability
    c_i = a_i / a_(i-1), where a_0 = 1. Behind the last rate given, nothing stays. `acceptance_length` L gives the rates
    instead: 1 for the first floor(L - 1) tokens, then the fraction that is left. Then a step writes L tokens on average, if
    drafts are long enough.

    This shows how fast a drafter would be at acceptance rates that a paper or a better draft model promises. Nothing else about
    the run means anything: do not read or score its text. Time and passes are real.

    The token after a rejection comes from norm(max(p - q, 0)), and under a greedy distribution it is the target's choice, as in
    the official code. Chains only. In the trace, a trial's num is c_i and its den is 1; `rule` holds a.
    """

    title = "Synthetic acceptance (timing only)"
    source = "vLLM, rejection_sample_method synthetic: vllm/config/speculative.py, commit 002e77c1"
    caution = (
        "For timing only: tokens stay at set rates, so the text is not the model's. Do not read or score it."
    )
    lossless = False
    keeps_law = False
    matches = False
    chain_only = True
    changes = "not the model's text: drafts stay at set rates, for timing only"
    telling = Telling(
        num="c",
        den="",
        left="what the draft left of",
        columns=[Column("a", "running")],
        relations=[Relation("num * before(a) == a", 1e-6), Relation("den == 1", 0.0)],
        counted=Column("synthetic trials", "trial"),
        numbers=[TARGET, Quantity("set rate", "c{k:g}", "num"), DRAW],
        card=["Token {k:g} stays in {num:of} because that rate was set. This is not the model's text."],
        lines=[
            make_line(
                "The rates were set beforehand; neither model was asked.",
                "c{k:g} = a{k:g} / a{k - 1:g} = {a} / {before(a)} = {num}",
            )
        ],
        close="This is not the model's text: it serves to measure time.",
    )

    acceptance_rates: tuple[float, ...] = param(
        (0.8, 0.6, 0.45, 0.35, 0.25),
        low=0.0,
        high=1.0,
        most=64,
        help="share of drafts of which at least the first 1, 2, ... tokens stay, falling, e.g. 0.8,0.6,0.4",
    )
    acceptance_length: float = param(
        0.0,
        low=0.0,
        high=65.0,
        step=0.1,
        unit="tokens",
        help="mean number of tokens a step writes, at least 1, instead of the rates; 0: use the rates",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if 0 < self.acceptance_length < 1:
            return (
                f"synthetic.acceptance_length = {self.acceptance_length:g}: a step writes at least 1 token; give 1 or more, or "
                "0 for the rates."
            )
        if any(b > a for a, b in pairwise(self.acceptance_rates)):
            said = ",".join(f"{x:g}" for x in self.acceptance_rates)
            return (
                f"synthetic.acceptance_rates = {said}: a rate is above the one before it, and drafts of which more tokens stay "
                "cannot be more frequent; give falling rates."
            )
        return None

    def share_kept(self, count: int) -> float:
        """a_i: the share of drafts of which at least the first `count` tokens stay."""
        if count == 0:
            return 1.0
        if self.acceptance_length:
            return min(1.0, max(0.0, self.acceptance_length - count))
        return self.acceptance_rates[count - 1] if count <= len(self.acceptance_rates) else 0.0

    def verify(self, draft: Draft, at: Cursor, chance: Chance) -> Verdict:
        path: list[int] = []
        trials: list[Trial] = []
        places: list[tuple[int, Tensor | None]] = []
        a = [1.0]
        origin: Origin = origin_behind(draft)
        law: Tensor | None = None
        while True:
            law = None if at.greedy else at.probs
            places.append((at.node, law))
            child = next(iter(draft.children(at.node)), None)
            if child is None:
                break
            x = draft.tokens[child]
            a.append(self.share_kept(len(path) + 1))
            rate = a[-1] / a[-2] if a[-2] > 0 else 0.0
            ok, u = chance.accept(rate, 1.0, at.position)
            p_x = float(as_array(at.model_probs)[x])
            trials.append(Trial(child, p_x, p_x, draft.draw_probability(child), u, rate, ok, rate, 1.0))
            if not ok:
                origin = "correction" if law is None else "residual"
                law = None if law is None else residual_distribution(law, draft.law(child), x)
                break
            path.append(child)
            at = at.descend(child)
        rule = {"a": a} if trials else None
        if law is None:
            return Verdict(path, at.choice, origin, trials, rule=rule, places=places)
        drawn = chance.draw(law, at.position)
        return Verdict(path, drawn.token, origin, trials, drawn.u, drawn.low, drawn.high, rule, places)
