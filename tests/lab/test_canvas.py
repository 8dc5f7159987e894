"""A canvas on the page: which pass settled which place and why, earlier proposals, and what is re-derived."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import toys
from sizes import thinned
from toylab import Words

from decodescope.engine import Session
from decodescope.engine.trace import Trace
from decodescope.engine.trace.details.shapes import CanvasDetail
from decodescope.lab.wire.canvas import ROOM
from decodescope.lab.wire.messages import build_wire, max_node_number
from decodescope.lab.wire.wire import BUDGET, encode

from .drawn import Drawn, told
from .runs import TEXTS

RULES = {
    "low_confidence": ("low_confidence", {"steps": 3}),
    "random": ("random", {"steps": 3}),
    "threshold": ("threshold", {"tau": 0.35}),
    "factor": ("threshold", {"factor": 1.8}),
    "mask_predict": ("mask_predict", {"steps": 3}),
    "local_leap": ("local_leap", {"tau": 0.4, "relaxed_tau": 0.2, "anchor_radius": 2}),
}


def run(name: str, count: int = 20, **strategy: Any) -> Trace:
    """A finished run of the toy with bidirectional attention, with letters as the texts of its tokens."""
    target = replace(toys.bidirectional_target(), tokenizer=Words(TEXTS))  # type: ignore[arg-type]
    method = toys.method(strategy=("masked", {"block": 8, **strategy}), unmasking=RULES[name])
    session = Session(target, method, toys.PROMPT, max_new_tokens=count, seed=0)
    session.sink = Trace()
    for _ in session.stream():
        pass
    return session.sink


def fills(trace: Trace) -> list[CanvasDetail]:
    made = [step.detail_of("canvas") for step in trace.steps]
    assert all(x is not None for x in made)
    return made  # type: ignore[return-value]


# ---- on the wire


@pytest.mark.parametrize("name", RULES)
def test_wire_has_what_the_record_has(name: str) -> None:
    trace = run(name)
    for fill, message in zip(fills(trace), told(trace)[1:-1], strict=True):
        sent = message["canvas"]
        assert (
            sent["at"] == [fill.start, fill.length]
            and sent["among"] == fill.block
            and sent["count"] == fill.count
        )
        assert [x[:3] for x in sent["now"]] == [
            list(x) for x in zip(fill.places, fill.rules, fill.tokens, strict=True)
        ]
        assert sent["open"] == fill.open.tolist()
        assert [sent["tokens"][k][0] for k in sent["which"]] == fill.candidate.tolist()
        assert (np.array(sent["c"], np.float32) == fill.confidence).all()
        bars = (
            None
            if sent["bars"] is None
            else np.broadcast_to(np.array(sent["bars"], np.float32), fill.columns.get("bars").shape)
        )
        assert (bars is None and fill.columns.get("bars") is None) or (bars == fill.columns.get("bars")).all()
        assert (sent["order"] is None) == (fill.columns.get("order") is None) and sent[
            "anchors"
        ] == fill.anchors


def test_a_step_is_small_whatever_the_block_and_comes_whole_where_it_is_asked_for() -> None:
    trace = run("threshold", 400, block=400)
    wire = build_wire(trace)
    first = trace.steps[0]
    assert first.detail_of("canvas") is not None and len(first.detail_of("canvas").open) == 400
    small, whole, brief = wire.step(first), wire.step(first, whole=True), wire.brief(first)
    assert "open" not in small["canvas"] and small["few"] and "open" not in brief["canvas"]
    assert len(whole["canvas"]["open"]) == 400 and "few" not in whole
    assert len(encode(small)) - len(encode(small["canvas"]["now"])) < BUDGET
    assert max_node_number(first) == 400
    few = run("threshold")
    briefs = [build_wire(few).brief(step)["canvas"] for step in few.steps]
    assert all(len(json.dumps(x)) < ROOM and "bars" not in x for x in briefs)
    assert [x["open"] for x in briefs] == [x.open.tolist() for x in fills(few)]


# ---- drawn

drawn_here = [pytest.mark.browser, pytest.mark.xdist_group("drawn")]


def drawing(test: Any) -> Any:
    for mark in drawn_here:
        test = mark(test)
    return test


def open_run(drawn: Drawn, messages: list[dict[str, Any]]) -> None:
    drawn.run(
        "(all) => { window.view = S.mount(place, {}); all.forEach((one) => view.push(one)); }", messages
    )


def row(drawn: Drawn, step: int) -> list[list[str | None]]:
    """The classes, shades and words of the cells of a pass."""
    return drawn.page.locator(f".passes tr[data-step='{step}'] td[data-place]").evaluate_all(
        "x => x.map((y) => [y.className.replace(/ ?at$/, ''), y.style.getPropertyValue('--p'), y.textContent])"
    )


@drawing
@pytest.mark.parametrize("name", thinned(3, RULES))
def test_each_row_shows_what_was_open_settled_and_how_sure(name: str, drawn: Drawn) -> None:
    trace = run(name)
    open_run(drawn, told(trace))
    signs = {"scheduled": "•", "best": "▴", "sure": "●", "near": "◐", "factor": "ƒ", "written": "•"}
    for i, fill in enumerate(fills(trace)):
        drawn.run("(i) => view.seek(i)", i)
        assert drawn.page.locator(".passes tr.own").get_attribute("data-step") == str(i)
        sure = dict(
            zip(fill.open.tolist(), zip(fill.confidence.tolist(), range(99), strict=False), strict=True)
        )
        why = dict(zip(fill.places, fill.rules, strict=True))
        anchors = fill.anchors or []
        for place, cell in enumerate(row(drawn, i), fill.start):
            if place in sure:
                kind = ("now" if place in why else "open") + (" anchor" if place in anchors else "")
                kind += " again" if place in (fill.reopened or []) else ""
                assert cell == [
                    kind,
                    f"{round(100 * sure[place][0] + 1e-9)}%",
                    signs[why[place]] if place in why else "",
                ]
            else:
                assert cell == ["done" if place < fill.block[1] else "", "", ""]
        out = len([x for step in trace.steps[: i + 1] for x in step.emitted])
        again = f", {len(fill.reopened)} masked again" if fill.reopened else ""
        words = (
            f"{len(fill.places)} of {len(fill.open)} open place{'s' * (len(fill.open) > 1)} settled{again}"
        )
        words += f", text up to place {out}"
        assert drawn.text(".lead").endswith(words) and "draft" not in drawn.text(".lead")
        assert drawn.text(".agrees") == "✓ re-derived"


@pytest.mark.nightly
@drawing
def test_places_show_tokens_masks_and_what_waits(drawn: Drawn) -> None:
    trace = run("random")
    open_run(drawn, told(trace))
    held: dict[int, int] = {}
    waited, out = 0, 0
    for i, fill in enumerate(fills(trace)):
        later: dict[int, str] = {}
        drawn.run("(i) => view.seek(i)", i)
        held |= dict(zip(fill.places, fill.tokens, strict=True))
        out += len(trace.steps[i].emitted)
        shown = drawn.page.locator(".canvas button:visible").evaluate_all(
            "x => x.map((y) => [y.className, y.textContent])"
        )
        assert len(shown) == fill.length
        for place, (kind, text) in enumerate(shown, fill.start):
            ahead = " ahead" if place - fill.start >= out else ""
            if place in held:
                assert (kind, text) == (
                    ("now" if place in fill.places else "set") + ahead,
                    str(trace.pieces[held[place]]),
                )
                waited += bool(ahead)
                later |= {place: str(trace.pieces[held[place]])} if ahead else {}
            else:
                assert (kind, text) == ("open" if place in fill.open else "mask", "▁")
        # after the text, too
        assert drawn.page.locator(".later .waits").all_inner_texts() == [*later.values()]
        assert drawn.page.locator(".key.ahead").is_visible() is bool(later)
        if later:
            said = str(drawn.page.locator(".later").get_attribute("aria-label"))
            assert said.startswith(f"{len(later)} settled token")
            assert all(f"at place {place - fill.start + 1}" in said for place in later)
            assert drawn.page.locator(".later .gap").first.inner_text() == "▁" * (
                min(later) - fill.start - out
            )
    assert waited, "the test needs a token that waits for others before it"


@drawing
def test_a_row_and_a_cell_lead_there_by_mouse_and_keys(drawn: Drawn) -> None:
    trace = run("low_confidence")
    open_run(drawn, told(trace))
    drawn.run("() => view.seek(4)")
    drawn.page.locator(".passes tr[data-step='2'] th button").click()
    drawn.settled()
    assert drawn.run("() => view.at") == 2
    drawn.page.locator(".passes tr[data-step='1'] td[data-place]").nth(5).click()
    drawn.settled()
    assert drawn.run("() => [view.at, view.selection.node]") == [1, 6]
    drawn.page.locator(".passes tr[data-step='3'] th button").focus()
    drawn.page.keyboard.press("Enter")
    drawn.settled()
    assert drawn.run("() => view.at") == 3
    drawn.page.locator(".canvas button").nth(3).click()
    for key, due in (("l", [3, 5]), ("l", [3, 6]), ("h", [3, 5]), ("j", [4, 5]), ("k", [3, 5])):
        drawn.page.keyboard.press(key)
        drawn.settled()
        assert drawn.run("() => [view.at, view.selection.node]") == due, key
    assert drawn.page.locator(".canvas [aria-pressed='true']").get_attribute("data-node") == "5"


@drawing
@pytest.mark.nightly
def test_a_link_to_no_place_of_a_canvas_shows_one_that_was_settled(drawn: Drawn) -> None:
    trace = run("low_confidence")
    open_run(drawn, told(trace))
    for node in (0, 999):
        drawn.run("(node) => view.select({ step: 1, node })", node)
        place = fills(trace)[1].places[0] - fills(trace)[1].start + 1
        assert "Settled in this pass" in drawn.text(".decision") and f"place {place} of" in drawn.text(
            ".decision"
        )
        assert drawn.page.locator(".canvas [aria-pressed='true']").get_attribute("data-node") == str(place)
    drawn.run("(node) => view.select({ step: 0, node })", fills(trace)[0].length)
    assert "Its block comes later" in drawn.text(".decision")


@drawing
@pytest.mark.nightly
def test_places_that_are_masked_again_are_masks_again(drawn: Drawn) -> None:
    trace = run("mask_predict")
    open_run(drawn, told(trace))
    i, fill = next((i, x) for i, x in enumerate(fills(trace)) if x.reopened)
    drawn.run("([step, node]) => view.select({ step, node })", [i, fill.reopened[0] - fill.start + 1])
    kinds = drawn.page.locator(".canvas button:visible").evaluate_all("x => x.map((y) => y.className)")
    assert [k + fill.start for k, kind in enumerate(kinds) if kind == "open"] == fill.reopened
    assert "Masked again" in drawn.text(".decision") and "least sure" in drawn.text(".decision")


@pytest.mark.nightly
@drawing
@pytest.mark.parametrize("name", thinned(3, sorted({*RULES} - {"mask_predict"})))
def test_card_tells_confidence_bar_rule_and_since_when_the_candidate_was_right(
    name: str, drawn: Drawn
) -> None:
    trace = run(name)
    open_run(drawn, told(trace))
    at = {
        place: (i, rule)
        for i, f in enumerate(fills(trace))
        for place, rule in zip(f.places, f.rules, strict=True)
    }
    place = max((x for x in at if x < fills(trace)[0].block[1]), key=lambda x: at[x][0])
    last, rule = at[place]
    guesses = [int(f.candidate[f.open.tolist().index(place)]) for f in fills(trace)[: last + 1]]
    right = next(i for i in range(last + 1) if set(guesses[i:]) == {guesses[last]})
    drawn.run("([step, node]) => view.select({ step, node })", [last, place - fills(trace)[0].start + 1])
    fill, k = fills(trace)[last], fills(trace)[last].open.tolist().index(place)
    card, cells = drawn.text(".decision"), drawn.page.locator(".decision .sums td.value").all_inner_texts()
    assert float(cells[0]) == pytest.approx(float(fill.confidence[k]), abs=1e-3)
    if fill.columns.get("bars") is not None:
        assert float(cells[1]) == pytest.approx(float(fill.columns.get("bars")[k]), abs=1e-3)
    sentence = {"scheduled": "The schedule settles", "best": "The surest open place", "sure": "reaches the bar",
                "near": "An anchor near it", "factor": "surest places: the largest n"}  # fmt: skip
    assert sentence[rule] in card and "Settled in this pass" in card and "re-derived" in card
    assert (f"since pass {right}" if right else "in all passes") in card
    words = drawn.page.locator(".decision .block td.yes").all_inner_texts()
    assert words == ["" if i < right else "settled" if i == last else "right" for i in range(last + 1)][-8:]


@drawing
def test_what_does_not_follow_is_said(drawn: Drawn) -> None:
    messages = told(run("threshold"))
    moved = next(x for x in messages[1:-1] if len(x["canvas"]["now"]) < len(x["canvas"]["open"]))
    moved["canvas"]["c"] = [1 - x for x in moved["canvas"]["c"]]
    open_run(drawn, messages)
    drawn.run("(i) => view.seek(i)", moved["i"])
    assert drawn.text(".agrees") == "does not re-derive" and "does not re-derive" in drawn.text(".decision")


@drawing
@pytest.mark.nightly
def test_rows_fed_and_old_entries_stand_beside_the_pass(drawn: Drawn) -> None:
    trace = run("low_confidence", cache="dual")
    open_run(drawn, told(trace))
    drawn.run("() => view.seek(1)")
    shown = drawn.page.locator(".passes tbody .end").all_inner_texts()
    due = [(step.passes[0].tokens, step.detail_of("canvas").stale) for step in trace.steps]
    assert shown == [f"{rows}, {stale} old" if stale else str(rows) for rows, stale in due][: len(shown)]
    assert "beside entries that were made 1 pass before (dual)" in drawn.text(".decision")


# ---- what was tried, and what a grammar refused


NESTED = 'start: "1" [start ("0" start)*] "2" | "3"'


def unusual(selector: tuple[str, dict], **strategy: Any) -> Trace:
    method = toys.method(strategy=("masked", {"block": 16, **strategy}), unmasking=selector)
    return toys.decode(method, count=16, stop_tokens=[7]).sink


def test_what_was_tried_and_refused_is_on_the_wire() -> None:
    tried = unusual(("explore", {"tau": 0.9, "min_sure_places": 6, "candidates": 3}))
    refused = unusual(("low_confidence", {"steps": 1}), grammar=NESTED)
    seen = 0
    for trace in (tried, refused):
        for step, message in zip(trace.steps, told(trace)[1:-1], strict=True):
            fill, sent = step.detail_of("canvas"), message["canvas"]
            assert fill is not None and ("tried" in sent) == (fill.explored is not None)
            assert ("witness" in sent) == ("vetoes" in sent) == (fill.vetoes is not None)
            if fill.explored is not None:
                assert [x[0] for x in sent["tried"]["of"]] == fill.explored.tokens
                assert (sent["tried"]["at"], sent["tried"]["won"]) == (fill.explored.place, fill.explored.won)
            for veto, (place, token, _, together) in zip(
                fill.vetoes or (), sent.get("vetoes", ()), strict=True
            ):
                assert (veto.place, veto.token, veto.together) == (place, token, together)
            seen += bool(fill.explored) + len(fill.vetoes or ())
    assert seen > 5


@drawing
def test_card_tells_what_was_tried_what_was_refused_and_bits(drawn: Drawn) -> None:
    trace = unusual(("explore", {"tau": 0.9, "min_sure_places": 6, "candidates": 3}), grammar=NESTED)
    open_run(drawn, told(trace))
    i, fill = next((i, x) for i, x in enumerate(fills(trace)) if x.explored is not None)
    select = "([step, node]) => view.select({ step, node })"
    drawn.run(select, [i, fill.explored.place - fill.start + 1])
    card = drawn.text(".decision")
    assert "tokens were tried here" in card and "Canvases read side by side" in card and ", won" in card
    assert "Bits settled: " in card and "(witness)" in card
    assert drawn.text(".agrees") == "✓ re-derived"
    j, veto = next((j, v) for j, x in enumerate(fills(trace)) for v in x.vetoes or ())
    drawn.run(select, [j, veto.place - fills(trace)[j].start + 1])
    assert "The grammar refused" in drawn.text(".decision") and drawn.text(".agrees") == "✓ re-derived"
