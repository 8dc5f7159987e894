"""Typical acceptance: accept tokens that the target finds likely enough. Lossy."""

from __future__ import annotations

import math

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.acceptance import (
    AcceptanceRule,
    Cursor,
    match_greedy,
    next_token_knob,
    origin_behind,
)
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import ROOT, Draft, Origin, Trial, Verdict
from decodescope.engine.trace.records.evidence import TARGET, Column, Quantity, Relation, Telling, make_line


@component
class Typical(AcceptanceRule):
    """Accept node x where p(x) > min(epsilon, delta * exp(-H(p))), where H is the entropy of p in nats.

    Take the longest accepted path; of equally long ones, the most likely. `next_token` chooses what follows the end of the
    path: the likeliest token of p there, as in the official code (and Hydra's), or one drawn from p.

    The rule changes the output: it keeps an unlikely token that passes the bound as if the token had been drawn. `likeliest`
    draws nothing, not even in a step without a draft. Only the draft is then random, and a draft chosen without chance gives
    one text for every seed. `drawn` leaves more of the target's distribution in the text. Under a greedy distribution both are
    exact matching. Each node has one test: a node that several paths share is not tried twice. In the trace, a trial's den is
    the bound, and `rule` holds the entropy at each position with guesses. A likeliest token has no u.
    """

    title = "Typical acceptance (Medusa)"
    source = (
        "Cai et al. 2024, arXiv:2401.10774, section 2.3.2; FasterDecoding/Medusa, medusa/model/utils.py, fast"
    )
    lossless = False
    changes = "what the target finds likely enough is kept"
    telling = Telling(
        den="b",
        path="longest",
        likeliest={"next_token": "likeliest"},
        columns=[Column("entropy", "place")],
        relations=[Relation("den == min(epsilon, delta * exp(-entropy))")],
        numbers=[
            TARGET,
            Quantity("entropy", "H(p), nats", "entropy"),
            Quantity("bound", "min({epsilon:g}, {delta:g}·e⁻ᴴ)", "den"),
        ],
        card=["Kept is what the target finds likely enough; nothing is drawn. This rule changes the text."],
        lines=[
            make_line(
                "Typical acceptance keeps what is likely enough; the surer the target, the higher the bound.",
                "b = min(ε, δ · exp(−H))",
                "  = min({epsilon:g}, {delta:g} · exp(−{entropy})) = {den}",
            )
        ],
        close="This rule changes the text: what passes is kept as if it had been drawn.",
    )

    epsilon: float = param(
        0.09,
        low=0.0,
        high=1.0,
        step=0.01,
        help="upper limit of the acceptance threshold, whatever the entropy",
    )
    delta: float = param(
        0.3,
        low=0.0,
        high=1.0,
        step=0.01,
        help="acceptance threshold as a multiple of exp(-entropy), as long as it is below epsilon",
    )
    next_token: str = next_token_knob()

    @property
    def draws_next_token(self) -> bool:
        return self.next_token == "drawn"

    def verify(self, draft: Draft, at: Cursor, chance: Chance) -> Verdict:
        if at.greedy:
            return match_greedy(draft, at)
        trials: list[Trial] = []
        entropies: list[float] = []
        places: list[tuple[int, Tensor | None]] = []
        paths: list[tuple[int, float, list[int], Cursor]] = [(0, 0.0, [], at)]
        for length, score, path, cursor in paths:  # grows while it is walked: breadth first
            p = cursor.probs
            bound = self.bound(cursor.entropy)
            places.append((cursor.node, p))
            children = draft.children(cursor.node)
            entropies += [cursor.entropy] if children else []
            for child in children:
                p_x = float(p[draft.tokens[child]])
                trials.append(Trial(child, p_x, p_x, 1.0, None, bound, p_x > bound, den=bound))
                if p_x > bound:
                    paths.append((length + 1, score + math.log(p_x), [*path, child], cursor.descend(child)))
        _, _, path, cursor = max(paths, key=lambda x: x[:2])
        stuck = bool(draft.children(path[-1] if path else ROOT))
        rule = {"entropy": entropies} if entropies else None
        refused: Origin = "residual" if self.draws_next_token else "correction"
        origin: Origin = refused if stuck and draft.drafted_count else origin_behind(draft)
        if not self.draws_next_token:
            return Verdict(path, cursor.top_token, origin, trials, rule=rule, places=places)
        drawn = chance.draw(cursor.probs, cursor.position)
        return Verdict(path, drawn.token, origin, trials, drawn.u, drawn.low, drawn.high, rule, places)

    def bound(self, entropy: float) -> float:
        """The probability that a token must exceed under a distribution with this entropy, in nats."""
        return min(self.epsilon, self.delta * math.exp(-entropy))
