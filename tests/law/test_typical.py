"""Typical acceptance follows its own formula, and not the target's distribution."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache

import pytest
from law.cases import SAMPLERS, true_law, worlds
from law.proposals import Chosen, Independent

from decodescope.engine.methods.acceptance.typical import Typical
from decodescope.engine.methods.drafters.draft_model.draft_model import DraftModel
from decodescope.engine.methods.drafters.none import NoDraft
from decodescope.engine.session.method import Method
from decodescope.testing.tables import KINDS, PROMPT, table_model
from decodescope.testing.walk import Walk, distribution_distance

V, LENGTH, EPSILON, DELTA = 4, 3, 0.1, 0.3
WARP = SAMPLERS["T=1"][1]


@cache
def p_after(kind: str, text: tuple[int, ...], draft: bool = False) -> list[float]:
    return WARP.next_distribution(worlds(V, kind)[draft], [*PROMPT, *text], len(PROMPT))


def bound(p: list[float]) -> float:
    return min(EPSILON, DELTA * math.exp(sum(x * math.log(x) for x in p if x > 0)))


def formula(kind: str, gamma: int, after: str) -> dict[tuple[int, ...], float]:
    """The distribution over texts under chains of gamma draws.

    Drafted tokens are kept while they pass the bound; then a token is drawn from p, or the likeliest one is taken.
    """
    made: dict[tuple[int, ...], float] = defaultdict(float)

    def text(head: tuple[int, ...], mass: float) -> None:
        if len(head) == LENGTH:
            made[head] += mass
        else:
            check(head, mass, min(gamma, LENGTH - len(head) - 1))

    def check(head: tuple[int, ...], mass: float, left: int) -> None:
        p = p_after(kind, head)
        q = p_after(kind, head, draft=True) if left else [0.0] * V
        refused = 1.0 if not left else sum(q[x] for x in range(V) if p[x] <= bound(p))
        for x in range(V):
            if left and q[x] > 0 and p[x] > bound(p):
                check((*head, x), mass * q[x], left - 1)
            own = p[x] if after == "drawn" else float(x == p.index(max(p)))
            if refused > 0 and own > 0:
                text((*head, x), mass * refused * own)

    text((), 1.0)
    return dict(made)


def walk(kind: str, drafter, after: str = "drawn") -> Walk:
    target, draft = worlds(V, kind)
    rule = Typical(epsilon=EPSILON, delta=DELTA, next_token=after)
    method = Method(drafter=drafter, acceptance=rule, sampler=SAMPLERS["T=1"][0])
    return Walk(method, {"target": table_model(target, V), "draft": table_model(draft, V)}, LENGTH)


@pytest.mark.parametrize("gamma", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("after", ["likeliest", "drawn"])
def test_typical_acceptance_has_the_law_of_its_formula_and_no_other(after, kind, gamma, record_property):
    law, target = (
        walk(kind, DraftModel(max_draft_tokens=gamma), after).text_distribution(),
        true_law(V, "T=1", LENGTH),
    )
    expected = formula(kind, gamma, after)
    assert max(abs(law.get(x, 0.0) - expected.get(x, 0.0)) for x in target) <= 1e-12
    far = sum(abs(law.get(x, 0.0) - target[x]) for x in target) / 2
    record_property("distance to the target (total variation)", far)
    if (
        kind != "support" or after == "likeliest"
    ):  # there the draft writes nothing likely: nothing is kept, and every token is drawn from p
        assert far > 1e-3, "typical acceptance is labelled lossy and should be seen to be"


@pytest.mark.parametrize(
    "drafter",
    [Independent(length=1, width=2), Chosen(length=2, width=3), DraftModel(max_draft_tokens=2, width=2)],
)
def test_typical_acceptance_keeps_the_longest_path_the_likeliest_of_equals(drafter):
    several = 0
    for _, move in walk("mixed", drafter).step_outcomes():
        paths = [((0, 0.0), ())]
        for node, parent in enumerate(move.draft.parents):
            above = next((x for x in paths if x[1] and x[1][-1] == parent), paths[0] if parent < 0 else None)
            if above is None:
                continue
            (length, score), nodes = above
            p = p_after("mixed", tuple(move.draft.tokens[i] for i in nodes))
            x = move.draft.tokens[node]
            if p[x] > bound(p):
                paths.append(((length + 1, score + math.log(p[x])), (*nodes, node)))
        best = max(key for key, _ in paths)
        several += sum(key[0] == best[0] for key, _ in paths) > 1
        chosen = next(key for key, nodes in paths if list(nodes) == move.verdict.path)
        assert chosen == pytest.approx(best, abs=1e-12)
    assert several, "the test needs ties in length"


def test_without_a_draft_the_likeliest_token_is_greedy_and_a_drawn_one_has_the_target_s_law():
    target = true_law(V, "T=1", LENGTH)
    drawn, likeliest = (walk("mixed", NoDraft(), after) for after in ("drawn", "likeliest"))
    assert drawn.s.method.lossless and distribution_distance(drawn.text_distribution(), target) <= 1e-12
    greedy = max(true_law(V, "greedy", LENGTH).items(), key=lambda x: x[1])[0]
    assert not likeliest.s.method.lossless and likeliest.text_distribution() == {greedy: 1.0}


def test_typical_acceptance_under_greedy_is_exact_matching():
    target, draft = worlds(V, "mixed")
    method = Method(
        drafter=DraftModel(max_draft_tokens=2), acceptance=Typical(), sampler=SAMPLERS["greedy"][0]
    )
    law = Walk(
        method, {"target": table_model(target, V), "draft": table_model(draft, V)}, LENGTH
    ).text_distribution()
    text = max(true_law(V, "greedy", LENGTH).items(), key=lambda x: x[1])[0]
    assert law == {text: 1.0}
