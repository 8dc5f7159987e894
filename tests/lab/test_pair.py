"""Two runs under one scrubber: the step that each shows, by token and by clock, compared with the trace itself."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from browser import TIMERS
from sizes import first_of

from decodescope.engine.trace import Trace
from decodescope.lab import compare, export_html, show
from decodescope.lab.views.bundle import WEB
from decodescope.lab.views.compare import differences
from decodescope.lab.wire.messages import build_wire
from decodescope.lab.wire.wire import encode

from .drawn import Drawn, answer, told
from .runs import known, run

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("drawn")]


@pytest.fixture(scope="module")
def plain() -> Trace:
    return run("plain greedy")


@pytest.fixture(scope="module")
def guessed() -> Trace:
    return run("greedy")


def open_pair(drawn: Drawn, a: Trace, b: Trace, **options: Any) -> None:
    drawn.run("(options) => { window.both = S.pair(place, options); }", options)
    for which, trace in enumerate((a, b)):
        drawn.run("(which, told) => told.forEach((one) => both.views[which].push(one))", which, told(trace))


def steps(drawn: Drawn) -> list[int]:
    """The steps that the two panes show."""
    return [int(x.removeprefix("Step ")) for x in drawn.page.locator(".headline h1").all_inner_texts() if x]


def writer(trace: Trace, token: int) -> int:
    """The step that wrote a token, counted from 1."""
    return next(k for k, n in enumerate(accumulate(len(s.emitted) for s in trace.steps)) if n >= token)


def working(trace: Trace, seconds: float) -> int:
    """The step in progress at a time after the first step began; after the end, the last step."""
    ends = accumulate(s.wall_us / 1e6 for s in trace.steps)
    return next((k for k, end in enumerate(ends) if end > seconds), len(trace.steps) - 1)


@pytest.mark.nightly
def test_by_token_each_run_shows_the_step_that_wrote_it(drawn: Drawn, plain: Trace, guessed: Trace) -> None:
    open_pair(drawn, plain, guessed)
    for token in (1, 2, 17, 40, 60):
        drawn.run("(token) => both.seek({ token })", token)
        assert steps(drawn) == [writer(plain, token), writer(guessed, token)]
        assert drawn.text(".where") == f"token {token} of 60"
    assert writer(guessed, 60) < 56, "the test needs a run that takes several tokens a step"


@pytest.mark.nightly
def test_by_clock_each_run_shows_the_step_in_progress(drawn: Drawn, plain: Trace, guessed: Trace) -> None:
    open_pair(drawn, plain, guessed, align="clock")
    long = max(sum(s.wall_us for s in trace.steps) / 1e6 for trace in (plain, guessed))
    for share in (0.0, 0.1, 0.33, 0.7, 0.99):
        drawn.run("(seconds) => both.seek({ seconds })", share * long)
        assert steps(drawn) == [working(trace, share * long) for trace in (plain, guessed)]


SENT = """(sent, spare) => { window.asked = [];
  window.both = S.pair(place, { spare, onGap: (which, from) => asked.push([which, from]) });
  sent.forEach((all, which) => all.forEach((one) => both.views[which].push(one)));
}"""
MOVED = """async (token) => { both.seek({ token: 1 }); asked.length = 0; both.seek({ token });
  await new Promise((done) => requestAnimationFrame(done));
  return [[...document.querySelectorAll('.headline h1')].map((x) => x.textContent),
    [...document.querySelectorAll('.tree')].map((x) => x.ariaLabel), asked]; }"""


def test_a_move_takes_one_frame_and_asks_for_nothing_that_no_pane_shows(drawn: Drawn) -> None:
    """A step that arrived without distributions and maps still has its whole tree."""
    traces = [known("tree"), known("heavy")]
    wires = [build_wire(trace) for trace in traces]
    sent = [[wire.head(), *map(wire.step, trace.steps)] for wire, trace in zip(wires, traces, strict=True)]
    ends = accumulate(len(step.emitted) for step in traces[0].steps)
    token = next(end for end, step in zip(ends, sent[0][1:], strict=False) if end > 9 and "few" in step)
    at = [writer(trace, token) for trace in traces]
    assert [sent[which][1 + i]["few"] for which, i in enumerate(at)] == [["laws"], ["maps"]], (
        "the test needs both"
    )
    for spare, asked in (["laws", "maps"], []), (["laws"], [[1, at[1]]]), ([], [[0, at[0]], [1, at[1]]]):
        drawn.run(SENT, json.loads(encode(sent)), spare)
        assert drawn.page.evaluate(MOVED, token) == [
            [f"Step {i}" for i in at],
            [f"draft tree of step {i}" for i in at],
            asked,
        ]
        drawn.run("() => both.destroy()")


AROUND = """async (head, brief, whole, end) => { window.asked = [];
  const { prefetch } = await import("/prefetch.js");
  const at = (one, i) => ({ ...one, i, sum: { ...one.sum, tokens: one.made.length * (i + 1) } });
  const bring = (from, to) => { for (let i = from; i < to; i++) view.push(at(whole, i)); };
  const around = prefetch({ panes: () => [{ view }],
    fetch: (pane, from, to) => (asked.push([from, to]), setTimeout(bring, 0, from, to)) });
  window.view = S.mount(place, { views: ['tree', 'text'], onMove: around });
  window.over = () => view.push(end);
  view.push(head);
  for (let i = 0; i < 300; i++) view.push(at(brief, i));
}"""


@pytest.mark.nightly
def test_steps_around_the_one_that_stands_are_there_before_somebody_goes_to_them(drawn: Drawn) -> None:
    drawn.page.route(
        "http://scope.test/prefetch.js",
        answer("text/javascript", (WEB / "runs/prefetch.js").read_text(encoding="utf-8")),
    )
    trace = known("tree")
    wire, step = build_wire(trace), trace.steps[2]
    sent = [wire.head(), wire.brief(step), wire.step(step, whole=True), told(trace)[-1]]
    drawn.page.evaluate(TIMERS)
    drawn.run(AROUND, *json.loads(encode(sent)))
    drawn.run("() => passes(1000)")
    assert drawn.run("() => asked") == [], "of a run that goes on, the newest are looked at"
    drawn.run("() => { over(); view.seek(150); }")
    due = [[128, 192], [192, 256], [64, 128], [256, 300], [0, 64]]
    for k in range(1, 7):
        assert (
            drawn.run("() => { const before = asked.length; passes(1000); return asked.length - before; }")
            <= 1
        )
        asked = drawn.run(
            "() => asked"
        )  # time passes on a busy machine too, so there may be more requests by now
        assert asked == due[: max(k, len(asked))], (
            "one after the other, the nearest first, until all is there"
        )
    assert drawn.run("() => view.store.whole(0)")


@pytest.mark.nightly
def test_a_step_of_one_run_takes_the_other_along(drawn: Drawn, plain: Trace, guessed: Trace) -> None:
    open_pair(drawn, plain, guessed)
    ends = list(accumulate(len(s.emitted) for s in guessed.steps))
    drawn.run("() => both.views[1].seek(5)")
    assert steps(drawn) == [writer(plain, ends[5]), 5]
    drawn.page.locator(".host").first.locator(".tok[data-step='2']").first.click()
    drawn.settled()
    assert steps(drawn) == [2, writer(guessed, 3)]


def test_keys_move_both_and_the_switch_keeps_the_place_of_a(
    drawn: Drawn, plain: Trace, guessed: Trace
) -> None:
    open_pair(drawn, plain, guessed)
    drawn.run("() => { both.seek({ token: 7 }); both.root.focus(); }")
    drawn.page.keyboard.press("ArrowRight")
    drawn.settled()
    assert steps(drawn) == [7, writer(guessed, 8)]
    drawn.page.keyboard.press("a")
    drawn.settled()
    start = sum(s.wall_us for s in plain.steps[:7]) / 1e6
    assert drawn.page.locator(".switch [aria-pressed=true]").inner_text() == "wall clock"
    assert steps(drawn)[0] == 7 and abs(steps(drawn)[1] - working(guessed, start + 1e-9)) <= 1
    drawn.page.keyboard.press("End")
    drawn.settled()
    assert steps(drawn) == [len(plain.steps) - 1, len(guessed.steps) - 1]
    drawn.page.keyboard.press("Home")
    drawn.settled()
    assert steps(drawn) == [0, 0]
    drawn.page.locator("#other").press("a")
    assert drawn.page.locator(".switch [aria-pressed=true]").inner_text() == "wall clock", (
        "keys belong to the picture alone"
    )


@pytest.mark.nightly
def test_the_first_difference_is_named_and_marked_in_both_texts(drawn: Drawn) -> None:
    a, b = run("chain", seed=3), run("chain", seed=4)
    x, y = (t.tokens[len(t.header.prompt) :] for t in (a, b))
    at = next(k for k, pair in enumerate(zip(x, y, strict=False)) if pair[0] != pair[1])
    assert at > 0, "the test needs a common beginning"
    open_pair(drawn, a, b)
    assert f"A and B are the same up to token {at};" in drawn.text(".parts")
    drawn.page.locator(".parts button").click()
    drawn.settled()
    assert drawn.text(".where") == f"token {at + 1} of 60"
    assert drawn.page.locator(".parted").count() == 2
    for host, trace in zip(drawn.page.locator(".host").all(), (a, b), strict=True):
        assert host.locator(".parted").get_attribute("data-step") == str(writer(trace, at + 1))
    assert drawn.text(".differs summary").startswith("1 setting differs: seed")


def test_the_same_text_is_said_to_be_the_same(drawn: Drawn, plain: Trace, guessed: Trace) -> None:
    drawn.run("() => { window.both = S.pair(place, {}); }")
    push, runs = (
        "(which, told) => told.forEach((one) => both.views[which].push(one))",
        [told(plain), told(guessed)],
    )
    for which, sent in enumerate(runs):
        drawn.run(push, which, sent[:-1])
    assert drawn.text(".parts") == "A and B are the same so far: 60 tokens."
    for which, sent in enumerate(runs):
        drawn.run(push, which, sent[-1:])  # the end may arrive in a frame of its own
    assert drawn.text(".parts") == "A and B wrote the same 60 tokens."
    assert drawn.page.locator(".parted").count() == 0


def test_each_run_says_whose_text_it_is_and_where_it_parts_from_plain_decoding(
    drawn: Drawn, plain: Trace
) -> None:
    heavy = run("heavy")
    at = next(
        k for k, (x, y) in enumerate(zip(plain.emitted_ids, heavy.emitted_ids, strict=False), 1) if x != y
    )
    open_pair(drawn, heavy, plain)
    marks = drawn.page.locator(".run .of-text").all_inner_texts()
    why = "lossy, because: entries leave the cache (h2o)"
    assert marks == [f"{why}, parted from plain decoding (B) at token {at}", "lossless"]
    drawn.run("() => both.against(1)")
    assert drawn.page.locator(".run .of-text").all_inner_texts() == marks
    assert f"are the same up to token {at - 1}" in drawn.text(".parts") or at == 1


@pytest.mark.nightly
def test_two_streams_that_arrive_are_followed_and_then_held(
    drawn: Drawn, plain: Trace, guessed: Trace
) -> None:
    drawn.run("() => { window.both = S.pair(place, {}); }")
    one, two = told(plain), told(guessed)
    push = "(which, told) => told.forEach((one) => both.views[which].push(one))"
    drawn.run(push, 0, one[:9])
    assert steps(drawn) == [7] and drawn.text(".run .quiet").endswith(", not ended yet")
    drawn.run(push, 1, two[:4])
    assert steps(drawn) == [7, 2], "each shows its newest step"
    drawn.run("() => both.seek({ token: 30 })")
    assert steps(drawn) == [7, 2], "where a token has not come the newest step stands"
    drawn.run(push, 1, two[4:])
    assert steps(drawn) == [7, writer(guessed, 30)]
    drawn.run(push, 0, one[9:])
    assert steps(drawn) == [29, writer(guessed, 30)]


def test_a_file_of_two_runs_joins_them_from_disk(
    drawn: Drawn, plain: Trace, guessed: Trace, tmp_path: Path
) -> None:
    export_html(plain, tmp_path / "two.html", beside=guessed)
    page = drawn.page.context.new_page()
    page.on("pageerror", lambda error: drawn.troubles.append(str(error)))
    page.goto((tmp_path / "two.html").as_uri())
    page.locator(".headline h1", has_text="Step 0").nth(1).wait_for()
    page.locator(".along").evaluate("(e) => { e.value = 20; e.dispatchEvent(new Event('input')) }")
    page.locator(".where", has_text="token 20 of 60").wait_for()
    page.locator(".headline h1", has_text=f"Step {writer(plain, 20)}").wait_for()
    page.locator(".headline h1", has_text=f"Step {writer(guessed, 20)}").wait_for()
    assert page.title().endswith("greedy, next to draft model + greedy")
    assert page.locator(".card-of-run th", has_text="content hash").count() == 2, "both runs are described"
    with pytest.raises(ValueError, match="all their steps"):
        export_html(plain, beside=guessed, first=2)


MODEL = """(given) => {
  const heard = {}, values = { ...given };
  window.sent = [];
  window.model = { get: (name) => values[name], set: (name, value) => (values[name] = value), save_changes() {}, off() {},
    send: (content) => sent.push(content), on: (name, act) => (heard[name] = act), fire: (name, value) => heard[name](value) };
  window.gone = S.default.render({ model, el: place });
}"""


@pytest.mark.nightly
def test_a_notebook_s_comparison_moves_by_its_traits(drawn: Drawn, plain: Trace, guessed: Trace) -> None:
    made = compare(plain, guessed)
    state = {name: getattr(made, name) for name in ("runs", "views", "token", "align")}
    drawn.run(MODEL, json.loads(encode(state)))
    assert steps(drawn) == [0, 0]
    drawn.run("() => { model.set('token', 31); model.fire('change:token'); }")
    assert steps(drawn) == [30, writer(guessed, 31)] == drawn.run("() => model.get('steps')")
    drawn.run("() => { model.set('align', 'clock'); model.fire('change:align'); }")
    assert (
        steps(drawn)[0] == 30
        and drawn.page.locator(".switch [aria-pressed=true]").inner_text() == "wall clock"
    )
    drawn.run("() => gone()")
    assert drawn.page.locator(".ds").count() == 0


def test_a_notebook_s_one_run_moves_by_its_traits(drawn: Drawn, guessed: Trace) -> None:
    made = show(guessed, 3)
    state = {name: getattr(made, name) for name in ("messages", "views", "step", "selection")}
    drawn.run(MODEL, json.loads(encode(state)))
    assert steps(drawn) == [3]
    drawn.run("() => { model.set('step', 5); model.fire('change:step'); }")
    assert steps(drawn) == [5]
    drawn.page.locator(".tok[data-step='2']").first.click()
    assert drawn.run("() => model.get('step')") == 2
    drawn.run("() => gone()")


@pytest.mark.nightly
def test_play_goes_through_both_and_a_reader_stops_it(drawn: Drawn, plain: Trace, guessed: Trace) -> None:
    drawn.run("() => { window.both = S.pair(place, { pace: '8/s', onPlay: (on) => told.push(on) }); }")
    for which, trace in enumerate((plain, guessed)):
        drawn.run("(which, told) => told.forEach((one) => both.views[which].push(one))", which, told(trace))
    drawn.run("() => { both.seek({ token: 1 }); both.play(true); }")
    drawn.page.wait_for_function("both.at.token > 3")
    assert drawn.run("() => both.playing")
    drawn.run("() => both.seek({ token: 1 })")
    assert not drawn.run("() => both.playing") and drawn.run("() => told") == [True, False]


@pytest.mark.nightly
def test_lanes_have_a_table_with_the_same_times(drawn: Drawn, plain: Trace, guessed: Trace) -> None:
    open_pair(drawn, plain, guessed)
    drawn.page.locator(".clocks button", has_text="Show as table").click()
    drawn.settled()
    rows = drawn.cells(".clocks .twin tbody tr")
    assert len(rows) == len(plain.steps) + len(guessed.steps)
    step = guessed.steps[3]
    start = sum(s.wall_us for s in guessed.steps[:3]) / 1000
    run, number, begun, _, _, whole, _ = rows[len(plain.steps) + 3]
    assert (run, number) == ("B", "3")
    assert abs(float(begun) - start) < 0.01 and abs(float(whole) - step.wall_us / 1000) < 0.01


@pytest.mark.nightly
@pytest.mark.parametrize("width", first_of(390, 900, 1440))
def test_nothing_sticks_out_at_any_width(driver: Any, plain: Trace, guessed: Trace, width: int) -> None:
    made = Drawn(driver, width)
    open_pair(made, plain, guessed)
    assert made.run("() => document.documentElement.scrollWidth") <= width
    sides = made.page.locator(".host").all()
    tops = [side.bounding_box()["y"] for side in sides]
    assert (tops[0] == tops[1]) == (width >= 900), "beside each other from 900 px on"
    made.close()


LONG = """(head, count) => {
  window.both = S.pair(place, { count: 4 });
  for (let k = 0; k < 4; k++) {
    both.views[k].push(head);
    for (let i = 0; i < count; i++) {
      const made = Array.from({ length: k + 1 }, () => [1, " a", "target"]), tokens = (k + 1) * (i + 1);
      const dt = { draft: 0, verify: 0.01, commit: 0, cache: 0, all: 0.01 };
      const sum = { tokens, passes: i + 1, tried: 0, ok: 0, drafted: 0, accepted: 0, decode: 0.01 * (i + 1) };
      both.views[k].push({ kind: "step", brief: true, i, n: tokens, t0: i, dt, made, drafted: 0, refused: 0, kv: [], sum });
    }
    both.views[k].push({ kind: "end", reason: "max_new_tokens", message: "", steps: count });
  }
}"""


@pytest.mark.nightly
def test_four_runs_of_ten_thousand_steps_stand_together(drawn: Drawn, plain: Trace) -> None:
    count = 10_000
    drawn.run(LONG, told(plain)[0], count)
    for token in (1, 4321, 10_000):
        drawn.run("(token) => both.seek({ token })", token)
        assert steps(drawn) == [-(-token // each) - 1 for each in (1, 2, 3, 4)]
    assert (
        drawn.page.locator(".parts p")
        .all_inner_texts()[0]
        .startswith("A and B are the same up to token 10,000; then A has the end")
    )
    drawn.run("() => both.align('clock', null)")
    drawn.run("() => both.seek({ seconds: 50.005 })")
    assert steps(drawn) == [5000] * 4
    drawn.page.locator(".clocks button", has_text="Show as table").click()
    drawn.settled()
    rows = drawn.cells(".clocks .twin tbody tr")
    assert len(rows) == 1600 and ["D", "5000"] in [row[:2] for row in rows], "a long table shows what is near"
    assert (
        drawn.page.locator(".lanes").get_attribute("aria-label").startswith("4 lanes on one axis of 100.0 s")
    )


@pytest.mark.nightly
def test_any_run_can_be_what_the_others_are_measured_against(
    drawn: Drawn, plain: Trace, guessed: Trace
) -> None:
    other = run("chain", seed=3)
    drawn.run("() => { window.both = S.pair(place, { count: 3, base: 1, why: (k) => `told of ${k}` }); }")
    for which, trace in enumerate((plain, guessed, other)):
        drawn.run("(which, told) => told.forEach((one) => both.views[which].push(one))", which, told(trace))
    much = drawn.page.locator(".run .much b")
    assert much.nth(1).inner_text() == "baseline" and much.nth(0).inner_text().startswith("×")
    at = next(k for k, (x, y) in enumerate(zip(plain.emitted_ids, other.emitted_ids, strict=False)) if x != y)
    texts = drawn.page.locator(".parts p").all_inner_texts()
    assert texts[0] == "B and A wrote the same 60 tokens." and "told of 2" in texts[1]
    assert drawn.page.locator(".parted").count() == 2 and (f"up to token {at};" in texts[1]) == (at > 0)
    drawn.run("() => both.against(2)")
    assert much.nth(2).inner_text() == "baseline" and drawn.page.locator(".parted").count() == 3
    head = drawn.page.locator(".differs thead").text_content().strip()
    assert head == "ABC"


@pytest.mark.nightly
def test_a_setting_that_one_run_has_alone_is_listed_apart(drawn: Drawn, plain: Trace, guessed: Trace) -> None:
    open_pair(drawn, plain, guessed)
    known, alone = plain.header.method["drafter"], guessed.header.method["drafter"]
    assert known["name"] == "none" and "max_draft_tokens" in alone
    summary, apart = drawn.text(".differs summary"), drawn.text(".differs p")
    assert "drafter" in summary and "max_draft_tokens" not in summary and "draft model" not in summary
    assert (
        apart.startswith("Only B: draft model")
        and f"draft model: max_draft_tokens {alone['max_draft_tokens']}" in apart
    )
    assert "–" not in drawn.text(".differs table"), "both have what is said to differ"


@pytest.mark.nightly
def test_a_fork_is_no_run_of_the_same_settings(drawn: Drawn, plain: Trace) -> None:
    forked = copy(plain)
    forked.header = replace(plain.header, run="f" * 16, fork={"of": "a" * 16, "step": 3, "name": "what if"})
    open_pair(drawn, plain, forked)
    assert "1 setting differs: fork" in drawn.text(".differs summary")
    assert "of run aaaaaaaa from step 3: what if" in drawn.text(".differs table")
    assert ("fork", "none", "of run aaaaaaaa from step 3: what if") in [
        (x.what, x.a, x.b) for x in differences(plain, forked)
    ]


# Steps of 0 to 3 tokens reach two stores in any order, with holes; each time the answer is compared with one that reads all.
PARTINGS = """async () => {
  const { divergenceOf } = await import("/scope/pair/alignment.js");
  let seed = 7;
  const chance = (n) => (seed = (seed * 48271) % 2147483647) % n;
  const store = () => ({ steps: [], count: 0, end: null });
  const put = (to, i, made) => ((to.steps[i] = { made }), (to.count = Math.max(to.count, i + 1)));
  const read = (from) => {
    let k = 0;
    while (k < from.count && from.steps[k]) k++;
    return [from.steps.slice(0, k).flatMap((step) => step.made), !!from.end && k >= from.count];
  };
  const whole = (a, b) => {
    const [[x, xOver], [y, yOver]] = [read(a), read(b)], both = Math.min(x.length, y.length);
    for (let at = 0; at < both; at++) if (x[at][0] !== y[at][0]) return { at, a: x[at][1], b: y[at][1] };
    if (x.length === y.length || !(x.length < y.length ? xOver : yOver)) return { at: both, same: true };
    return { at: both, a: x[both]?.[1] ?? null, b: y[both]?.[1] ?? null };
  };
  const wrong = [], seen = { same: 0, split: 0, ended: 0 };
  for (let round = 0; round < 300; round++) {
    const [a, b] = [store(), store()], told = divergenceOf(a, b), text = [...Array(12)].map(() => chance(9));
    for (const one of [a, b]) {
      one.due = [];
      for (let n = 0; n < 12 - chance(3); ) {
        const made = text.slice(n, n + chance(4)).map((id) => [chance(40) ? id : 99, `t${id}`]);
        one.due.push([one.due.length, made]);
        n += made.length;
      }
    }
    while (a.due.length || b.due.length || !a.end || !b.end) {
      const one = chance(2) ? a : b;
      if (one.due.length) put(one, ...one.due.splice(chance(Math.min(3, one.due.length)), 1)[0]);
      else one.end = { reason: "stop_token" };
      const [mine, due] = [told(), whole(a, b)].map((x) => JSON.stringify(x));
      if (mine !== due) wrong.push([mine, due]);
    }
    const last = told();
    seen[last.same ? "same" : last.a === null || last.b === null ? "ended" : "split"]++;
  }
  return [wrong.slice(0, 3), seen];
}"""


def test_where_texts_part_is_found_as_they_come(drawn: Drawn) -> None:
    for name in ("pair/alignment", "shared/numbers", "shared/tokens"):
        body = (WEB / "scope" / f"{name}.js").read_text(encoding="utf-8")
        drawn.page.route(f"http://scope.test/scope/{name}.js", answer("text/javascript", body))
    wrong, seen = drawn.run(PARTINGS)
    assert not wrong and min(seen.values()) > 5, seen
