"""The Compare page: methods started on one prompt, one slider over all panes, differences, repeats, mixtures, keys, widths."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from browser import Lab, served
from toylab import HOSTILE, finished, speculative, toy_play

from decodescope.app.http.guard import Guard
from decodescope.app.runs.catalogue.examples import shipped_examples
from decodescope.app.runs.compare.measurements import RecordFolder
from decodescope.app.runs.run_service import RunChoice
from decodescope.app.server import build_app
from decodescope.engine.bench.clock.contest import common_prefix_length
from decodescope.engine.trace import Trace, open_trace

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("tabs")]
P = "#ds-page-compare"
PLAIN = {"drafter": "none", "sampler": ["greedy"]}
CHAIN = {"drafter": "draft_model", "sampler": ["greedy"]}


def greedy(lab: Lab, names: dict[str, Any]) -> Any:
    """A greedy run that has ended."""
    channel = lab.play.start(RunChoice("hello there", names, max_new=24))
    assert lab.play._jobs[channel.run].wait(300)
    return channel


def opened(lab: Lab, *runs: str, more: str = "") -> Any:
    """The page, comparing these runs, with every pane drawn."""
    page = lab.open(f"/#compare&runs={','.join(runs)}{more}", ready=False)
    drawn(page, len(runs))
    return page


def drawn(page: Any, count: int) -> None:
    page.wait_for_function(
        f"(x => x.length == {count} && [...x].every(h => h.textContent.startsWith('Step')))"
        f"(document.querySelectorAll('{P} .host h1'))"
    )


def shows(page: Any, *steps: int) -> None:
    """Wait until the panes show these steps."""
    page.wait_for_function(
        "due => [...document.querySelectorAll('#ds-page-compare .host h1')].map(h => h.textContent).join() == due",
        arg=",".join(f"Step {i}" for i in steps),
    )


def slide(page: Any, value: float) -> None:
    page.evaluate(
        f"v => {{ const s = document.querySelector('{P} .along'); s.value = v; s.dispatchEvent(new Event('input')); }}",
        value,
    )


def writer(trace: Trace, token: int) -> int:
    """The step that wrote a token, counted from 1."""
    return next(k for k, n in enumerate(accumulate(len(s.emitted) for s in trace.steps)) if n >= token)


def working(trace: Trace, seconds: float) -> int:
    """The step in progress at a time after the first step began; after the end, the last step."""
    ends = accumulate(s.wall_us / 1e6 for s in trace.steps)
    return next((k for k, end in enumerate(ends) if end > seconds), len(trace.steps) - 1)


def test_three_methods_run_on_one_prompt_and_one_slider_moves_them(lab: Lab) -> None:  # noqa: PLR0915
    page = lab.open("/#compare", ready=False)
    page.click(f"{P} >> text=Run methods on one prompt")
    page.wait_for_function(f"document.querySelectorAll('{P} .methods select')[2]?.value == 'lookup'")
    page.fill(f"{P} .lineup textarea", "hello there")
    page.fill(f"{P} .numbers label:has-text('New tokens') input", "24")
    page.click(f"{P} .lineup button.go")
    drawn(page, 3)
    page.wait_for_function(
        f"document.querySelector('{P} .checks')?.textContent.split('as it must be').length == 4"
    )
    runs = page.evaluate("/runs=([^&]*)/.exec(location.hash)[1]").split(",")
    traces = [open_trace(lab.play.find(run).path) for run in runs]
    assert [x.header.method["drafter"]["name"] for x in traces] == ["none", "draft_model", "prompt_lookup"]
    page.wait_for_function(f"document.querySelector('{P} .parts').textContent.split(' wrote ').length == 3")
    sheets = page.evaluate("[...document.querySelectorAll('link[rel=stylesheet]')].map((x) => x.href)")
    assert len(sheets) == len(set(sheets)), "each rule is there once"
    assert page.locator(f"{P} .parts p").all_inner_texts() == [
        "A and B wrote the same 24 tokens.",
        "A and C wrote the same 24 tokens.",
    ]
    for token in (1, 9, 17):
        slide(page, token)
        shows(page, *(writer(x, token) for x in traces))
        assert page.locator(f"{P} .where").inner_text() == f"token {token} of 24"
    page.click(f"{P} .switch button:has-text('wall clock')")
    long = max(sum(s.wall_us for s in x.steps) / 1e6 for x in traces)
    slide(page, 0.0009)
    assert page.evaluate(f"document.querySelector('{P} .along').value") == "0.001", (
        "it goes by whole milliseconds"
    )
    slide(page, 0)
    shows(page, 0, 0, 0)
    begins = sorted(t for x in traces for t in accumulate(s.wall_us / 1e6 for s in x.steps[:-1]))
    page.focus(f"{P} .along")
    for key, k in (("ArrowRight", 0), ("ArrowUp", 1), ("ArrowLeft", 0), ("Shift+ArrowRight", 10)):
        due = begins[k]
        page.keyboard.press(key)
        shows(page, *(working(x, due + 1e-6) for x in traces))
    slide(page, 0.4 * long)
    at = page.evaluate(f"Number(document.querySelector('{P} .along').value)")
    shows(page, *(working(x, at) for x in traces))
    summary = page.locator(f"{P} .differs summary").inner_text()
    assert "drafter" in summary and "prompt lookup" not in summary and "seed" not in summary
    assert "Only C: prompt lookup: max draft tokens" in page.locator(f"{P} .differs").inner_text(), (
        "what one has alone stands apart"
    )
    ground = page.locator(f"{P} .differs").evaluate("x => getComputedStyle(x).backgroundColor")
    assert ground == "rgb(253, 243, 207)", "the strip of differences is the yellow one"
    rows = page.locator(f"{P} .standings tbody tr").all_inner_texts()
    assert (
        len(rows) == 3
        and "no draft" in rows[0]
        and "95 %" in rows[1]
        and "n = " in rows[1]
        and "the same 24 tokens" in rows[2]
    )
    there = "Number(/align=clock&at=([0-9.]+)/.exec(location.hash)?.[1])"
    # the address is written a moment after the slider has moved
    page.wait_for_function(f"Math.abs({there} - {at}) < 0.002")
    page.reload()
    drawn(page, 3)
    there = "Number(document.querySelector('#ds-page-compare .along')?.value)"
    page.wait_for_function(
        f"Math.abs({there} - {at}) < 0.002"
    )  # the address has a precision of a thousandth of a second
    at = page.evaluate(there)
    shows(page, *(working(x, at) for x in traces))


@pytest.mark.nightly
def test_repeats_put_an_interval_behind_every_ratio(lab: Lab) -> None:
    one, two = greedy(lab, PLAIN).run, greedy(lab, CHAIN).run
    page = opened(lab, one, two)
    much = page.locator(f"{P} .run .much")
    page.wait_for_function(
        f"document.querySelectorAll('{P} .run .much')[1]?.textContent.includes('one run each')"
    )
    assert much.nth(0).inner_text() == "baseline"
    page.fill(f"{P} .repeat input", "3")
    page.click(f"{P} .repeat button:has-text('Repeat')")
    page.wait_for_function(
        f"/× [0-9.]+(, )?[0-9.]+ to [0-9.]+ .95 %, n = 3.$/.test(document.querySelectorAll('{P} .run .much')[1]?.textContent)"
    )
    page.wait_for_function(f"document.querySelector('{P} .note')?.textContent.startsWith('3 rounds.')")
    assert "95 %" in page.locator(f"{P} .standings tbody tr").nth(1).locator("td").nth(5).inner_text()
    assert "&repeat=" in page.locator(f"{P} .save a").first.get_attribute("href")
    page.select_option(f"{P} .bar select >> nth=0", "1")
    page.wait_for_function(f"document.querySelectorAll('{P} .run .much')[0]?.textContent.includes('n = 3')")
    assert much.nth(1).inner_text() == "baseline" and "base=B" in page.evaluate("location.hash")
    page.fill(f"{P} .repeat input", "99")
    page.click(f"{P} .repeat button:has-text('Repeat')")
    page.wait_for_selector(f"{P} .told.ds-refusal >> text=must lie in [3, 40]")


@pytest.mark.nightly
def test_a_ratio_whose_interval_holds_one_is_no_headline_and_repeats_come_with_the_link(lab: Lab) -> None:
    one, two, three = (greedy(lab, names).run for names in (PLAIN, CHAIN, PLAIN))
    ratios = {
        two: {"median": 1.92, "interval": [0.19, 3.2], "n": 5},
        three: {"median": 1.5, "interval": [1.2, 1.9], "n": 5},
    }
    runs = [{"run": run, "same_text": True} for run in (one, two, three)]
    record = {
        "id": "ab" * 8,
        "rounds": 5,
        "times": 5,
        "sure": 0.95,
        "over": True,
        "status": "done",
        "message": "",
    }
    RecordFolder(lab.play.folder / "repeats").write(
        "ab" * 8, {**record, "runs": runs, "ratios": {one: ratios}}
    )
    page = opened(lab, one, two, three, more=f"&repeat={'ab' * 8}")
    page.wait_for_function(f"document.querySelectorAll('{P} .run .much')[2]?.textContent.includes('n = 5')")
    heads = page.locator(f"{P} .run .much")
    assert heads.nth(1).locator(".ratio").inner_text() == "", (
        "no figure in bold over an interval that holds 1"
    )
    assert (
        heads.nth(1).inner_text().strip() == "not distinguishable from 1: × 1.92, 0.19 to 3.20 (95 %, n = 5)"
    )
    assert heads.nth(2).inner_text().split() == [
        "×",
        "1.50",
        "1.20",
        "to",
        "1.90",
        "(95",
        "%,",
        "n",
        "=",
        "5)",
    ]
    cells = [page.locator(f"{P} .standings tbody tr").nth(k).locator("td").nth(5) for k in (1, 2)]
    assert cells[0].locator("b").count() == 0 and "not distinguishable from 1" in cells[0].inner_text()
    assert cells[1].locator("b").inner_text() == "× 1.50"
    assert f"repeat={'ab' * 8}" in page.evaluate("location.hash")
    page.click(f"{P} [aria-label='remove run B']")
    page.wait_for_function("!location.hash.includes('repeat=')")  # the repeats belong to other runs


@pytest.mark.nightly
def test_methods_on_a_set_of_prompts_are_sorted_filtered_opened_and_kept_with_the_link(lab: Lab) -> None:
    page = lab.open("/#compare", ready=False)
    title = "Run methods on a set of prompts"
    page.click(f"{P} .ways >> text={title}")
    form = page.locator(f"{P} form[aria-label='{title}']")
    page.wait_for_function(
        "x => x.querySelectorAll('.methods select')[2]?.value == 'lookup'", arg=form.element_handle()
    )
    lines = [
        f'{{"prompt": "{x}", "category": "{k}"}}'
        for x, k in (("hello", "a"), ("some words <b>", "b"), ("abc abc", "b"))
    ]
    form.locator("textarea").fill("\n".join(lines))
    form.locator("textarea").press("Tab")
    form.locator(".set >> text=3 prompts").wait_for()
    form.locator("label:has-text('New tokens') input").fill("12")
    form.locator("button.go").click()
    page.wait_for_selector(f"{P} .over-prompts [role=status] >> text=9 runs of 9.")
    name = page.evaluate("/prompts=([0-9a-f]{16})/.exec(location.hash)[1]")
    record = page.evaluate(f"fetch('/ds/compare/set/{name}').then(x => x.json())")
    kinds, rows = (page.locator(f"{P} .over-prompts table").nth(k).locator("tbody tr") for k in (0, 1))
    assert [x.locator("th").inner_text() for x in kinds.all()] == ["all", "a", "b"]
    ratio = record["kinds"][0]["ratio"][1]
    cell = kinds.first.locator("td").nth(1)
    assert f"× {ratio['median']:.2f}" in cell.inner_text() and "n = 3" in cell.inner_text()
    assert cell.locator("b").count() == 0 and "too few prompts to tell" in cell.inner_text(), (
        "an interval over 3 says little"
    )
    texts = lambda: [x.locator("td").first.inner_text() for x in rows.all()]  # noqa: E731
    assert texts() == ["hello", "some words <b>", "abc abc"]
    for order in (1, -1):
        page.click(f"{P} [data-column='B against A']")
        due = sorted(record["lines"], key=lambda x: order * x["ratios"][1])
        assert texts() == [x["begins"] for x in due]
    page.get_by_label("filter the prompts").fill("b words")
    assert texts() == ["some words <b>"]
    rows.first.locator("button").click()
    drawn(page, 3)
    assert (
        page.evaluate("location.hash").split("runs=")[1].split("&")[0].split(",")
        == record["lines"][1]["runs"]
    )
    page.goto("about:blank")
    page.goto(f"{lab.address}/#compare&prompts={name}")
    page.wait_for_selector(f"{P} .over-prompts [role=status] >> text=9 runs of 9.")
    assert page.locator(f"{P} .over-prompts .save a").count() == 2


@pytest.mark.nightly
def test_where_texts_part_is_named_with_the_gap_of_the_law_there(lab: Lab) -> None:
    channels = [finished(lab.play, seed=seed) for seed in (3, 4)]
    at = common_prefix_length(*(open_trace(x.path).emitted_ids for x in channels))
    page = opened(lab, *(x.run for x in channels))
    page.wait_for_selector(f"{P} .parts p >> text=nats apart")
    told = page.locator(f"{P} .parts p").inner_text()
    assert (
        (f"A and B are the same up to token {at};" in told)
        if at
        else told.startswith("A and B part at the first token")
    )
    page.click(f"{P} .parts button")
    page.wait_for_function(
        f"document.querySelector('{P} .where')?.textContent.startsWith('token {at + 1} of')"
    )
    assert page.locator(f"{P} .parted").count() == 2
    assert page.locator(f"{P} .differs summary").inner_text() == "1 setting differs: seed"
    checks = page.locator(f"{P} .checks li").inner_text()
    assert "one distribution, not one text" in checks and "Other seeds: no uniform is shared" in checks


@pytest.mark.nightly
def test_a_live_run_an_example_and_a_trace_stand_beside_each_other(paused: Lab) -> None:
    lab = paused
    lab.play.pausing = False
    recorded = finished(lab.play, max_new=12)
    lab.play.pausing = True
    live = lab.play.start(speculative("another text", max_new=200))
    example = shipped_examples()[0]
    page = lab.open(f"/#compare&runs={live.run},{recorded.run}", ready=False)
    page.wait_for_selector(f"{P} .host:nth-child(1) .empty:visible, {P} .host:nth-child(1) h1")
    page.click(f"{P} >> text=Add a run")
    page.fill(f"{P} .picker input", example.title.lower())
    page.click(f"{P} .found button:has-text('{example.title}')")
    page.wait_for_function(f"document.querySelectorAll('{P} .host').length == 3")
    page.evaluate(f"fetch('/ds/run/{live.run}/step', {{method: 'POST'}})")
    page.wait_for_function(f"/^Step [0-9]+$/.test(document.querySelector('{P} .host h1')?.textContent)")
    assert 0 < live.count < 100, "it is paused behind its step"
    page.wait_for_function(
        f"document.querySelectorAll('{P} .run .much')[1]?.textContent.includes('another prompt') "
        f"&& document.querySelectorAll('{P} .run .much')[2]?.textContent.includes('another prompt')"
    )
    assert page.locator(f"{P} .repeat button").first.get_attribute("aria-disabled") == "true", (
        "a run still goes"
    )
    page.click(f"{P} .tools button:has-text('Stop'):visible")
    page.wait_for_selector(f"{P} .host:nth-child(1) .outcome >> text=Stopped")
    page.click(f"{P} [aria-label='remove run C']")
    page.wait_for_function(f"document.querySelectorAll('{P} .host').length == 2")
    assert (
        page.evaluate("location.hash").startswith("#compare")
        and example.run not in page.evaluate("location.hash").split("runs=")[1]
    )


@pytest.mark.nightly
def test_the_lab_s_two_panes_open_here_and_the_lab_keeps_its_own(lab: Lab) -> None:
    one, two = greedy(lab, PLAIN).run, greedy(lab, CHAIN).run
    page = lab.open(f"/#run={one}&with={two}")
    page.wait_for_selector("text=Open in Compare")
    edges = page.evaluate(
        "[...document.querySelector('.ds-places').children].map((x) => x.getBoundingClientRect())"
    )
    assert edges[1]["top"] - edges[0]["bottom"] >= 8, "the button does not touch what follows"
    page.click("text=Open in Compare")
    drawn(page, 2)
    assert f"runs={one},{two}" in page.evaluate("location.hash")
    page.click("#ds-tab-lab")
    page.wait_for_function("!location.hash.includes('runs=')")
    assert page.evaluate("location.hash") == f"#run={one}&with={two}"


@pytest.mark.nightly
def test_keys_alone_add_a_run_and_move_all_panes(lab: Lab) -> None:
    one, two = greedy(lab, PLAIN), greedy(lab, CHAIN)
    traces = [open_trace(x.path) for x in (one, two)]
    page = opened(lab, one.run, two.run, more="&at=3")
    page.focus(f"{P} .bar .ways button >> nth=0")
    page.keyboard.press("Enter")
    page.wait_for_function(f"document.querySelectorAll('{P} .found button').length > 2")
    assert page.evaluate("document.activeElement.type") == "search"
    page.keyboard.type(shipped_examples()[1].title)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    drawn(page, 3)
    assert page.evaluate(f"document.activeElement == document.querySelector('{P} .ds.pair')")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"document.querySelector('{P} .where')?.textContent.startsWith('token 4 of')")
    assert page.locator(f"{P} .host h1").all_inner_texts()[:2] == [f"Step {writer(x, 4)}" for x in traces]
    page.keyboard.press("a")
    page.wait_for_selector(f"{P} .switch [aria-pressed=true] >> text=wall clock")
    page.keyboard.press("3")
    assert (
        page.evaluate(
            f"[...document.querySelectorAll('{P} .host')].findIndex(x => x.contains(document.activeElement))"
        )
        == 2
    )
    page.focus(f"{P} .bar .ways button >> nth=1")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{P} .lineup:visible")
    page.keyboard.press("Escape")
    page.wait_for_selector(f"{P} .lineup", state="hidden")
    assert page.evaluate("document.activeElement.textContent") == "Run methods on one prompt"


@pytest.mark.nightly
def test_on_a_narrow_page_one_pane_is_seen_and_the_switcher_brings_the_others(lab: Lab) -> None:
    runs = [greedy(lab, PLAIN).run, greedy(lab, CHAIN).run]
    page = lab.open(f"/#compare&runs={','.join(runs)}", 390, ready=False)
    page.wait_for_selector(f"{P} .host h1 >> text=Step")
    hosts = page.locator(f"{P} .host")
    assert [x.is_visible() for x in hosts.all()] == [True, False]
    page.click(f"{P} .switcher button:has-text('B')")
    assert [x.is_visible() for x in hosts.all()] == [False, True]
    page.keyboard.press("1")
    assert [x.is_visible() for x in hosts.all()] == [True, False]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.set_viewport_size({"width": 900, "height": 900})
    page.wait_for_function(f"document.querySelector('{P} .ds.pair.beside')")
    tops = [x.bounding_box()["y"] for x in hosts.all()]
    assert tops[0] == tops[1] and page.locator(f"{P} .switcher").is_hidden()


@pytest.mark.nightly
def test_runs_that_are_gone_and_addresses_that_make_no_sense_are_said(lab: Lab) -> None:
    one, two = greedy(lab, PLAIN).run, greedy(lab, CHAIN).run
    page = lab.open(f"/#compare&runs={one},{'0' * 16},{two}", ready=False)
    page.wait_for_selector(f"{P} .told.ds-refusal >> text=Run B: This run is not here any more.")
    drawn(page, 2)
    assert f"runs={one},{two}" in page.evaluate("location.hash")
    page.goto("about:blank")
    page.goto(f"{lab.address}/#compare&runs=nonsense")
    page.wait_for_selector(f"{P} .told.ds-refusal >> text=cannot be read")
    page.click(f"{P} >> text=Compare two examples")
    drawn(page, 2)
    page.evaluate(
        f"location.hash = '#compare&runs={two}'"
    )  # one run is not drawn yet, but it already has a title
    page.wait_for_selector(f"{P} .chips li:has-text('draft model + greedy: ')")


@pytest.mark.nightly
def test_hostile_tokens_are_text_here(driver: Any, tmp_path: Path) -> None:
    play = toy_play(tmp_path, HOSTILE)
    runs = [finished(play, max_new=40, seed=seed).run for seed in (1, 2)]
    with served(lambda port: Guard(build_app(play), port)) as address:
        hostile = Lab(driver, address, play)
        page = opened(hostile, *runs)
        page.wait_for_selector(f"{P} .parts p >> text=nats apart")
        page.click(f"{P} .parts button")
        page.click(f"{P} .clocks button:has-text('Show as table')")
        assert page.evaluate("window.trap") is None and page.locator(f"{P} script, {P} img").count() == 0
        page.context.close()
        play.close()
    assert not hostile.troubles
