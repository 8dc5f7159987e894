"""Lossless acceptance: the text is distributed as if the target had written it alone."""

from __future__ import annotations

from torch import Tensor

from ..chance import Chance
from ..component import component
from ..draft import Draft, Origin, Trial, Verdict
from .base import AcceptanceRule, Cursor, left_over, match


@component
class Lossless(AcceptanceRule):
    """Accept child x with probability min(1, r(x) / q(x)), r being what is left of the target's law; on refusal r becomes
    norm(max(r - q, 0)) and the next sibling is tried; when all are refused the token is drawn from r.

    q is the law from which this very child was drawn. One formula serves every kind of proposal: independent draws
    (SpecInfer), draws without replacement (q is then the law given the earlier siblings), and tokens chosen without
    chance (q is 1 on the token: accept with r(x), on refusal take x out of r). A chain is Leviathan's rule, a greedy law
    exact matching.
    """

    title = "Lossless"
    source = "Leviathan et al. 2023, arXiv:2211.17192, algorithm 1; trees: Miao et al. 2023, arXiv:2305.09781, section 4.3"

    def verify(self, draft: Draft, at: Cursor, chance: Chance) -> Verdict:
        if at.greedy:
            return match(draft, at)
        path: list[int] = []
        trials: list[Trial] = []
        places: list[tuple[int, Tensor | None]] = []
        while True:
            p = r = at.probs
            places.append((at.node, p))
            children = draft.children(at.node)
            for child in children:
                x, q = draft.tokens[child], draft.law(child)
                r_x, q_x = float(r[x]), 1.0 if q is None else float(q[x])
                ok, u = chance.accept(r_x, q_x, at.position)
                trials.append(Trial(child, float(p[x]), r_x, q_x, u, r_x / q_x if q_x > 0 else 0.0, ok))
                if ok:
                    path.append(child)
                    at = at.descend(child)
                    break
                r = left_over(r, q, x)
            else:
                drawn = chance.draw(r, at.position)
                origin: Origin = "residual" if children else "bonus" if draft.tokens else "target"
                return Verdict(path, drawn.token, origin, trials, drawn.u, drawn.low, drawn.high, places=places)
