"""Threads on the page: a lane for each with its texts, where it forked and ended, and the cost of all of them."""

from __future__ import annotations

from typing import Any

import pytest
import toys
from toylab import Words

from decodescope.engine import Session
from decodescope.engine.trace import Trace
from decodescope.engine.trace.details.threads import build_thread_tree, thread_schedule
from decodescope.lab.decision.block import explain_block

from .drawn import Drawn, told
from .runs import TEXTS

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("drawn")]


def forked(count: int = 60, **more: Any) -> Trace:
    """A finished run of the toy that forks, with letters as the texts of its tokens."""
    target = toys.target(seed=toys.LIVELY)
    target.tokenizer = Words(TEXTS)  # type: ignore[assignment]
    made = toys.method(strategy=("apar", {"fork_token": "5", "child_token": "12"}))
    session = Session(target, made, toys.PROMPT, max_new_tokens=count, seed=0, stop_tokens=[8], **more)
    session.sink = Trace()
    for _ in session.stream():
        pass
    return session.sink


def shown(trace: Trace, tokens: list[int]) -> str:
    return "".join(str(trace.pieces[x]) for x in tokens)


def open_run(drawn: Drawn, messages: list[dict[str, Any]]) -> None:
    drawn.run(
        "(all) => { window.view = S.mount(place, {}); all.forEach((one) => view.push(one)); }", messages
    )


def rows(drawn: Drawn) -> list[str]:
    return drawn.page.locator(".threads li:visible").all_inner_texts()


def test_each_thread_has_a_lane_with_its_text_as_far_as_it_has_come(drawn: Drawn) -> None:
    trace = forked()
    open_run(drawn, told(trace))
    every = build_thread_tree(step.detail("threads") for step in trace.steps).strands
    assert len(every) > 3 and {x.why for x in every} >= {"stop_token"}, "the test needs forks and ends"
    for i in range(0, len(trace.steps), 3):
        drawn.run("(i) => view.seek(i)", i)
        now = build_thread_tree(step.detail("threads") for step in trace.steps[: i + 1]).strands
        lanes = {x.split()[0]: x for x in rows(drawn)}
        assert lanes.keys() == {str(x.number) for x in now}
        titles = drawn.page.locator(".threads button:visible").evaluate_all(
            "all => all.map((one) => one.title)"
        )
        assert sorted(titles) == sorted(shown(trace, x.tokens) for x in now)
        for one in now:
            assert (f"from {one.parent.number}" in lanes[str(one.number)]) if one.parent else True
            assert ("stop token" in lanes[str(one.number)]) == (one.why == "stop_token")


def test_dots_are_tokens_and_the_sums_are_the_schedule(drawn: Drawn) -> None:
    trace = forked()
    open_run(drawn, told(trace))
    last = len(trace.steps) - 1
    drawn.run("(i) => view.seek(i)", last)
    took = thread_schedule(step.detail("threads") for step in trace.steps)
    every = build_thread_tree(step.detail("threads") for step in trace.steps).strands
    words = (
        f"{took.rounds} rounds, a pass each; critical path {took.longest} tokens, sum {took.tokens} tokens."
    )
    assert drawn.text(".hypotheses .took") == words
    assert drawn.page.locator(".lines:visible circle").count() == took.tokens
    written = [x for x in every if x.tokens]
    forks = sum(x.parent is not None for x in written)
    assert drawn.page.locator(".lines:visible path").count() == len(written) * 2 + forks, (
        "a lane, an end, a fork"
    )


def test_a_thread_that_is_chosen_is_told_in_the_card_and_keys_go_from_one_to_the_next(drawn: Drawn) -> None:
    trace = forked()
    open_run(drawn, told(trace))
    i = next(
        k
        for k, step in enumerate(trace.steps)
        if step.detail("threads") and len(step.detail("threads").alive) > 2
    )
    drawn.run("(i) => view.seek(i)", i)
    record = trace.steps[i].detail("threads")
    assert record is not None
    second = str(record.alive[1])
    lane = next(k for k, x in enumerate(rows(drawn)) if x.split()[0] == second)
    drawn.page.locator(".threads button:visible").nth(lane).click()
    drawn.settled()
    assert drawn.text(".decision h2") == f"Thread {second}, one of {len(record.alive)} that wrote"
    assert drawn.page.locator('.threads [aria-pressed="true"]:visible').count() == 1
    assert "critical path" in drawn.text(".decision")


@pytest.mark.nightly
def test_a_round_is_told_in_words() -> None:
    trace = forked()
    step = next(
        x
        for x in trace.steps
        if x.detail("threads") and len(x.detail("threads").alive) > 1 and x.detail("threads").begun
    )
    told_of = explain_block(trace, step)
    assert told_of.title == "A token of each thread" and told_of.agrees
    lines = [row for line in told_of.lines for row in line.sums]
    assert any("begins behind" in row and "of thread" in row for row in lines)
    assert any("rounds" in row and "longest way" in row for row in lines)
