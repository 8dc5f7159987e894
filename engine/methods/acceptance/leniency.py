"""Leniency: lossless acceptance with an easier test. Lossy."""

from __future__ import annotations

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.acceptance import (
    AcceptanceRule,
    Cursor,
    match_greedy,
    verify_tokenwise,
)
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import Draft, Verdict
from decodescope.engine.trace.records.evidence import (
    DRAFT,
    DRAW,
    TARGET,
    Column,
    Quantity,
    Relation,
    Sum,
    Telling,
    make_line,
)


@component
class Leniency(AcceptanceRule):
    """Accept child x with probability min(1, f(r(x)) / q(x)), where r is the rest of the target's distribution.

    On rejection r becomes norm(max(f(r) - q, 0)). linear: f = r / epsilon, square: r / epsilon^2, exponential: r^epsilon.

    epsilon = 1 is the lossless rule. A smaller epsilon accepts more, and the text may be further from the target's
    distribution. Linear is Leviathan's leniency l = epsilon, which scales q by l in the test and in the residual. With any
    number of siblings, no token becomes more than 1 / l times as likely as under the target. The bound of square is 1 /
    epsilon^2; exponential has none. A position without drafted tokens keeps the target's own distribution.

    Summaries of the paper state the three forms; the residual with the same f is recalled, not verified. Under a greedy
    distribution this code matches exactly, where Leviathan would accept p(x) >= l max p. In the trace, a trial's threshold is
    f(r) / q and its num is f(r). ok is exactly `u * q < f`, in doubles.
    """

    title = "Leniency"
    source = (
        "Zhou et al. 2024 (DistillSpec), arXiv:2310.08461; Leviathan et al. 2023, arXiv:2211.17192, leniency"
    )
    lossless = False
    changes = "tests are easier than the target's distribution"
    telling = Telling(
        num="f",
        left="what leniency left of",
        relations=[
            Relation("num == r / epsilon", 1e-6, {"form": "linear"}),
            Relation("num == r / epsilon ** 2", 1e-6, {"form": "square"}),
            Relation("num == r ** epsilon", 1e-6, {"form": "exponential"}),
            Relation("num >= r", 1e-6),
        ],
        counted=Column("lenient trials", "trial"),
        numbers=[
            TARGET,
            Quantity("raised", "f(r)", "num"),
            DRAFT,
            Quantity("threshold", "f / q", "num / den"),
            DRAW,
        ],
        card=[
            "Leniency raises the target's residual before the test, so more guesses stay. This rule changes the text."
        ],
        lines=[
            make_line(
                "Leniency raises the target's residual before it is compared, so more guesses stay.",
                Sum("f = r / {epsilon:g} = {num}    r = {r}", {"form": "linear"}),
                Sum("f = r / {epsilon:g}² = {num}    r = {r}", {"form": "square"}),
                Sum("f = r^{epsilon:g} = {num}    r = {r}", {"form": "exponential"}),
            )
        ],
        close="This rule changes the text: more of the draft's likings stay than the target has.",
    )

    form: str = param(
        "linear",
        choices=("linear", "square", "exponential"),
        help="how the target's probability p is raised: p / epsilon, p / epsilon^2 or p^epsilon",
    )
    epsilon: float = param(
        0.5, low=0.05, high=1.0, step=0.05, help="leniency of the test; 1: lossless, lower values accept more"
    )

    def verify(self, draft: Draft, at: Cursor, chance: Chance) -> Verdict:
        return (
            match_greedy(draft, at)
            if at.greedy
            else verify_tokenwise(draft, at, chance, lambda r, _: self.ease_distribution(r))
        )

    @property
    def is_additive(self) -> bool:
        return self.form != "exponential"

    def ease_distribution(self, r: Tensor) -> Tensor:
        """f(r) [V], which is never below r."""
        if self.form == "exponential":
            return r**self.epsilon
        return r / (self.epsilon if self.form == "linear" else self.epsilon**2)
