"""Leniency: lossless acceptance with its test made easier. Lossy."""

from __future__ import annotations

from torch import Tensor

from ..chance import Chance
from ..component import component, param
from ..draft import Draft, Verdict
from .base import AcceptanceRule, Cursor, match, one_by_one


@component
class Leniency(AcceptanceRule):
    """Accept child x with probability min(1, f(r(x)) / q(x)), r being what is left of the target's law; on refusal r becomes
    norm(max(f(r) - q, 0)). linear: f = r / epsilon, square: r / epsilon^2, exponential: r^epsilon.

    epsilon = 1 is the lossless rule; the smaller it is, the more is accepted and the further the text may be from the
    target's law. Linear is Leviathan's leniency l = epsilon, q scaled by l in the test and in the residual: no token
    becomes more than 1 / l times as likely as the target makes it, at any number of siblings. The bound of square is
    1 / epsilon^2, exponential has none. A place where nothing was drafted keeps the target's own law.

    The forms square and exponential, and the residual with the same f, are as recalled from the paper, not verified. We
    match exactly under a greedy law, where Leviathan would accept p(x) >= l max p. In the trace a trial's threshold is
    f(r) / q, and `rule` holds f(r) of every trial: ok is exactly `u * q < f`, in doubles.
    """

    title = "Leniency"
    source = "Zhou et al. 2024 (DistillSpec), arXiv:2310.08461; Leviathan et al. 2023, arXiv:2211.17192, leniency"
    lossless = False

    form: str = param("linear", choices=("linear", "square", "exponential"), help="how the target's probability is raised")
    epsilon: float = param(0.5, low=0.05, high=1.0, step=0.05, help="1 is lossless; lower accepts more")

    def verify(self, draft: Draft, at: Cursor, chance: Chance) -> Verdict:
        return match(draft, at) if at.greedy else one_by_one(draft, at, chance, self.raise_law)

    def raise_law(self, r: Tensor) -> Tensor:
        """f(r) [V], which is never below r."""
        if self.form == "exponential":
            return r**self.epsilon
        return r / (self.epsilon if self.form == "linear" else self.epsilon**2)
