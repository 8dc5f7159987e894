"""Lossless acceptance: the text is distributed as if the target had written it alone."""

from __future__ import annotations

from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.acceptance import (
    AcceptanceRule,
    Cursor,
    match_greedy,
    verify_tokenwise,
)
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import Draft, Verdict
from decodescope.engine.trace.records.evidence import Telling


@component
class Lossless(AcceptanceRule):
    """Accept child x with probability min(1, r(x) / q(x)), where r is the rest of the target's distribution.

    On rejection r becomes norm(max(r - q, 0)), and the rule tries the next sibling. If it rejects all siblings, it draws the
    token from r.

    q is the distribution from which this very child was drawn. One formula serves every kind of proposal: independent draws
    (SpecInfer), draws without replacement, and tokens chosen without chance. For draws without replacement, q is the
    distribution given the earlier siblings. For a token chosen without chance, q is 1 on the token: accept with r(x), on
    rejection take x out of r. For a chain this is Leviathan's rule; under a greedy distribution it is exact matching.
    """

    title = "Lossless"
    source = "Leviathan et al. 2023, arXiv:2211.17192, algorithm 1; trees: Miao et al. 2023, arXiv:2305.09781, section 4.3"
    telling = Telling(rest=True)

    def verify(self, draft: Draft, at: Cursor, chance: Chance) -> Verdict:
        return match_greedy(draft, at) if at.greedy else verify_tokenwise(draft, at, chance)
