"""Typical acceptance: keep what the target finds likely enough. Lossy."""

from __future__ import annotations

import math

from torch import Tensor

from ..chance import Chance
from ..component import component, param
from ..draft import ROOT, Draft, Origin, Trial, Verdict
from .base import AcceptanceRule, Cursor, match


@component
class Typical(AcceptanceRule):
    """Accept node x where p(x) > min(epsilon, delta * exp(-H(p))), H the entropy of p in nats; take the longest accepted
    path, among equally long ones the most likely. The next token is drawn from p at its end.

    Changes the output: an unlikely token that passes the bound is kept as if it had been drawn. Under a greedy law it is
    exact matching. One test per node: a node that several paths share is not tried twice. In the trace a trial's
    threshold is the bound, and `rule` holds the entropy at each visited place.
    """

    title = "Typical acceptance (Medusa)"
    source = "Cai et al. 2024, arXiv:2401.10774, section 2.3.2"
    lossless = False

    epsilon: float = param(0.09, low=0.0, high=1.0, step=0.01, help="hard bound on the probability")
    delta: float = param(0.3, low=0.0, high=1.0, step=0.01, help="bound relative to exp(-entropy)")

    def verify(self, draft: Draft, at: Cursor, chance: Chance) -> Verdict:
        if at.greedy:
            return match(draft, at)
        trials: list[Trial] = []
        entropies: list[float] = []
        places: list[tuple[int, Tensor | None]] = []
        paths: list[tuple[int, float, list[int], Cursor]] = [(0, 0.0, [], at)]
        for length, score, path, cursor in paths:  # grows while it is walked: breadth first
            p = cursor.probs
            bound = self.bound(cursor.entropy)
            entropies.append(cursor.entropy)
            places.append((cursor.node, p))
            for child in draft.children(cursor.node):
                p_x = float(p[draft.tokens[child]])
                trials.append(Trial(child, p_x, p_x, 1.0, None, bound, p_x > bound))
                if p_x > bound:
                    paths.append((length + 1, score + math.log(p_x), [*path, child], cursor.descend(child)))
        _, _, path, cursor = max(paths, key=lambda x: x[:2])
        drawn = chance.draw(cursor.probs, cursor.position)
        stuck = bool(draft.children(path[-1] if path else ROOT))
        origin: Origin = "target" if not draft.tokens else "residual" if stuck else "bonus"
        rule = {"entropy": entropies} if len(draft) else None
        return Verdict(path, drawn.token, origin, trials, drawn.u, drawn.low, drawn.high, rule, places)

    def bound(self, entropy: float) -> float:
        """The probability that a token must exceed under a law of this entropy, in nats."""
        return min(self.epsilon, self.delta * math.exp(-entropy))
