"""A search on the page: its growing tree, closed nodes with the reason, the best so far, and the terms of every choice."""

from __future__ import annotations

import math
from functools import cache

import pytest
import toys
from followed import searched

from decodescope.engine.trace import Trace
from decodescope.lab.wire.messages import build_wire

from .drawn import Drawn, told

OPEN = """(all) => { place.replaceChildren(); window.view = S.mount(place, { views: ['tree', 'card'] });
all.forEach((one) => view.push(one)); view.seek(0); }"""
SLIDE = """(n) => { const x = place.querySelector('.grown-tree .along'); x.value = n; x.dispatchEvent(new Event('input')); }"""
ROWS = ".grown li:visible"


@cache
def run() -> Trace:
    return toys.decode(
        toys.method(strategy=("planned", {"tests": "1\n2", "top_k": 2, "rollouts": 24})), count=4
    ).sink


def test_the_wire_says_of_each_node_what_the_record_says() -> None:
    trace = run()
    search, message = searched(trace), told(trace)[1]["tree"]
    assert len(search.texts) > 8 and {*search.outcomes} != {"open"}, "the test needs closed nodes"
    assert message["parents"] == search.parents and message["outcomes"] == search.outcomes
    assert [x and x[0] for x in message["tokens"]] == search.tokens
    assert [[x[::2] for x in row] for row in message["offers"]] == [
        [[token, p] for token, p in zip(*both, strict=True)]
        for both in zip(search.offers, search.priors, strict=True)
    ]
    assert message["columns"]["reward"] == [None, *(x.reward for x in search.texts)]
    values = message["values"]
    assert (message["count"], message["at"], values["why"]) == (
        len(search.texts),
        search.best + 1,
        search.why,
    )
    assert message["knobs"] == {"ucb_constant": 4.0, "ucb_base": 10.0} and values["cases"] == 2
    short = build_wire(trace).step(trace.steps[0])
    assert "parents" not in short["tree"] and short["few"], "a large tree is fetched where it is looked at"


def written(x: float) -> str:
    """A number as the page writes it."""
    return "0" if x == 0 else f"{x:.3f}" if x >= 1e-3 else f"{x:.6f}"


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_the_tree_grows_text_by_text_with_the_terms_of_each_choice(drawn: Drawn) -> None:
    trace = run()
    search = searched(trace)
    drawn.run(OPEN, told(trace))
    for upto in (1, len(search.texts) // 2, len(search.texts)):
        drawn.run(SLIDE, upto)
        small, scores = search.behind(upto)
        rows = drawn.page.locator(ROWS)
        assert rows.count() == upto + 1
        words = rows.locator(".why").all_inner_texts()
        closed = sum(map(bool, small.closed))
        assert sum("closed: " in x for x in words) == closed and sum("best so far" in x for x in words) == 1
        best = max(x.reward for x in search.texts[:upto])
        first = next(k for k, x in enumerate(search.texts, 1) if x.reward == best)
        assert f"text {first}, {100 * best:.0f} % of the tests" in drawn.text(".grown-tree .won")
        assert drawn.text(".decision h2") == f"Text {upto} of {len(search.texts)}"
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
    tree = messages[1]["tree"]
    tree["parents"][3], tree["tokens"][3] = 0, tree["offers"][0][1][:2]
    drawn.run(OPEN, messages)
    assert drawn.page.locator(".decision .lie").count() == 1
