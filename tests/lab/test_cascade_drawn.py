"""A cascade on the page: its answers against tau, whether one was kept, and what both models cost, as the record has it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import toys

from decodescope.engine.trace import Trace
from decodescope.lab.wire.messages import messages, wire_of

from .drawn import Drawn, told

OPEN = """(all) => { place.replaceChildren(); window.view = S.mount(place, { views: ['tree', 'card', 'depth', 'time'] });
all.forEach((one) => view.push(one)); view.seek(0); }"""
LINE = """(() => { const x = document.querySelector('.cascade-pane i.tau');
return x.getBoundingClientRect().left - x.parentNode.getBoundingClientRect().left; })()"""
ROWS, PRICES = ".cascade-pane .answers:not(.prices) tbody tr", ".cascade-pane .prices tbody tr"
KNOWN = (("3 1 4", "1 5 9", True), ("2 6", "5 3", False))
PAIRS = "\n".join(json.dumps({"question": q, "answer": a, "right": right}) for q, a, right in KNOWN)
ROUTERS: dict[str, dict[str, Any]] = {
    "answer_confidence": {},
    "trained_confidence": {},
    "agreement": dict(samples=3, second=""),
    "references": dict(pairs=PAIRS, tie=0.1),
    "expected_cost": {},
}


def run(router: str, tau: float, count: int = 6) -> Trace:
    made = toys.method(
        strategy="cascade",
        router=(router, {**ROUTERS[router], "tau": tau}),
        sampler="temperature" if router == "agreement" else "greedy",
    )
    return toys.decode(made, count=count, seed=5).sink


@pytest.mark.parametrize("router", ROUTERS)
def test_the_wire_says_of_each_answer_what_the_record_says(router: str) -> None:
    for tau in (0.0, 99.0) if router == "expected_cost" else (0.0, 1.0):
        trace = run(router, tau)
        record, message = trace.steps[0].candidates, told(trace)[1]["cascade"]
        assert record is not None
        assert [message[x] for x in ("score", "tau", "chosen", "asked")] == [
            record.score,
            record.tau,
            record.chosen,
            len(record.answers),
        ]
        assert (bool(message["kept"]), bool(message["above"])) == (record.kept, record.above)
        assert [x[2:] for x in message["answers"]] == [
            [x.form, int(x.ended), len(x.tokens)] for x in record.answers
        ]
        if record.votes:
            assert [x[1] for x in message["answers"]] == record.votes
        assert [x[1] for x in message["compared"]] == [x.weight for x in record.compared]
    assert not any("cascade" in x for x in told(trace)[2:])


def test_long_answers_are_fetched_where_they_are_looked_at() -> None:
    trace = run("agreement", 0.0)
    record = trace.steps[0].candidates
    assert record is not None
    record.answers = [record.answers[0]] * 60
    record.votes = [1.0] * 60
    wire = wire_of(trace)
    short, whole = wire.step(trace.steps[0]), wire.step(trace.steps[0], whole=True)
    assert "answers" not in short["cascade"] and short["few"] and len(whole["cascade"]["answers"]) == 60
    assert "cascade" not in list(messages(toys.decode(toys.method(), count=2).sink))[1]


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_answers_stand_against_tau_and_branches_have_their_price(drawn: Drawn) -> None:
    for router, tau, kept in (
        ("agreement", 0.2, True),
        ("agreement", 0.95, False),
        ("expected_cost", 99.0, False),
    ):
        trace = run(router, tau)
        all_ = told(trace)
        record = trace.steps[0].candidates
        assert record is not None and record.kept == kept
        drawn.run(OPEN, all_)
        rows = drawn.page.locator(ROWS)
        assert rows.count() == max(1, len(record.answers))
        bars = rows.locator(".fill").evaluate_all("all => all.map((x) => x.getBoundingClientRect().width)")
        line = drawn.page.evaluate(LINE)
        scores = [x[1] for x in all_[1]["cascade"]["answers"]] or [record.score]
        for width, score in zip(bars, scores, strict=True):
            assert (width >= line - 1) == (score >= tau), "a bar reaches the line where its number does"
        said = drawn.text(".cascade-pane .took")
        assert ("the answer is kept" in said) == kept and ("large model" in said)
        last = len(trace.steps) - 1
        drawn.run("(i) => view.seek(i)", last)
        prices = drawn.cells(PRICES)
        sums = {lane: [0, 0] for lane in ("draft", "target")}
        for row in (x for message in all_ if message["kind"] != "end" for x in message["passes"]):
            sums[row["lane"]][0] += row["rows"]
            sums[row["lane"]][1] += row["n"]
        for (lane, (count, passes)), cells in zip(sums.items(), prices, strict=False):
            due = f"{count} row{'' if count == 1 else 's'} in {passes} pass{'' if passes == 1 else 'es'}"
            assert cells[3] == (due if count else "not asked"), lane
        assert kept == (prices[1][3] == "not asked")


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_an_answer_that_is_pressed_is_marked_on_the_card_and_other_runs_have_none(drawn: Drawn) -> None:
    drawn.run(OPEN, told(run("agreement", 0.95)))
    drawn.page.locator(f"{ROWS} button").nth(2).focus()
    drawn.page.keyboard.press("Enter")
    drawn.settled()
    marks = drawn.page.locator(".decision .laws tbody tr").evaluate_all("all => all.map((x) => x.className)")
    assert marks == ["", "", "tried"]
    assert drawn.page.locator(f"{ROWS} button").nth(2).get_attribute("aria-label").startswith("answer 3: ")
    drawn.run(OPEN, told(toys.decode(toys.method(), count=4).sink))
    assert not drawn.page.locator(".cascade-pane").is_visible()
