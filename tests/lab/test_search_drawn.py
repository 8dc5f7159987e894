"""A search on the page: its tree as it grew, what is closed and why, the best so far, and the terms of every choice."""

from __future__ import annotations

import math
from functools import cache

import pytest
import toys

from decodescope.engine.trace import Trace
from decodescope.engine.trace.details.searched import Planner, Search
from decodescope.lab.wire.messages import wire_of

from .drawn import Drawn, told

OPEN = """(all) => { place.replaceChildren(); window.view = S.mount(place, { views: ['tree', 'card'] });
all.forEach((one) => view.push(one)); view.seek(0); }"""
SLIDE = """(n) => { const x = place.querySelector('.searched .along'); x.value = n; x.dispatchEvent(new Event('input')); }"""
ROWS = ".grown li:visible"


@cache
def run() -> Trace:
    return toys.decode(
        toys.method(strategy=("planned", {"tests": "1\n2", "k": 2, "rollouts": 24})), count=4
    ).sink


def again(search: Search, upto: int) -> tuple[Search, list[float]]:
    """The search behind so many texts, and the scores by which the last one was chosen, where it was born."""
    small = Search(offers=search.offers[:1], priors=search.priors[:1])
    planner, scores = Planner(small, 4.0, 10.0), []
    for k in range(1, upto + 1):
        scores = planner.scores(search.parents[k])
        ends = search.closed[k] if not search.offers[k] else ""
        planner.bear(search.parents[k], search.tokens[k], search.offers[k], search.priors[k], ends)
        planner.reward(k, search.rollouts[k - 1].reward)
    return small, scores


def test_the_wire_says_of_each_node_what_the_record_says() -> None:
    trace = run()
    search, message = trace.steps[0].search, told(trace)[1]["search"]
    assert search is not None and len(search.rollouts) > 8 and any(search.closed), (
        "the test needs closed nodes"
    )
    assert [x[0] for x in message["nodes"]] == search.parents and [
        x[3] for x in message["nodes"]
    ] == search.closed
    assert [[x[::2] for x in node[4]] for node in message["nodes"]] == [
        [[token, p] for token, p in zip(*both, strict=True)]
        for both in zip(search.offers, search.priors, strict=True)
    ]
    assert [[bool(x) for x in one[1]] for one in message["texts"]] == [x.passed for x in search.rollouts]
    assert (message["count"], message["best"], message["why"]) == (
        len(search.rollouts),
        search.best + 1,
        search.why,
    )
    short = wire_of(trace).step(trace.steps[0])
    assert "nodes" not in short["search"] and short["few"], "a large tree is fetched where it is looked at"


def written(x: float) -> str:
    """A number as the page writes it."""
    return "0" if x == 0 else f"{x:.3f}" if x >= 1e-3 else f"{x:.6f}"


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_the_tree_grows_text_by_text_with_the_terms_of_each_choice(drawn: Drawn) -> None:
    trace = run()
    search = trace.steps[0].search
    assert search is not None
    drawn.run(OPEN, told(trace))
    for upto in (1, len(search.rollouts) // 2, len(search.rollouts)):
        drawn.run(SLIDE, upto)
        small, scores = again(search, upto)
        rows = drawn.page.locator(ROWS)
        assert rows.count() == upto + 1
        words = rows.locator(".why").all_inner_texts()
        closed = sum(map(bool, small.closed))
        assert sum("closed: " in x for x in words) == closed and sum("best so far" in x for x in words) == 1
        best = max(x.reward for x in search.rollouts[:upto])
        first = next(k for k, x in enumerate(search.rollouts, 1) if x.reward == best)
        assert f"text {first}, {100 * best:.0f} % of the tests" in drawn.text(".searched .won")
        assert drawn.text(".decision h2") == f"Text {upto} of {len(search.rollouts)}"
        assert drawn.page.locator(".decision .agree").count() == 1
        said = drawn.page.locator(".terms-of").last.locator("tr:not(.stack) td:last-child").all_inner_texts()
        assert said == ["closed" if math.isinf(x) else written(x) for x in scores]
    assert closed, "the test needs closed nodes"
    drawn.page.locator(".grown button").nth(2).click()
    drawn.settled()
    assert drawn.page.locator(".grown [aria-pressed=true]").count() == 1 and rows.count() == upto + 1


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_a_search_that_chose_otherwise_is_seen(drawn: Drawn) -> None:
    messages = told(run())
    nodes = messages[1]["search"]["nodes"]
    nodes[3][0], nodes[3][1] = 0, nodes[0][4][1][0]
    drawn.run(OPEN, messages)
    assert drawn.page.locator(".decision .lie").count() == 1
