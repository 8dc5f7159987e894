"""Ensemble: what is sampled is a mixture of the target's distribution and the draft's. Lossy, by a known amount."""

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
    Telling,
    make_line,
)


@component
class StaticEnsemble(AcceptanceRule):
    """Verify each drafted token against v = w p + (1 - w) q instead of p: accept x with probability min(1, v(x) / q(x)).

    On rejection the token comes from norm(max(v - q, 0)), which is norm(max(p - q, 0)) for every w > 0. So a drafted place has
    exactly the distribution v. Its total variation to the target's distribution is (1 - w) TV(p, q), and a token is accepted
    with probability 1 - w TV(p, q). No rule accepts more at that distance (the paper's theorem on the static ensemble). w = 1
    is the lossless rule; w = 0 keeps every draft. For a token that was chosen without chance, q is one-hot, and a rejection is
    w times as likely as under the lossless rule.

    The place behind the last drafted token has no q and keeps p. For a whole text there is no bound: distances add up over its
    places. The paper's second half, a trained head that sets w at each place, is not part of this. Chains only. Under a greedy
    distribution this code matches exactly. In the trace, a trial's num is v(x).
    """

    title = "Ensemble (DIVERSED, static weight)"
    source = (
        "Wang et al. 2026, arXiv:2604.07622, static ensemble; comeusr/diversed, commit 3750237b, static_en"
    )
    lossless = False
    keeps_law = False
    changes = "a share of each drafted place is the draft's own distribution"
    exact_for = frozenset({"onehot", "iid", "mixed"})
    chain_only = True
    telling = Telling(
        num="v",
        left="what the draft left of the mixture with",
        relations=[Relation("num == target_weight * r + (1 - target_weight) * q", 1e-6)],
        counted=Column("mixed trials", "trial"),
        numbers=[
            TARGET,
            Quantity("mixture", "v(x)", "num"),
            DRAFT,
            Quantity("threshold", "v / q", "num / den"),
            DRAW,
        ],
        card=[
            "The distribution here is the target's to {target_weight:g}, the draft's for the rest. This rule changes the text."
        ],
        lines=[
            make_line(
                "The draft is held against a mixture of both distributions instead of the target's own.",
                "v = {target_weight:g} · p + {1 - target_weight:g} · q = {num}",
            )
        ],
        close="This rule changes the text: each drafted place has the mixture's distribution.",
    )

    target_weight: float = param(
        0.7,
        low=0.0,
        high=1.0,
        step=0.05,
        help="weight of the target in the sampled mixture (w); 1: lossless, 0: the draft's own text",
    )

    @property
    def is_additive(self) -> bool:
        return False

    def verify(self, draft: Draft, at: Cursor, chance: Chance) -> Verdict:
        if at.greedy:
            return match_greedy(draft, at)

        def mixture(r: Tensor, child: int) -> Tensor:
            q, w = draft.law(child), self.target_weight
            if q is not None:
                return w * r + (1 - w) * q
            law = w * r
            law[draft.tokens[child]] += 1 - w
            return law

        return verify_tokenwise(draft, at, chance, mixture)
