"""What is drawn with little room or little content: long caches, truncated files, other colours, chosen parts."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sizes import first_of

from decodescope.lab import export_html, open_trace
from decodescope.lab.wire.messages import build_wire
from decodescope.lab.wire.wire import encode, trace_node

from .drawn import Drawn, told
from .runs import known

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("drawn")]
LONG = 2000


def show(drawn: Drawn, told: list[dict[str, Any]], step: int = 0, **options: Any) -> None:
    drawn.run(
        "(told, i, options) => { window.view = S.mount(place, options); told.forEach((one) => view.push(one)); view.seek(i); }",
        told,
        step,
        options,
    )


def long_cache(
    rows: dict[int, list[Any]], mass: np.ndarray | None = None, seen: np.ndarray | None = None
) -> list[dict[str, Any]]:
    """A run whose first step has LONG positions, minus the lost `rows` (row -> positions).

    `seen` is what its last pass read.
    """
    trace = known("plain")
    wire = build_wire(trace)
    head, step = json.loads(encode([wire.head(), wire.step(trace.steps[0], whole=True)]))
    lanes = head["model"]["n_layers"] * head["model"]["n_kv_heads"]
    out = [rows.get(row, []) for row in range(lanes)]
    kv = {
        "lane": "target",
        "appended": 1,
        "read": LONG,
        "held": LONG,
        "bytes": 1,
        "full": 1,
        "evicted": 1,
        "prompt": {"out": out},
    }
    if mass is not None:
        kv["mass"] = base64.b64encode(
            np.ascontiguousarray(np.broadcast_to(mass, (lanes, LONG))).tobytes()
        ).decode()
    if seen is not None:
        kv["seen"] = base64.b64encode(np.packbits(np.broadcast_to(seen, (lanes, LONG))).tobytes()).decode()
    return [head, {**step, "kv": [kv]}]


CELLS = """(row, from, to) => {
  const canvas = document.querySelector("canvas.map"), c = canvas.getContext("2d"), left = 34, columns = Math.ceil(2000 / 5);
  const wide = Math.min(canvas.clientWidth - left, columns * 14), found = new Set();
  const edge = (column) => Math.round(left + (column * wide) / columns);
  const x0 = edge(Math.floor(from / 5)), x1 = edge(Math.floor(to / 5) + 1) - 1;
  const y = 30 + row * 8 + 2 * Math.floor(row / 2), data = c.getImageData(x0, y, Math.max(1, x1 - x0), 7).data;
  for (let k = 0; k < data.length; k += 4) found.add([data[k], data[k + 1], data[k + 2]].join());
  return [...found];
}"""


@pytest.mark.nightly
def test_one_entry_among_two_thousand_is_seen_kept_or_evicted(drawn: Drawn) -> None:
    show(drawn, long_cache({0: [[500, 1002], [1004, 1500]], 1: [1003]}))
    assert "one column is 5 positions" in drawn.text(".cache-pane .rule")
    kept, gone = (drawn.run(CELLS, 0, a, b) for a, b in ((100, 400), (600, 900)))
    assert len(kept) == len(gone) == 1 and kept != gone, "plain stretches have one colour"
    assert sorted(drawn.run(CELLS, 0, 1003, 1003)) == sorted(kept + gone), "the one that is kept"
    assert sorted(drawn.run(CELLS, 1, 1003, 1003)) == sorted(kept + gone), "the one that is evicted"
    assert drawn.run(CELLS, 1, 500, 900) == kept


def test_a_column_is_as_dark_as_its_strongest_entry(drawn: Drawn) -> None:
    mass = np.full(LONG, 60, np.uint8)
    mass[1003] = 255
    show(drawn, long_cache({}, mass))
    usual, strong, alone = (drawn.run(CELLS, 0, a, b) for a, b in ((100, 400), (1003, 1003), (1010, 1040)))
    assert usual == alone and len(strong) == 1 and strong != usual
    whole = np.full(LONG, 255, np.uint8)
    drawn.run("() => view.destroy()")
    show(drawn, long_cache({}, whole))
    assert drawn.run(CELLS, 0, 100, 400) == strong


@pytest.mark.nightly
def test_what_was_held_and_not_read_is_pale(drawn: Drawn) -> None:
    seen = np.zeros(LONG, np.uint8)
    seen[500:1000] = 1
    show(drawn, long_cache({0: [[1500, 1999]]}, seen=seen))
    unread, read, gone = (drawn.run(CELLS, 0, a, b) for a, b in ((0, 480), (500, 980), (1500, 1900)))
    assert len(unread) == len(read) == 1 and len({*unread, *read, *gone}) == 3
    assert "kept, not read in this step" in drawn.text(".cache-pane .rule")
    drawn.run("() => view.destroy()")
    show(drawn, long_cache({0: [[1500, 1999]]}))
    assert drawn.run(CELLS, 0, 0, 480) == read and "not read" not in drawn.text(".cache-pane .rule")


@pytest.mark.nightly
def test_a_cut_file_says_what_is_missing_and_never_waits(drawn: Drawn, tmp_path: Path) -> None:
    trace = known("tree")
    export_html(trace, tmp_path / "cut.html", first=3, last=6)
    page = drawn.page.context.new_page()
    page.goto((tmp_path / "cut.html").as_uri())
    page.locator("h1", has_text="Step 3").wait_for()
    page.locator(".scrub").evaluate("(e) => { e.value = 1; e.dispatchEvent(new Event('input')) }")
    page.locator("h1", has_text="Step 1").wait_for()
    text = page.locator(".ds").inner_text()
    assert "fetching" not in text
    assert "steps 3 to 6 are here in full" in text and f"cut to steps 3 to 6 of {len(trace.steps)}" in text


@pytest.mark.nightly
def test_a_view_that_can_ask_says_that_it_fetches(drawn: Drawn) -> None:
    trace = known("tree")
    wire = build_wire(trace)
    data = json.loads(encode([wire.head(), *(wire.brief(step) for step in trace.steps[:3])]))
    drawn.run(
        "(data) => { window.view = S.mount(place, { onGap: (a, b) => asked.push([a, b]) }); "
        "data.forEach((one) => view.push(one)); view.seek(1); }",
        data,
    )
    assert "fetching this step…" in drawn.text(".tree-pane") and drawn.run("() => asked") == [[1, 2]]


@pytest.mark.nightly
def test_the_part_that_made_what_is_selected_is_lit(drawn: Drawn) -> None:
    trace = known("tree")
    step = next(
        s for s in trace.steps if s.extra is not None and s.trials is not None and not all(s.trials.ok)
    )
    show(drawn, told(trace), step.step)
    assert drawn.page.locator(".station.lit .what").all_inner_texts() == ["Rule"]
    nodes = drawn.run("(i) => view.store.nodes(i).map((n) => [n.id, n.status])", step.step)
    for node, status in nodes:
        drawn.run("(step, node) => view.select({ step, node })", step.step, node)
        lit = [x.split("  ")[0] for x in drawn.page.locator(".station.lit .what").all_inner_texts()]
        due = {"root": [], "accept": ["Rule"], "reject": ["Rule"], "unreached": ["Draft"]}.get(
            status, ["Sampler"]
        )
        assert lit == due, (node, status)
        known_as = trace_node(step, node)
        assert (known_as is None) == (status in ("root", "bonus", "resample", "target"))
        if known_as is not None:
            assert step.draft is not None
            token = drawn.run("(i, id) => view.store.nodes(i)[id].token", step.step, node)
            assert token == step.draft.tokens[known_as]


@pytest.mark.nightly
def test_play_can_be_governed_from_outside(drawn: Drawn) -> None:
    drawn.page.clock.install()
    drawn.run("() => { window.view = S.mount(place, { pace: '8/s', onPlay: (on) => told.push(on) }); }")
    drawn.run(
        "(all) => { all.forEach((one) => view.push(one)); view.seek(0); view.play(true); }",
        told(known("chain")),
    )
    drawn.page.wait_for_function("view.at > 1")
    assert drawn.run("() => view.playing")
    drawn.run("() => view.play(false)")
    at = drawn.run("() => view.at")
    assert not drawn.run("() => view.playing") and drawn.run("() => told") == [True, False]
    drawn.page.clock.run_for(300)
    assert drawn.run("() => view.at") == at
    drawn.run("() => { view.play(true); view.seek(0); }")
    assert drawn.run("() => told") == [True, False, True, False], "a reader's seek stops it"


@pytest.mark.nightly
def test_with_forced_colours_marks_differ_by_more_than_colour(driver: Any) -> None:
    made = Drawn(driver, forced_colors="active")
    trace = known("tree")
    show(
        made,
        told(trace),
        next(s.step for s in trace.steps if s.trials is not None and not all(s.trials.ok) and s.path),
    )
    line = (
        "(kind) => getComputedStyle(document.querySelector(`.tok.${kind} i:not(.lead)`)).textDecorationStyle"
    )
    assert [made.run(line, kind) for kind in ("accepted", "target")] == ["solid", "double"]
    dash = "(kind) => getComputedStyle(document.querySelector(`.edge.${kind}`)).strokeDasharray"
    assert made.run(dash, "accept") == "none" != made.run(dash, "reject")
    ground = made.run("() => getComputedStyle(document.querySelector('.ds')).backgroundColor")
    for mark in ("path.mark.accept", "path.mark.unreached", ".edge.accept"):
        style = "(mark) => { const s = getComputedStyle(document.querySelector(mark)); return [s.fill, s.stroke]; }"
        assert ground not in made.run(style, mark)[:1] or "edge" in mark
    kept = "() => { const c = document.querySelector('canvas.map'); return new Set(new Uint32Array("
    kept += "c.getContext('2d').getImageData(34, 30, 40, 20).data.buffer)).size; }"
    assert made.run(kept) > 1, "the map is not one colour"
    made.close()


@pytest.mark.nightly
def test_with_reduced_motion_nothing_moves_by_itself(driver: Any) -> None:
    made = Drawn(driver, reduced_motion="reduce")
    show(made, told(known("tree")), 2)
    found = made.run("() => document.getAnimations().length")
    assert found == 0
    made.close()


@pytest.mark.nightly
@pytest.mark.parametrize("width", first_of(390, 900, 1440))
def test_no_row_of_the_card_touches_its_edge(driver: Any, width: int) -> None:
    made = Drawn(driver, width)
    trace = open_trace("first-rejection")  # its probabilities have many digits
    show(made, told(trace))
    gap = """() => { const box = document.querySelector(".decision").getBoundingClientRect(); let least = 1e9;
      for (const x of document.querySelectorAll(".decision :is(td, th, p, h2, h3, text, svg)")) {
        const range = document.createRange(); range.selectNodeContents(x); const own = range.getBoundingClientRect();
        if (own.width) least = Math.min(least, box.right - own.right); }
      return least; }"""
    for step in trace.steps[:12]:
        for node in {1, len(step.draft.tokens) // 2, len(step.draft.tokens) + 1} if step.draft else {1}:
            made.run("(step, node) => view.select({ step, node })", step.step, node)
            assert made.run(gap) >= 12, (step.step, node)
    made.close()


@pytest.mark.nightly
def test_of_a_long_text_the_tokens_before_the_step_are_shown_and_no_more(drawn: Drawn) -> None:
    head, *steps = [x for x in told(known("tree")) if x["kind"] in ("head", "step")]
    drawn.run(
        """(head, steps) => { window.view = S.mount(place, { views: ["text", "time"] }); view.push(head); let tokens = 0;
        for (let i = 0; i < 3000; i++) { const step = structuredClone(steps[i % steps.length]);
          step.made = step.made.map(([id, , origin], k) => [id, ` w${tokens + k}`, origin]);
          view.push(Object.assign(step, { i, sum: { ...step.sum, tokens: tokens += step.made.length } })); } }""",
        head,
        steps,
    )
    for step in (2999, 0, 1700, 1701, 1690, 40):
        drawn.run("i => view.seek(i)", step)
        shown = drawn.text(".text-pane .text").split()
        upto = drawn.run("i => view.store.steps[i].sum.tokens", step)
        words = [word for word in shown if word.startswith("w") and word[1:].isdigit()]
        assert words == [f"w{k}" for k in range(upto - len(words), upto)] and len(words) >= min(upto, 400)
        assert drawn.run("() => document.querySelectorAll('.tok[data-step]').length") <= 2100
        marked = drawn.run(
            "() => [...document.querySelectorAll('.tok.now')].map((x) => Number(x.dataset.step))"
        )
        assert set(marked) == {step}


def test_a_tree_that_is_scrolled_away_is_drawn_when_it_is_back_or_the_run_stands(drawn: Drawn) -> None:
    head, *steps = [x for x in told(known("tree")) if x["kind"] in ("head", "step")]
    drawn.run(
        """(head, ...steps) => { place.style.paddingTop = "3000px"; window.view = S.mount(place, { views: ["tree"] });
        for (const one of [head, ...steps]) view.push(one); }""",
        head,
        *steps[:3],
    )
    label = "document.querySelector('svg.tree').getAttribute('aria-label')"
    drawn.run("(step) => view.push(step)", steps[3])
    assert drawn.text(".headline h1") == "Step 3" and drawn.page.evaluate(label) != "draft tree of step 3"
    drawn.run("() => scrollTo(0, 3000)")
    drawn.page.wait_for_function(f"() => {label} === 'draft tree of step 3'")
    drawn.run("() => scrollTo(0, 0)")
    drawn.page.wait_for_function("() => scrollY === 0")
    drawn.run("(step) => (view.push(step), view.seek(1))", steps[4])
    # the step that the reader stays at is drawn completely
    drawn.page.wait_for_function(f"() => {label} === 'draft tree of step 1'")


def test_a_card_says_which_q_is_which_when_siblings_are_drawn_without_replacement(drawn: Drawn) -> None:
    trace = known("tree")
    tried = ((s.step, s.trials, k) for s in trace.steps if s.trials for k in range(1, len(s.trials.node)))
    at, k = next((step, k) for step, t, k in tried if t.r[k] != t.p[k] and t.r[k] > 0)
    t = trace.steps[at].trials
    assert t is not None and t.q[k] > 0, "the test needs a second draw at one place"
    show(drawn, told(trace), at)
    drawn.run("(step, node) => view.select({ step, node })", at, t.node[k] + 1)
    sums = dict(row[1:3] for row in drawn.cells(".decision .sums tr") if len(row) > 2)
    rows = drawn.cells(".decision .laws tr.tried")
    assert float(sums["q(x), test"]) == pytest.approx(t.q[k], abs=6e-4)
    shown = float(sums["q(x), table"])
    assert shown < t.q[k] and f"{shown:.3f}" in [row[2] for row in rows]
    assert "The test's q is that of this draw" in drawn.text(".decision")


@pytest.mark.parametrize(
    ("name", "words"),
    [("greedy", "model distribution, before the sampler"), ("chain", "sampling distribution, after")],
)
def test_a_card_names_the_distribution_whose_entropy_it_gives(drawn: Drawn, name: str, words: str) -> None:
    trace = known(name)
    one = next(x for x in trace.steps if x.trials and x.trials.ok[0] and x.tops is not None)
    assert one.trials is not None and one.tops is not None
    show(drawn, told(trace), one.step)
    drawn.run("(step, node) => view.select({ step, node })", one.step, one.trials.node[0] + 1)
    drawn.page.wait_for_function(
        f"() => document.querySelector('.decision h3')?.innerText.includes({words!r})"
    )
    entropy = float(one.tops.entropy[[*one.tops.places].index(-1)])
    shown = float(drawn.text(".decision h3").split("entropy of ")[1].split()[0])
    assert shown == pytest.approx(entropy, abs=6e-4)


@pytest.mark.nightly
def test_nothing_left_is_never_and_not_less_than_one_of_a_hundred(drawn: Drawn) -> None:
    trace = known("copied")
    data, node = told(trace), None
    for message in data:
        tried = message["verdict"]["tried"] if message["kind"] == "step" else []
        if tried and message["nodes"][tried[0]][5] is not None:
            node = tried[0]
            message["nodes"][node][7] = 0.0
            break
    assert node is not None
    show(drawn, data, message["i"])
    drawn.run("(step, node) => view.select({ step, node })", message["i"], node)
    assert "it never stays, whatever is drawn" in drawn.text(
        ".decision"
    ) and "less than one" not in drawn.text(".decision")


def test_what_a_greedy_target_puts_in_is_a_correction_and_no_new_draw(drawn: Drawn) -> None:
    trace = known("greedy")
    at = next(s.step for s in trace.steps if s.extra is not None and s.extra.origin == "correction")
    show(drawn, told(trace), at)
    assert "correction" in drawn.text(".tree-pane .legend") and "resampled" not in drawn.text(
        ".tree-pane .legend"
    )
    assert drawn.page.locator(f".text-pane [title='step {at}, correction']").count() == 1
    assert "resampled" not in drawn.page.content()
    show(drawn, told(known("tree")), 0)
    assert "resampled" in drawn.page.locator(".tree-pane .legend").last.inner_text()


def test_a_greedy_token_that_is_not_the_target_s_own_choice_is_no_most_likely_one(drawn: Drawn) -> None:
    trace = open_trace("grammar")
    for at, own in ((0, False), (1, True)):
        show(drawn, told(trace), at)
        card = drawn.page.locator(".decision").last.inner_text()
        assert ("the target's most likely token is taken" in card) is own and (
            "of what it leaves" in card
        ) is not own
        assert ("Before it “T” has 0.555" in card) is not own


@pytest.mark.nightly
def test_only_who_drafts_has_an_accepted_draft(drawn: Drawn) -> None:
    for name, seen in (("jacobi", False), ("plain greedy", False), ("greedy", True)):
        show(drawn, told(known(name)), 2)
        assert drawn.page.locator(".text-pane .key.accept").last.is_visible() is seen, name
    show(drawn, told(known("jacobi")), 2)
    said = (
        drawn.page.locator(".ds")
        .last.locator(".node")
        .evaluate_all("all => all.map((x) => x.getAttribute('aria-label'))")
    )
    assert any("final" in x for x in said) and not any("accepted" in x for x in said)


@pytest.mark.nightly
def test_of_a_long_text_in_a_knob_the_beginning_is_shown(drawn: Drawn) -> None:
    head, *steps = told(known("plain"))
    rules = "start: thing+\nthing: WORD\n" + "x" * 20_000
    method = {
        **head["method"],
        "sampler": {"name": "grammar", "definition": rules, "dialect": "lark", "number": 0.123456},
    }
    show(drawn, [{**head, "method": method}, *steps])
    said = drawn.page.locator(".stations").last.inner_text().replace("\n", " ")
    assert "text start: thing+ thing: WORD xxxxx…, dialect lark, number 0.123" in said
