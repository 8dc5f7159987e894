"""Block verification: decide on the draft as a whole, and accept at least as much of it."""

from __future__ import annotations

from torch import Tensor

from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.acceptance import (
    AcceptanceRule,
    Cursor,
    NotRecordedError,
    match_greedy,
)
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import Draft, Origin, Trial, Verdict, as_array
from decodescope.engine.trace.records.evidence import (
    DRAFT,
    TARGET,
    Column,
    Quantity,
    Relation,
    Telling,
    make_line,
)


@component
class Block(AcceptanceRule):
    """Lossless for chains drawn token by token; never accepts fewer tokens on average than the token-wise rule.

    w_0 = 1, w_i = min(1, w_{i-1} p_i(x_i) / q_i(x_i)). For i < N, S_i = sum max(w_i p_{i+1} - q_{i+1}, 0) and h_i = S_i / (S_i
    + 1 - w_i); h_N = w_N. The accepted count is the largest i with u_i < h_i. So a success further down repairs a failure above
    it. The next token comes from p_{N+1}, or from norm(max(w_a p_{a+1} - q_{a+1}, 0)).

    In the trace, a trial's num is h_i and its den is 1. `rule` holds w, in doubles, and S.
    """

    title = "Block verification"
    source = "Sun et al. 2025, arXiv:2403.10444, algorithm 2"
    exact_for = frozenset({"iid"})
    chain_only = True
    telling = Telling(
        num="h",
        den="",
        path="last",
        left="what the accepted part left of",
        columns=[Column("w", "running")],
        relations=[Relation("w == min(1, before(w) * p / q)"), Relation("den == 1", 0.0)],
        counted=Column("blocks", "step"),
        numbers=[
            TARGET,
            DRAFT,
            Quantity("weight", "w{k:g}", "w"),
            Quantity("bound", "h{k:g}", "num"),
            Quantity("draw", "u{k:g}", "u"),
        ],
        card=[
            "A weight w goes down the block and says how well all of it is backed so far. Every place has a test, and the last "
            "success repairs the failures above it: {last:g} of {count:g} stay."
        ],
        lines=[
            make_line(
                "A weight goes down the block and says how well the whole of it is backed so far.",
                "w{k:g} = min(1, w{k - 1:g} · p / q) = min(1, {before(w)} · {p} / {q}) = {w}",
            )
        ],
    )

    def verify(self, draft: Draft, at: Cursor, chance: Chance) -> Verdict:
        if at.greedy:
            return match_greedy(draft, at)
        cursors = [at]
        for child in range(len(draft)):
            cursors.append(cursors[-1].descend(child))
        n = len(draft)
        w = [1.0]
        S = []
        h = []
        trials: list[Trial] = []
        accepted = 0
        for i in range(1, n + 1):
            x = draft.tokens[i - 1]
            p = cursors[i - 1].probs
            q = _draft_distribution(draft, i - 1)
            p_x, q_x = float(as_array(p)[x]), float(as_array(q)[x])
            # no node is drawn where q is 0; a recorded trace may hold such a node
            w.append(min(1.0, w[-1] * p_x / q_x) if q_x > 0 else 0.0)
            if i < n:
                S.append(float(_excess_mass(cursors[i].probs, w[i], _draft_distribution(draft, i)).sum()))
                h.append(S[-1] / (S[-1] + 1 - w[i]) if S[-1] + 1 - w[i] > 0 else 1.0)
            else:
                h.append(w[n])
            ok, u = chance.accept(h[-1], 1.0, cursors[i - 1].position)
            trials.append(Trial(i - 1, p_x, p_x, q_x, u, h[-1], ok, h[-1], 1.0))
            accepted = i if ok else accepted
        law = cursors[accepted].probs
        origin: Origin = "bonus" if n else "target"
        if accepted < n:
            rest = _excess_mass(law, w[accepted], _draft_distribution(draft, accepted))
            law, origin = (rest / rest.sum() if rest.sum() > 0 else law), "residual"
        drawn = chance.draw(law, cursors[accepted].position)
        places: list[tuple[int, Tensor | None]] = [(c.node, c.probs) for c in cursors]
        rule = {"w": w, "S": S} if n else None
        path = list(range(accepted))
        return Verdict(path, drawn.token, origin, trials, drawn.u, drawn.low, drawn.high, rule, places)


def _draft_distribution(draft: Draft, node: int) -> Tensor:
    law = draft.law(node)
    if law is None:
        raise NotRecordedError(
            f"node {node + 1} has no distribution that it was drawn from, and this rule reads one for each"
        )
    return law


def _excess_mass(p: Tensor, w: float, q: Tensor) -> Tensor:
    """max(w p - q, 0) [V]."""
    return (w * p - q).clamp_min_(0)
