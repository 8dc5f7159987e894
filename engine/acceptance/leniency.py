"""Leniency: lossless acceptance with its test made easier. Lossy."""

from __future__ import annotations

from torch import Tensor

from ..chance import Chance
from ..component import component, param
from ..draft import Draft, Origin, Trial, Verdict
from .base import AcceptanceRule, Cursor, left_over, match


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
        if at.greedy:
            return match(draft, at)
        path: list[int] = []
        trials: list[Trial] = []
        raised: list[float] = []
        places: list[tuple[int, Tensor | None]] = []
        while True:
            p = r = at.probs
            places.append((at.node, p))
            children = draft.children(at.node)
            for child in children:
                x, q, f = draft.tokens[child], draft.law(child), self.raise_law(r)
                f_x, q_x = float(f[x]), 1.0 if q is None else float(q[x])
                ok, u = chance.accept(f_x, q_x, at.position)
                trials.append(Trial(child, float(p[x]), float(r[x]), q_x, u, f_x / q_x if q_x > 0 else 0.0, ok))
                raised.append(f_x)
                if ok:
                    path.append(child)
                    at = at.descend(child)
                    break
                r = left_over(f, q, x)
            else:
                drawn = chance.draw(r, at.position)
                origin: Origin = "residual" if children else "bonus" if draft.tokens else "target"
                rule = {"f": raised} if len(draft) else None
                return Verdict(path, drawn.token, origin, trials, drawn.u, drawn.low, drawn.high, rule, places)

    def raise_law(self, r: Tensor) -> Tensor:
        """f(r) [V], which is never below r."""
        if self.form == "exponential":
            return r**self.epsilon
        return r / (self.epsilon if self.form == "linear" else self.epsilon**2)
