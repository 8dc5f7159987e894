"""Rows on a scale on the page: answers against tau, whether one was kept, and the cost of both models, as recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import toys

from decodescope.engine.trace import Trace
from decodescope.engine.trace.details.shapes import TallyDetail
from decodescope.lab.wire.messages import build_wire, messages

from .drawn import Drawn, told

OPEN = """(all) => { place.replaceChildren(); window.view = S.mount(place, { views: ['tree', 'card', 'depth', 'time'] });
all.forEach((one) => view.push(one)); view.seek(0); }"""
LINE = """(() => { const x = document.querySelector('.scale-pane i.tau');
return x.getBoundingClientRect().left - x.parentNode.getBoundingClientRect().left; })()"""
ROWS, PRICES = ".scale-pane .answers:not(.prices) tbody tr", ".scale-pane .prices tbody tr"
KNOWN = (("3 1 4", "1 5 9", True), ("2 6", "5 3", False))
PAIRS = "\n".join(json.dumps({"question": q, "answer": a, "right": right}) for q, a, right in KNOWN)
ROUTERS: dict[str, dict[str, Any]] = {
    "answer_confidence": {},
    "trained_confidence": {},
    "agreement": dict(samples=3, second_prompt_suffix=""),
    "references": dict(pairs=PAIRS, tie_margin=0.1),
    "expected_cost": {},
}


def run(router: str, tau: float, count: int = 6) -> Trace:
    made = toys.method(
        strategy="cascade",
        router=(router, {**ROUTERS[router], "tau": tau}),
        sampler="temperature" if router == "agreement" else "greedy",
    )
    return toys.decode(made, count=count, seed=5).sink


def found(trace: Trace) -> TallyDetail:
    """The answers of a run."""
    return next(x for x in trace.steps[0].details if "tokens" in x.columns)


@pytest.mark.parametrize("router", ROUTERS)
def test_the_wire_says_of_each_answer_what_the_record_says(router: str) -> None:
    for tau in (0.0, 99.0) if router == "expected_cost" else (0.0, 1.0):
        trace = run(router, tau)
        record = found(trace)
        head, first, *rest = told(trace)
        message, view = first["scale"], head["views"][record.name]["scale"]
        kept, score, asked = (record.values[x] for x in ("kept", "score", "asked"))
        assert message["of"] == record.name and message["bar"] == tau and view["title"] == "Cascade"
        rows = [x for x in message["rows"] if x[0] != "voted"]
        fates = ["lost" if x == "unasked" else x for x in record.columns["outcome"]]
        assert [x[0] for x in rows] == fates and sum(x[2] for x in rows) == asked
        assert all(x[3] == pytest.approx(score) for x in rows if x[0] != "other")
        assert all((x[3] >= tau) == (x[0] == "kept") for x in rows if x[0] != "other")
        said = message["ruling"]
        assert ("the answer is kept" in said) == kept and ("was not asked" in said) == (not asked)
        assert f" tau {prob(tau)}" in said and said.startswith(("The small model was", view["number"]))
        assert message["figures"][0] == f"{asked} answer{'' if asked == 1 else 's'}"
        assert message["figures"][1] == f"{'small' if kept else 'large'} model wrote the text"
        counts = [0 if x is None else len(x) for x in record.columns["tokens"]]
        for count, row in zip(counts, rows, strict=True):
            words = row[5].split(", ")
            if count:
                assert words[0] == f"{count} token{'' if count == 1 else 's'}"
                assert (words[1:2] == ["kept: it is the text"]) == (row[0] == "kept")
                assert ("the best, not kept" in row[5]) == (row[0] == "lost")
            else:
                assert row[1] == "not asked" and words == ["by what was bet before"]
        if router == "agreement":
            assert [x[3] for x in rows] == record.columns["votes"]
            assert [x[4] for x in rows] == [prob(x) for x in record.columns["votes"]]
        voted = [x for x in message["rows"] if x[0] == "voted"]
        if router == "references":
            weights = trace.steps[0].detail("compared_references").columns["weight"]
            assert [x[4] for x in voted] == [("+" if x > 0 else "") + prob(x) for x in weights]
            assert [x[1] for x in voted] == ["reference 1, right", "reference 2, wrong"]
        else:
            assert not voted
    assert rest and not any("scale" in x for x in rest)


def prob(x: float) -> str:
    """A number of the toys, written as the page writes probabilities."""
    return "0" if x == 0 else f"{x:.3f}"


def test_a_chance_is_said_where_the_model_was_bet_on() -> None:
    lines = told(run("expected_cost", 99.0))[1]["scale"]["lines"]
    assert len(lines) == 2 and lines[1].startswith("The chance that the small model is wrong was put at 0.")


def test_long_answers_are_fetched_where_they_are_looked_at() -> None:
    trace = run("agreement", 0.0)
    record = found(trace)
    fates = ["kept", *["other"] * 59]
    columns = {name: [x[0]] * 60 for name, x in record.columns.items()} | {
        "outcome": fates,
        "votes": [1.0] * 60,
    }
    trace.steps[0].details = [replace(record, columns=columns)]
    wire = build_wire(trace)
    short, whole = wire.step(trace.steps[0]), wire.step(trace.steps[0], whole=True)
    assert "rows" not in short["scale"] and short["few"] and len(whole["scale"]["rows"]) == 60
    plain = list(messages(toys.decode(toys.method(), count=2).sink))
    assert "views" not in plain[0] and "scale" not in plain[1]


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
        record = found(trace)
        assert record.values["kept"] == kept
        drawn.run(OPEN, all_)
        rows = drawn.page.locator(ROWS)
        assert rows.count() == len(record)
        bars = rows.locator(".fill").evaluate_all("all => all.map((x) => x.getBoundingClientRect().width)")
        line = drawn.page.evaluate(LINE)
        scores = [x[3] for x in all_[1]["scale"]["rows"]]
        for width, score in zip(bars, scores, strict=True):
            assert (width >= line - 1) == (score >= tau), "a bar reaches the line where its number does"
        said = drawn.text(".scale-pane .took")
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
    assert not drawn.page.locator(".scale-pane").is_visible()
