"""SpecTr's k-SEQ: one threshold for all guesses at a place, so that together they are accepted more often."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.acceptance import (
    AcceptanceRule,
    Cursor,
    NotRecordedError,
    match_greedy,
)
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import ROOT, Draft, Origin, Trial, Verdict, as_array
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
class SpecTr(AcceptanceRule):
    """Lossless for k independent draws from one distribution q.

    Each draw is accepted with probability min(1, p(x) / (rho q(x))), and the first success counts. If none succeeds, the token
    is drawn from norm(p - min(q, p / rho) A / b). b = sum min(q, p / rho) is the probability that one guess is accepted; A = 1
    - (1 - b)^k, that any of the k is.

    This is exact where A <= rho b. The smallest such rho in [1, k], found by bisection, accepts most. The test is the same for
    every guess; SpecInfer's rule subtracts q from p after each. A is at least 1 - 1/e of the most that any rule can accept, 1 -
    max_H [q(H)^k - p(H)] over sets H of tokens. The best H takes tokens in the order of p / q. The cost is one sort per
    position.

    At the next position, the draws are the chains that hold the accepted token. This includes chains rejected before it,
    because what they drew there has decided nothing yet. So the path may run through another copy of an accepted token. With
    one chain left, the rule is Leviathan's. Tokens chosen without chance are not draws, and the rule skips them.

    In the trace, a trial's den is rho q. For each position with guesses, in the order of the walk, `rule` has alive (k), rho,
    b, A, and optimum.
    """

    title = "SpecTr (k-SEQ)"
    source = "Sun et al. 2023, arXiv:2310.15141, k-SEQ; the optimum as a minimum cut is derived here"
    exact_for = frozenset({"iid"})
    telling = Telling(
        den="rho·q",
        path="copies",
        left="what the guesses together left of",
        columns=[Column(name, "place") for name in ("alive", "rho", "b", "A", "optimum")],
        relations=[
            Relation("den == rho * q"), Relation("rho >= 1", 0.0), Relation("rho <= alive", 0.0),
            Relation("A == 1 - (1 - b) ** alive"), Relation("A <= rho * b"),
        ],
        counted=Column("k-SEQ places", "place"),
        numbers=[TARGET, Quantity("spread", "rho", "rho"), DRAFT, Quantity("threshold", "p / (rho·q)", "num / den"), DRAW],
        card=[
            "{alive:g} guesses share one threshold: any of them stays in {100 * A:1} of 100 cases; no rule does it in more "
            "than {100 * optimum:1}."
        ],
        lines=[
            make_line(
                "{alive:g} guesses share one threshold here: q counts rho-fold, so each stays a little less often.",
                "rho = {rho}    rho·q = {den}",
                "any of the {alive:g} stays in {A:of}; no rule does it in more than {optimum:of}",
            )
        ],
    )  # fmt: skip

    def verify(self, draft: Draft, at: Cursor, chance: Chance) -> Verdict:
        if at.greedy:
            return match_greedy(draft, at)
        trials, plans = list[Trial](), list[_KSeqPlan]()
        places: list[tuple[int, Tensor | None]] = []
        origin: Origin = "residual"
        here = [ROOT]  # copies of one place: chains that are equal up to here
        while True:
            p = at.probs
            places += [(node, p) for node in here]
            alive = [child for node in here for child in draft.children(node) if draft.was_drawn(child)]
            if not alive:
                drawn, origin = chance.draw(p, at.position), "bonus" if draft.drafted_count else "target"
                break
            q = _shared_distribution(draft, alive)
            plans.append(_KSeqPlan.find(p, q, len(alive)))
            trials += _test_guesses(draft, alive, p, q, plans[-1].rho, chance, at.position)
            if not trials[-1].ok:
                drawn = chance.draw(plans[-1].residual(p, q), at.position)
                break
            at = at.descend(trials[-1].node)
            here = [node for node in alive if draft.tokens[node] == draft.tokens[at.node]]
        path = [at.node] if at.node != ROOT else []
        while path and draft.parents[path[0]] != ROOT:
            path.insert(0, draft.parents[path[0]])
        rule = (
            {name: [getattr(plan, name) for plan in plans] for name in _KSeqPlan._fields} if plans else None
        )
        return Verdict(path, drawn.token, origin, trials, drawn.u, drawn.low, drawn.high, rule, places)


def _test_guesses(
    draft: Draft, alive: list[int], p: Tensor, q: Tensor, rho: float, chance: Chance, position: int
) -> list[Trial]:
    """The tests of the guesses `alive` in draw order, up to the first success."""
    trials, laws = list[Trial](), (as_array(p), as_array(q))
    for child in alive:
        p_x, q_x = (float(law[draft.tokens[child]]) for law in laws)
        ok, u = chance.accept(p_x, rho * q_x, position)
        trials.append(
            Trial(child, p_x, p_x, q_x, u, p_x / (rho * q_x) if q_x > 0 else 0.0, ok, den=rho * q_x)
        )
        if ok:
            break
    return trials


def _shared_distribution(draft: Draft, alive: list[int]) -> Tensor:
    """float [V]: the one distribution that the nodes `alive` were drawn from, up to rounding."""
    if draft.q is None or draft.q_row is None:
        raise NotRecordedError(
            "the draft holds no distribution that its chains were drawn from, and this rule judges by one"
        )
    first, *others = (draft.q[draft.q_row[node]] for node in alive)
    if any(float((other - first).norm(1)) >= 0.01 for other in others if not torch.equal(other, first)):
        raise NotRecordedError(
            "the draft's distributions differ at one place, and this rule judges draws from one only"
        )
    return first


class _KSeqPlan(NamedTuple):
    """k-SEQ at one place. alive: k; b, A: how often one guess and any guess is accepted; optimum: the most any rule could."""

    alive: int
    rho: float
    b: float
    A: float
    optimum: float

    @classmethod
    def find(cls, p: Tensor, q: Tensor, k: int) -> _KSeqPlan:
        """Find the plan with the largest A for k draws from q [V], in doubles; p [V] is the target's distribution.

        1 - b = sum max(q - p / rho, 0) runs over the tokens with p / q < rho. Sorted by p / q, two cumulative sums give it. A -
        rho b falls with rho, so the breaks bracket its zero. Between two breaks the sums are constant.
        """
        both = torch.stack([p, q]).double()
        p, q = both.div_(both.sum(1, keepdim=True))
        ratio = torch.where(q > 0, p / q, torch.inf).cpu().numpy()
        ratio = ratio[order := ratio.argsort()]  # by numpy, in half the time of torch's
        within = int(ratio.searchsorted(float(k)))  # tokens from there on add more to p than they can to q^k
        below = both.new_zeros(2, within + 1)
        below[:, 1:] = both.index_select(1, torch.as_tensor(order[:within], device=both.device)).cumsum(1)
        optimum = 1 - float((below[1] ** k - below[0]).max())
        below_p, below_q = below.cpu().numpy()  # the rest is few numbers
        breaks = np.concatenate(([1.0], ratio[ratio.searchsorted(1.0, "right") : within], [float(k)]))

        def miss(rho: float) -> float:
            at = ratio.searchsorted(rho)
            return max(0.0, float(below_q[at]) - float(below_p[at]) / rho)  # 1 - b

        # A <= rho b: exact
        over = bisect_left(breaks, True, key=lambda rho: 1 - (m := miss(rho)) ** k <= rho * (1 - m))
        low, high = float(breaks[max(over - 1, 0)]), float(breaks[min(over, len(breaks) - 1)])
        mass_q, mass_p = (float(below[ratio.searchsorted(high)]) for below in (below_q, below_p))
        while low < (middle := (low + high) / 2) < high:
            b = 1 - max(0.0, mass_q - mass_p / middle)
            low, high = (middle, high) if 1 - (1 - b) ** k > middle * b else (low, middle)
        left = max(0.0, mass_q - mass_p / high)
        return cls(k, high, 1 - left, 1 - left**k, optimum)

    def residual(self, p: Tensor, q: Tensor) -> Tensor:
        """float64 [V]: the distribution of the token after k refusals; p where rounding leaves nothing."""
        p = p.double()
        rest = (
            p - torch.minimum(q.double(), p / self.rho) * (self.A / self.b if self.b > 0 else 0.0)
        ).clamp_min_(0)
        total = rest.sum()
        return rest / total if total > 0 else p
