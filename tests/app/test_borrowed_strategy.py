"""A strategy has one home.

One file outside the package is run, recorded, checked, explained and drawn in page, notebook and exported file; no other file
is edited for it.
"""

from __future__ import annotations

import copy
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import toys
from borrowed_strategy import BorrowedStrategy
from toylab import Words

from decodescope.engine import Method, Session
from decodescope.engine.core.component import registry
from decodescope.engine.trace import Trace, check, open_trace
from decodescope.engine.trace.details.shapes import TallyDetail, TreeDetail
from decodescope.lab import explain
from decodescope.lab.wire.messages import messages

from .test_card import Scope

LINE = "A token is bought where its probability reaches 0.30."


@cache
def recorded(level: str = "decisions") -> Trace:
    """A run in which both outcomes occur."""
    target = toys.target(seed=toys.LIVELY)
    target.tokenizer = Words([f" {letter}" for letter in "abcdefghijklm"])  # type: ignore[assignment]
    run = Session(target, Method(strategy=BorrowedStrategy()), toys.PROMPT, max_new_tokens=40, level=level)
    run.sink = Trace()
    for _ in run.stream():
        pass
    return run.sink


def purses(trace: Trace) -> list[TallyDetail]:
    return [step.detail("purse") for step in trace.steps]


def test_no_part_of_the_package_knows_it() -> None:
    assert "borrowed_strategy" not in registry("strategy")
    assert recorded().header.method["strategy"] == {"name": "borrowed_strategy", "price": 0.3}
    outcomes = {word for one in purses(recorded()) for word in one.columns["outcome"]}
    assert {"gift", "bought", "dear"} <= outcomes, "the test needs all outcomes"


def test_the_level_decides_what_is_kept() -> None:
    assert all(step.details is None for step in recorded("summary").steps)
    assert recorded("summary").end.tokens == recorded().end.tokens


def test_it_is_derived_again_from_the_file_where_torch_is_missing(tmp_path: Path) -> None:
    path = recorded().save(tmp_path / "borrowed.dstrace")
    report = check(open_trace(path))
    assert report.ok and report.counts["purses"] == len(recorded().steps) and not report.notes, report
    assert report.counts["ladders"] == len(recorded().steps)
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from decodescope.engine.trace import check, open_trace\n"
        "from decodescope.lab import explain\n"
        "trace = open_trace(sys.argv[1]); print(check(trace)); print(explain(trace, 0))"
    )
    said = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, check=True
    ).stdout
    assert "agrees with itself" in said and "purses" in said and LINE in said and "ladders" in said
    assert "2 of 4 rungs were climbed." in said


def columns(detail: Any, **more: Any) -> Any:
    return replace(detail, columns={**detail.columns, **more})


LIES = {
    "another verdict": (lambda x: columns(x, outcome=["gift", "bought"]), "against 0.3"),
    "another probability": (lambda x: columns(x, p=[1.5, *x.columns["p"][1:]]), "breaks p <= 1"),
    "another token": (lambda x: columns(x, token=[3, *x.columns["token"][1:]]), "it emitted"),
    "another order": (lambda x: columns(x, outcome=["dear", "gift"]), "come in an order that cannot be"),
    "another count": (lambda x: replace(x, values={"bought": 2}), "breaks bought == emitted"),
    "no probabilities": (lambda x: columns(x, p=[None, None]), "lacks the numbers"),
    "a column too short": (lambda x: columns(x, p=[0.5]), "where 2 are due"),
    "a column that nobody declared": (lambda x: columns(x, q=[0.5, 0.5]), "which its declaration lacks"),
    "an outcome that nobody declared": (
        lambda x: columns(x, outcome=["gift", "stolen"]),
        "without an outcome",
    ),
    "a token that is none": (lambda x: columns(x, token=[999, 0]), "outside the vocabulary"),
    "a text for a number": (lambda x: columns(x, p=["a", "b"]), "entries of the type number"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_it_is_found(lie: str) -> None:
    tell, says = LIES[lie]
    trace = copy.deepcopy(recorded())
    place = next(i for i, one in enumerate(purses(trace)) if one.columns["outcome"] == ["gift", "dear"])
    if trace.steps[place].emitted == [3]:
        tell = lambda x: columns(x, token=[4, *x.columns["token"][1:]])  # noqa: E731
    trace.steps[place].details = [tell(trace.steps[place].details[0]), trace.steps[place].details[1]]
    assert any(says in one for one in check(trace).problems), check(trace)


TREE_LIES = {
    "another probability": (lambda x: columns(x, p=[1.5, *x.columns["p"][1:]]), "breaks p <= 1"),
    "another count": (lambda x: replace(x, values={"steps": 9}), "breaks steps == nodes"),
    "a child before its parent": (
        lambda x: replace(x, parents=[1, -1, -1, 0]),
        "a parent comes before its children",
    ),
    "a parent of huge number": (
        lambda x: replace(x, parents=[-1, 10**12, -1, 0]),
        "comes before its children",
    ),
    "a parent below all": (lambda x: replace(x, parents=[-9, 0, -1, 0]), "comes before its children"),
    "a column too short": (lambda x: columns(x, p=[0.5]), "where 4 are due"),
    "a column that nobody declared": (lambda x: columns(x, q=[0.5] * 4), "which its declaration lacks"),
    "an outcome that nobody declared": (
        lambda x: columns(x, outcome=["climbed", "jumped", "missed", "missed"]),
        "without an outcome",
    ),
    "outcomes that are lists": (lambda x: columns(x, outcome=[[], [], [], []]), "entries of the type text"),
    "a token that is none": (lambda x: columns(x, token=[999, 0, 0, 0]), "outside the vocabulary"),
    "a text for a number": (lambda x: columns(x, p=["a"] * 4), "entries of the type number"),
    "another shape": (lambda x: TallyDetail("ladder", x.columns, x.values), "declared as a tree"),
}


@pytest.mark.parametrize("lie", TREE_LIES)
def test_a_lie_about_its_tree_is_found(lie: str) -> None:
    tell, says = TREE_LIES[lie]
    trace = copy.deepcopy(recorded())
    step = next(one for one in trace.steps if len(one.details[1]) == 4)
    step.details = [step.details[0], tell(step.details[1])]
    assert any(says in one for one in check(trace).problems), check(trace)


def test_a_detail_that_the_header_does_not_declare_is_named() -> None:
    trace = copy.deepcopy(recorded())
    trace.header.details = {}
    report = check(trace)
    wrong = [
        one for one in report.problems if "sha256" not in one
    ]  # the hash problem is due to the changed header
    assert not wrong and report.counts["details not re-derived"] == 2 * len(trace.steps)
    assert any("were not re-derived" in note for note in report.notes)


def test_its_steps_are_explained_in_its_own_words() -> None:
    trace = recorded()
    for step in trace.steps:
        said = explain(trace, step.step)
        words = str(said)
        assert said.agrees and said.title == "A purse of tokens" and LINE in words
        ladder = step.detail("ladder")
        climbed = ladder.columns["outcome"].count("climbed")
        assert f"{climbed} of {2 * climbed} rungs were climbed." in words and "Missed beside them:" in words
        assert f"{ladder.columns['p'][0]:.2f} firm" in words and isinstance(ladder, TreeDetail)
        if "dear" in step.details[0].columns["outcome"]:
            lacking = 0.3 - step.details[0].columns["p"][1]
            assert f"too dear, by {lacking:.3f}" in words and "one token bought" in words
        elif "bought" in step.details[0].columns["outcome"]:
            assert "bought for 0.30" in words and "2 tokens bought" in words


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_its_card_is_drawn_with_its_rows_and_its_sentence(driver: Any) -> None:
    trace = recorded()
    scope = Scope(driver)
    step = next(s for s in trace.steps if "dear" in s.details[0].columns["outcome"])
    scope.show(list(messages(trace)), step.step)
    card = scope.text(".decision")
    assert "A purse of tokens" in card and "too dear" in card and LINE in card and "gift" in card
    assert "one token bought" in scope.text(".headline")
    assert not scope.troubles, scope.troubles


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_its_tree_is_drawn_with_its_nodes_and_their_words(driver: Any) -> None:
    trace = recorded()
    scope = Scope(driver)
    step = next(s for s in trace.steps if s.details[0].columns["outcome"] == ["gift", "bought"])
    scope.show(list(messages(trace)), step.step)
    tree, texts = (
        step.detail("ladder"),
        [str(trace.pieces[x]) for x in step.detail("ladder").columns["token"]],
    )
    rows = scope.page.locator(".grown li:visible")
    order = [0, 1, 3, 2]  # each child follows its parent
    assert rows.count() == 4
    for k, row in zip(order, rows.all_inner_texts(), strict=True):
        before = texts[0] if tree.parents[k] == 0 else ""
        assert before + texts[k] in row and f"{tree.columns['p'][k]:.2f} firm" in row
        assert tree.columns["outcome"][k] in row and ("★ the text" in row) == (k == 1)
    assert "Won: rung 2, " in scope.text(".grown-tree .won") and not scope.page.locator(".along").is_visible()
    rows.nth(1).locator("button").click()
    scope.settled()
    card, p = scope.text(".decision"), tree.columns["p"]
    assert "A purse of tokens" in card and "Rung 2 of 4" in card and "depth 2" in card
    assert f"{p[1]:.3f}" in card and f"{p[0] * p[1]:.3f}" in card
    assert "A rung is climbed where it is the firmest." in card
    label = rows.nth(1).locator("button").get_attribute("aria-label")
    assert label == f"rung 2, depth 2, {p[1]:.2f} firm: {texts[0]}{texts[1]}"
    scope.page.locator(".grown-tree").click(position={"x": 1, "y": 1})
    assert not scope.troubles, scope.troubles
