"""Patience: a rule that no file of the package knows. The less sure the target is, the easier its test."""

from __future__ import annotations

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.acceptance import (
    AcceptanceRule,
    Cursor,
    match_greedy,
    residual_distribution,
)
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import Draft, Origin, Trial, Verdict
from decodescope.engine.trace.records.evidence import Column, Quantity, Relation, Telling, make_line


@component
class BorrowedRule(AcceptanceRule):
    """Accept child x with probability min(1, f(r(x)) / q(x)), where f = r (1 + gain H).

    H is the entropy in nats of the target's distribution at the place. On refusal r becomes norm(max(f - q, 0)). gain = 0 is
    the lossless rule.
    """

    title = "Patience"
    source = "made up for a test"
    lossless = False
    changes = "the test is easier by some nats"
    telling = Telling(
        num="f",
        title="patience",
        left="what patience left of",
        columns=[Column("H", "place")],
        relations=[Relation("num == r * (1 + gain * H)", 1e-6)],
        counted=Column("patient trials", "trial"),
        numbers=[
            Quantity("target", "p(x)", "p"),
            Quantity("unsure", "H, nats", "H"),
            Quantity("stretched", "r·(1 + {gain:g}·H)", "num"),
            Quantity("draft", "q(x)", "q"),
            Quantity("patient threshold", "f / q", "num / den"),
            Quantity("draw", "u", "u"),
        ],
        card=["The target is unsure by {H} nats here, so its word counts {1 + gain * H:2}-fold."],
        lines=[
            make_line(
                "Patience stretches the target's residual by how unsure it is.",
                "f = r · (1 + {gain:g} · H) = {r} · (1 + {gain:g} · {H}) = {num}",
            )
        ],
        close="This rule changes the text: where the target hesitates, the draft has its way.",
    )

    gain: float = param(0.5, low=0.0, high=4.0, step=0.1, help="how much a nat of entropy adds")

    def verify(self, draft: Draft, at: Cursor, chance: Chance) -> Verdict:
        if at.greedy:
            return match_greedy(draft, at)
        path: list[int] = []
        trials: list[Trial] = []
        entropies: list[float] = []
        places: list[tuple[int, Tensor | None]] = []
        while True:
            p = r = at.probs
            places.append((at.node, p))
            children = draft.children(at.node)
            entropies += [at.entropy] if children else []
            for child in children:
                x, q, f = draft.tokens[child], draft.law(child), r * (1 + self.gain * at.entropy)
                q_x, f_x = 1.0 if q is None else float(q[x]), float(f[x])
                ok, u = chance.accept(f_x, q_x, at.position)
                trials.append(
                    Trial(child, float(p[x]), float(r[x]), q_x, u, f_x / q_x if q_x > 0 else 0.0, ok, f_x)
                )
                if ok:
                    path.append(child)
                    at = at.descend(child)
                    break
                r = residual_distribution(f, q, x)
            else:
                drawn = chance.draw(r, at.position)
                origin: Origin = "residual" if children else "bonus" if draft.tokens else "target"
                rule = {"H": entropies} if entropies else None
                return Verdict(
                    path, drawn.token, origin, trials, drawn.u, drawn.low, drawn.high, rule, places
                )
