"""The drawing of one run in a browser: the card against the trace, the map against the engine, keys, tables, states."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import toys
from browser import DRAWN, LONG, TIMERS, passes
from followed import followed
from sizes import first_of, thinned
from toylab import Words

from decodescope.engine import Session
from decodescope.engine.trace import Trace
from decodescope.lab.decision import residual as left
from decodescope.lab.formatting import style
from decodescope.lab.views.bundle import bundle
from decodescope.lab.wire.messages import messages
from decodescope.lab.wire.wire import encode

from ..lab.runs import known

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
WEB = Path(style.__file__).parent.parent / "web"
PAGE = """<!doctype html><link rel="stylesheet" href="/scope.css"><body style="margin:0;background:var(--bg)">
<input id="other"><div id="place" style="padding:16px"></div>
<script type="module">import * as S from "/scope.js"; window.S = S; window.asked = [];
window.view = S.mount(document.getElementById("place"), { onGap: (a, b) => window.asked.push([a, b]) });</script>"""


def served(body: str, kind: str) -> Any:
    """A route that answers with this text."""
    return lambda route: route.fulfill(body=body, content_type=kind)


class Scope:
    """A page with nothing but the drawing."""

    def __init__(self, driver: Any, width: int = 1440, **more: Any):
        self.page = driver.new_context(viewport={"width": width, "height": 900}, **more).new_page()
        self.page.set_default_timeout(LONG)
        self.troubles: list[str] = []
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.route("http://scope.test/", lambda r: r.fulfill(body=PAGE, content_type="text/html"))
        sheet = (WEB / "styles/scope.css").read_text(encoding="utf-8")
        for name, kind, body in (("scope.js", "text/javascript", bundle()), ("scope.css", "text/css", sheet)):
            self.page.route(f"http://scope.test/{name}", served(body, kind))
        self.page.goto("http://scope.test/")
        self.page.wait_for_function("window.view")

    def show(self, told: list[dict[str, Any]], step: int | None = None) -> None:
        data = json.loads(encode(told))  # the data as the wire delivers them
        self.page.evaluate("told => told.forEach((one) => view.push(one))", data)
        if step is not None:
            self.seek(step)

    def seek(self, step: int) -> None:
        self.page.evaluate("i => view.seek(i)", step)
        self.settled()

    def settled(self) -> None:
        self.page.evaluate(DRAWN)

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).first.inner_text())

    def sums(self) -> dict[str, str]:
        """The card's numbers by their symbol."""
        rows = self.page.locator(".decision .sums tr").all_inner_texts()
        parts = [[x.strip() for x in row.split("\t")] for row in rows]
        return {part[-2]: part[-1] for part in parts if len(part) > 1}


@pytest.fixture
def scope(driver: Any) -> Iterator[Scope]:
    made = Scope(driver)
    yield made
    assert not made.troubles, made.troubles


def refusal(trace: Trace) -> int:
    """A step with accepted and refused tokens, in which the first refusal is the second trial or a later one."""
    for step in trace.steps:
        t = step.trials
        if t is not None and step.path and not all(t.ok) and t.ok[0]:
            return step.step
    raise AssertionError("the test needs a step with both verdicts")


def decoded(strategy: str = "draft_verify", policy: Any = "keep_all", count: int = 30, **more: Any) -> Trace:
    target = toys.target()
    target.tokenizer = Words([f" {letter}" for letter in "abcdefghijklm"])  # type: ignore[assignment]
    made = Session(
        target, toys.method(strategy=strategy, policy=policy), toys.PROMPT, max_new_tokens=count, **more
    )
    made.sink = Trace()
    for _ in made.stream():
        pass
    return made.sink


def near(shown: str, value: float) -> bool:
    """True if a number, as it is shown, has this value."""
    return abs(float(shown) - value) <= max(0.0006, 0.05 * abs(value) if abs(value) < 0.001 else 0)


@pytest.mark.nightly
def test_the_card_shows_the_first_refusal_by_itself_with_the_numbers_of_the_trace(scope: Scope) -> None:
    trace = known("tree")
    i = refusal(trace)
    scope.show(list(messages(trace)), i)
    t = trace.steps[i].trials
    k = t.ok.index(False)
    assert scope.text(".decision h2") == "Rejected" and scope.text(".decision .agree") == "re-derived"
    sums = scope.sums()
    assert near(sums["p(x)"], t.p[k]) and near(sums["q(x)"], t.q[k]) and near(sums["u"], t.u[k])
    first, second = (float(x) for x in sums["u < p / q" if "u < p / q" in sums else "u < r / q"].split("≥"))
    assert abs(first - t.u[k]) < 1e-3 and abs(second - t.r[k] / t.q[k]) < 1e-3 and first >= second


def test_a_click_and_the_keyboard_alone_show_the_same_decision(scope: Scope) -> None:
    trace = known("tree")
    i = refusal(trace)
    scope.show(list(messages(trace)), i)
    node = trace.steps[i].path[0]
    scope.page.locator(f".ds .node[data-node='{node + 1}']:visible").click()
    scope.settled()
    clicked = scope.text(".decision")
    t = trace.steps[i].trials
    assert clicked.startswith("Accepted") and near(scope.sums()["p(x)"], t.p[t.node.index(node)])
    # reach the same node from the root of the tree, without the mouse
    scope.seek(i + 1)
    scope.seek(i)
    scope.page.focus(".ds .node[tabindex='0']")
    for _ in range(12):
        scope.page.keyboard.press("h")
        scope.settled()
        if scope.page.evaluate("document.activeElement.dataset.node") == "0":
            break
    scope.page.keyboard.press("l")
    scope.settled()
    for _ in range(12):
        if scope.page.evaluate("document.activeElement.dataset.node") == str(node + 1):
            break
        scope.page.keyboard.press("j")
        scope.settled()
    assert "accepted" in scope.page.evaluate("document.activeElement.getAttribute('aria-label')")
    scope.page.keyboard.press("Enter")
    scope.settled()
    assert scope.page.evaluate("document.activeElement.classList.contains('decision')")
    assert scope.text(".decision") == clicked
    scope.page.keyboard.press("Escape")
    assert scope.page.evaluate("document.activeElement.getAttribute('role')") == "treeitem"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", thinned(2, ["chain", "tree", "copied", "block", "typical", "greedy", "plain"])
)
def test_every_verdict_is_derived_again_and_a_changed_one_is_not(scope: Scope, name: str) -> None:
    trace = known(name)
    head, *told = [m for m in messages(trace) if m["kind"] != "end"]
    found = scope.page.evaluate("([told, head]) => told.map((step) => S.rederives(step, head))", [told, head])
    assert set(found) == {True} or (name in ("greedy", "copied") and set(found) <= {True, None})
    if name == "plain":
        wrong = [{**m, "verdict": {**m["verdict"], "extra": [0.9, 0.1, 0.2]}} for m in told]
    else:
        tried = [m for m in told if m["verdict"]["tried"]]
        assert len(tried) > 10, "the test needs trials"
        wrong = [
            {**m, "verdict": {**m["verdict"], "ok": [1 - m["verdict"]["ok"][0], *m["verdict"]["ok"][1:]]}}
            for m in tried
        ]
    found = scope.page.evaluate(
        "([told, head]) => told.map((step) => S.rederives(step, head))", [wrong, head]
    )
    assert set(found) == {False}


def test_a_verdict_that_does_not_follow_is_shown_with_both_values(scope: Scope) -> None:
    trace = known("tree")
    i = refusal(trace)
    told = list(messages(trace))
    step = next(m for m in told if m.get("i") == i)
    row = step["nodes"][step["verdict"]["first_reject"]]
    row[5] = 0.0  # with this u the token would have been accepted
    scope.show(told, i)
    assert scope.text(".decision .lie") == "does not re-derive"
    assert scope.text(".decision .lying").split() == [
        "record",
        "says",
        "rejected",
        "numbers",
        "say",
        "accepted",
    ]
    assert "does not re-derive" in scope.text(".headline")


@pytest.mark.nightly
def test_what_was_left_is_what_the_lab_says_was_left(scope: Scope) -> None:
    seen = 0
    js = "([step, head, id]) => S.decision(step, head, id).laws"
    for name in ("chain", "tree", "copied"):
        trace = known(name)
        head, *told = [m for m in messages(trace) if m["kind"] != "end"]
        for step, message in zip(trace.steps, told, strict=True):
            t = step.trials
            for k in range(0 if t is None else len(t.node)):
                if t.ok[k] or not message["tops"]:
                    continue
                rows, _ = left.residual_rows(trace, step, k)
                found = scope.page.evaluate(js, json.loads(encode([message, head, t.node[k] + 1])))
                assert found["left"] == any(row.left is not None for row in rows), (name, step.step, k)
                if not found["left"]:
                    continue
                assert sum(row["left"] for row in found["rows"]) == pytest.approx(1, abs=1e-6)
                assert sum(row["p"] for row in found["rows"]) == pytest.approx(1, abs=1e-5)
                due = {row.token: row.left for row in rows}
                for row in found["rows"][:-1]:
                    assert row["token"] not in due or row["left"] == pytest.approx(
                        due[row["token"]], abs=1e-5
                    )
                seen += 1
    assert seen > 30, "the test needs refusals"


TITLES = {
    "greedy": ("Rejected", "same token"),
    "copied": ("Rejected", "u <"),
    "block": ("Rejected", "w h u"),
    "typical": ("Rejected", "bound"),
    "plain": ("The target's token", "from ≤ u < to"),
}


@pytest.mark.parametrize("name", TITLES)
def test_each_rule_has_its_card(scope: Scope, name: str) -> None:
    trace = known(name)
    title, word = TITLES[name]
    i = next(
        s.step for s in trace.steps if name == "plain" or (s.trials is not None and not any(s.trials.ok))
    )
    scope.show(list(messages(trace)), i)
    card = " ".join(scope.text(".decision").split())
    assert card.startswith(title) and word in card and "re-derived" in card, card
    if name == "block":
        rule, t = trace.steps[i].rule, trace.steps[i].trials
        rows = scope.page.locator(".decision .block tbody tr").all_inner_texts()
        assert len(rows) == len(t.u)
        for row, w, h, u in zip(rows, rule["w"][1:], t.num, t.u, strict=True):
            shown = row.split("\t")
            assert near(shown[1], w) and near(shown[2], h) and near(shown[3], u)
    if name == "plain":
        extra = trace.steps[i].extra
        shown = scope.sums()
        assert near(shown["u"], extra.u) and near(shown["from"], extra.low) and near(shown["to"], extra.high)


def test_a_node_that_was_not_reached_says_why(scope: Scope) -> None:
    trace = known("tree")
    i = refusal(trace)
    step = trace.steps[i]
    scope.show(list(messages(trace)), i)
    untried = next(n for n in range(len(step.draft.tokens)) if n not in step.trials.node)
    scope.page.evaluate("([step, node]) => view.select({ step, node })", [i, untried + 1])
    scope.settled()
    card = scope.text(".decision")
    assert card.startswith("Not reached") and "price of a wide draft" in card


def test_jacobi_and_beam_have_their_cards(scope: Scope) -> None:
    trace = decoded("jacobi")
    step = next(s for s in trace.steps if len(s.detail("fixed_point").places) > 1)
    block = step.detail("fixed_point")
    scope.show(list(messages(trace)), step.step)
    assert f"{len(block.places)} of {len(block)} final" in scope.text(".decision")
    rows = scope.page.locator(".decision .block tbody tr").all_inner_texts()
    assert sum("confirmed" in row or "final" in row for row in rows) == len(block.places)
    assert scope.text(".decision .agree") == "re-derived"
    scope.page.evaluate("view.clear()")
    trace = decoded("beam", count=12)
    scope.show(list(messages(trace)), 5)
    assert scope.text(".decision h2") == "Hypothesis 1 of 4"
    scope.page.locator(".beams li button").nth(1).click()
    scope.settled()
    beams = followed(trace.steps[5])
    assert scope.text(".decision h2") == "Hypothesis 2 of 4"
    assert abs(float(scope.sums()["score, nats"]) - beams.scores[1]) < 1e-3


POLICIES = {
    "h2o": {"heavy": 3, "recent": 4},
    "window": {"window": 6},
    "streaming_llm": {"sink_tokens": 2, "recent": 4},
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", first_of(*POLICIES))
def test_the_map_holds_what_the_engine_holds_at_every_step(scope: Scope, name: str) -> None:
    target = toys.target()
    made = Session(target, toys.method(policy=(name, POLICIES[name])), toys.PROMPT, max_new_tokens=24)
    made.sink = Trace()
    held = []
    for _ in made.stream():
        stores = made.target.cache.layers
        held.append(
            [sorted(head.tolist()) for x in stores for head in x.positions()[0].expand(x.kv.shape[2], -1)]
        )
    scope.show(list(messages(made.sink)), 10)
    found = scope.page.evaluate(
        """steps => { const map = view.store.mapped(); return [...Array(steps).keys()].map((i) =>
        [...Array(map.rows).keys()].map((row) => [...Array(map.length(i)).keys()].filter((p) => map.kept(row, p, i)))) }""",
        len(held),
    )
    assert found == held
    scope.page.locator(".cache-pane .small >> text=Show as table").click()
    scope.settled()
    rows = scope.page.locator(".cache-pane tbody tr").all_inner_texts()
    assert [int(row.split("\t")[2]) for row in rows] == [len(x) for x in held[10]]


@pytest.mark.nightly
def test_the_map_waits_for_a_step_that_is_missing_and_asks_for_it(scope: Scope) -> None:
    told = list(messages(decoded(policy=("window", {"window": 6}))))
    hole = next(m for m in told if m.get("i") == 4)
    scope.show([m for m in told if m is not hole], 10)
    assert [4, 5] in scope.page.evaluate("asked") and "waits for earlier steps" in scope.text(".cache-pane")
    scope.show([hole])
    scope.settled()
    assert scope.page.locator(".cache-pane canvas").is_visible()


def test_keys_go_through_the_steps_and_only_where_a_view_has_the_focus(scope: Scope) -> None:
    trace = known("tree")
    scope.show(list(messages(trace)), 3)
    at = "view.at"
    scope.page.focus("#other")
    scope.page.keyboard.press("ArrowRight")
    assert scope.page.evaluate(at) == 3
    scope.page.focus(".ds")
    refused = [s.step for s in trace.steps if s.trials is not None and not all(s.trials.ok)]
    for key, due in (
        ("ArrowRight", 4),
        ("Shift+ArrowRight", 14),
        ("Home", 0),
        ("r", next(i for i in refused if i > 0)),
        ("End", len(trace.steps) - 1),
        ("Shift+R", max(i for i in refused if i < len(trace.steps) - 1)),
    ):
        scope.page.keyboard.press(key)
        assert scope.page.evaluate(at) == due, key
    scope.page.keyboard.press("?")
    assert scope.page.locator(".ds .keys").is_visible()
    scope.page.keyboard.press("Escape")
    assert not scope.page.locator(".ds .keys").is_visible()


def test_the_replay_plays_pauses_and_ends(scope: Scope) -> None:
    trace = known("chain")
    scope.page.evaluate(TIMERS)
    scope.show(list(messages(trace)), len(trace.steps) - 4)
    scope.page.locator(".speed").click()  # eight steps a second
    scope.page.focus(".ds")
    scope.page.keyboard.press(" ")
    scope.page.wait_for_selector("[aria-label='pause the replay']")
    scope.page.wait_for_function(f"view.at == {len(trace.steps) - 1}")
    scope.page.wait_for_selector("[aria-label='play the steps']")
    scope.page.keyboard.press(" ")  # from the first step
    scope.page.wait_for_function("view.at >= 2 && view.at < 20")
    scope.page.keyboard.press(" ")
    at = scope.page.evaluate("view.at")
    passes(scope.page, 400)
    assert scope.page.evaluate("view.at") == at


def test_tree_and_table_say_the_same(scope: Scope) -> None:
    trace = known("tree")
    i = refusal(trace)
    scope.show(list(messages(trace)), i)
    assert scope.page.locator(".ds [role=tree]").count() == 1
    assert scope.page.locator(".ds [role=treeitem][tabindex='0']:visible").count() == 1
    scope.page.locator(".tree-pane .small >> text=Show as table").click()
    scope.settled()
    rows = [x.split("\t") for x in scope.page.locator(".tree-pane tbody tr").all_inner_texts()]
    t = trace.steps[i].trials
    for node, p, u in zip(t.node, t.p, t.u, strict=True):
        assert float(rows[node + 1][4]) == p and float(rows[node + 1][6]) == u


def test_states_nothing_lost_failed(scope: Scope) -> None:
    assert scope.text(".ds .empty") == "No run yet."
    told = list(messages(known("chain")))
    scope.show([m for m in told if m["kind"] != "end"])
    scope.page.evaluate("view.note('reconnecting, last step 3')")
    scope.settled()
    assert (
        scope.text(".ds .veil") == "reconnecting, last step 3"
        and scope.page.locator(".ds .node").first.is_visible()
    )
    scope.page.evaluate("view.note('')")
    end = {
        "kind": "end",
        "reason": "out_of_memory",
        "message": "The memory of the device is full.",
        "steps": 30,
        "tokens": 60,
    }
    scope.show([{**end, "wall": 1.0}])
    scope.settled()
    said = scope.text(".ds .outcome.bad")
    assert "memory of the device is full" in said and "30 steps are kept" in said


@pytest.mark.nightly
@pytest.mark.parametrize("width", first_of(390, 900, 1440))
def test_card_and_map_stay_inside_and_targets_can_be_hit(driver: Any, width: int) -> None:
    scope = Scope(driver, width, has_touch=width == 390)
    for name in ("tree", "block", "typical", "plain"):
        scope.page.evaluate("view.clear()")
        trace = known(name)
        scope.show(list(messages(trace)))
        for i in range(0, len(trace.steps), max(1, len(trace.steps) // 4)):
            scope.seek(i)
            out = scope.page.evaluate(
                """() => {
                  const box = document.querySelector('.ds').getBoundingClientRect();
                  const right = Math.max(box.right, innerWidth) + 1;
                  const bad = [];
                  for (const e of document.querySelectorAll('.decision *, .cache-pane *, .tree text')) {
                    const r = e.getBoundingClientRect();
                    if (r.width && (r.right > right || r.left < -1)) bad.push(e.outerHTML.slice(0, 80));
                  }
                  for (const b of document.querySelectorAll('.ds button')) {
                    const r = b.getBoundingClientRect();
                    if (r.width && (r.width < 24 || r.height < 24)) bad.push('small: ' + b.textContent);
                  }
                  return bad }"""
            )
            assert not out, (name, i, out)
            assert scope.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert not scope.troubles, scope.troubles
    scope.page.context.close()
