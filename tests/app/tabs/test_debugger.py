"""The Debugger in a browser: breakpoints in recorded and live runs, the verdict under another draw, forks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import toys
from browser import Lab, served, settled
from toylab import HOSTILE, finished, speculative, toy_play

from decodescope.app.http.guard import Guard
from decodescope.app.runs.catalogue.examples import shipped_examples
from decodescope.app.server import build_app
from decodescope.engine import Session
from decodescope.engine.session.run import LazyWriter
from decodescope.engine.trace import open_trace

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("tabs")]
PAGE = "#ds-page-debugger"
EXAMPLE = shipped_examples()[0]
AT = f"Number((document.querySelector('{PAGE} .ds h1')?.textContent || 'Step -1').split(' ')[1])"
DRAFTERS = {
    "token_recycling": "unread",
    "rest": "datastore",
    "rsd_c": "branching",
}  # each has a knob of its own
CHOSEN = f"document.querySelector('{PAGE} .node[aria-selected=true]')"


def opened(lab: Lab, run: str, step: int = 0, **more: Any) -> Any:
    """The page at a step of a run."""
    page = lab.open(f"/#debugger&run={run}&step={step}", ready=False, **more)
    page.wait_for_selector(f"{PAGE} .ds .node:visible")
    at(page, step)
    return page


def at(page: Any, step: int) -> None:
    """Wait until that step is drawn."""
    page.wait_for_function(f"{AT} == {step} && document.querySelectorAll('{PAGE} .node').length > 1")


def add(page: Any, condition: str) -> None:
    """Set a breakpoint."""
    page.fill(f"{PAGE} .breaks form input", condition)
    page.press(f"{PAGE} .breaks form input", "Enter")
    page.wait_for_selector(f"{PAGE} .breaks li >> text={json.dumps(condition)}")


def stopped(page: Any, number: int, condition: str) -> None:
    """Wait for the sentence that reports where the run stopped, and why."""
    begins = f"Stopped at breakpoint {number}: {condition}, step"
    page.wait_for_function(
        f"document.querySelector('{PAGE} .banner')?.textContent.startsWith({json.dumps(begins)})"
    )


def told(page: Any, text: str) -> None:
    """Wait for a sentence about the request."""
    page.wait_for_function(
        f"document.querySelector('{PAGE} .trouble')?.textContent.includes({json.dumps(text)})"
    )


def draw(page: Any, u: float) -> None:
    """Move the slider of the draw."""
    slider = page.locator(f"{PAGE} .whatif input[type=range]").first
    slider.evaluate("(box, u) => { box.value = u; box.dispatchEvent(new Event('input')); }", u)


def rejections(run: Any) -> list[tuple[int, int]]:
    """Steps of a record with a rejection, and the first node refused there as the page counts it."""
    trace = open_trace(run)
    try:
        return [
            (x.step, x.trials.node[x.trials.ok.index(False)] + 1)
            for x in trace.steps
            if x.trials and False in x.trials.ok
        ]
    finally:
        trace.close()


# ---- a recorded run


@pytest.mark.nightly
def test_continue_goes_from_rejection_to_rejection_and_back(lab: Lab) -> None:
    page = opened(lab, EXAMPLE.run)
    all_hits = [x for x in rejections(EXAMPLE.path) if x[0] > 0]
    assert len(all_hits) > 3
    add(page, "first reject")
    for key, (step, node) in [
        ("F8", all_hits[0]),
        ("c", all_hits[1]),
        ("F8", all_hits[2]),
        ("Shift+F8", all_hits[1]),
    ]:
        page.locator(f"{PAGE} .ds").focus()
        page.keyboard.press(key)
        stopped(page, 1, "first reject")
        at(page, step)
        page.wait_for_function(f"{CHOSEN}?.dataset.node == '{node}'")
        assert "reject" in page.evaluate(f"{CHOSEN}.getAttribute('class')")
    count = len(rejections(EXAMPLE.path))
    page.wait_for_selector(f"{PAGE} .breaks li.here .hits >> text=/^here, [0-9]+ of {count}$/")
    page.wait_for_function(f"location.hash.includes('step={all_hits[1][0]}')")
    page.click("#ds-tab-lab")
    page.wait_for_function(f"document.querySelector('.ds-places h1')?.textContent == 'Step {all_hits[1][0]}'")
    assert "step=" not in page.evaluate("location.hash"), "the Lab looks at whatever comes"


def test_the_verdict_flips_under_another_draw_or_rule_and_the_record_stays(lab: Lab) -> None:
    before = EXAMPLE.path.read_bytes()
    page = opened(lab, EXAMPLE.run)
    add(page, "first reject and u > 0.1 and p > 0.001")
    page.click(f"{PAGE} .ways .go")
    page.wait_for_selector(f"{PAGE} .banner:visible")
    page.wait_for_function(f"{CHOSEN}?.classList.contains('reject')")
    draw(page, 0)
    page.wait_for_selector(f"{PAGE} .verdict >> text=the verdict flips")
    assert page.inner_text(f"{PAGE} .verdict b") == "Accepted"
    assert page.inner_text(f"{PAGE} .decision h2") == "Rejected", "the card shows what was recorded"
    assert page.locator(f"{PAGE} .verdict").get_attribute("role") == "status", "it is said aloud"
    draw(page, 1)
    page.wait_for_selector(f"{PAGE} .verdict >> text=as it was")
    page.click(f"{PAGE} .slide .small >> nth=0")
    page.wait_for_selector(f"{PAGE} .verdict >> text=the verdict follows")
    page.select_option(f"{PAGE} .choice select >> nth=0", "typical")
    for name in ("epsilon", "delta"):  # a bound that every token passes
        page.fill(f"{PAGE} .whatif .knobs [data-name={name}]", "0")
        page.press(f"{PAGE} .whatif .knobs [data-name={name}]", "Tab")
    page.wait_for_selector(f"{PAGE} .verdict >> text=the verdict flips")
    # when every token passes, the longest branch is taken, and that may be another one
    assert (
        page.inner_text(f"{PAGE} .verdict b") in ("Accepted", "Not reached")
        and page.locator(f"{PAGE} .lines li").count()
    )
    assert EXAMPLE.path.read_bytes() == before
    assert "the trace stays as it is" in page.inner_text(f"{PAGE} .whatif header")


@pytest.mark.nightly
def test_a_verdict_that_the_record_cannot_tell_is_called_not_known(lab: Lab) -> None:
    page = opened(lab, EXAMPLE.run)
    page.locator(f"{PAGE} .node[data-node='7']").click()
    page.wait_for_selector(f"{PAGE} .whatif select[aria-label=rule] option[value=typical]", state="attached")
    page.select_option(f"{PAGE} .whatif select[aria-label=rule]", "typical")
    page.wait_for_selector(f"{PAGE} .whatif .lines >> text=fork from here")
    assert page.locator(f"{PAGE} .whatif .verdict > *").all_inner_texts()[-2:] == [
        "Not known",
        "it was rejected",
    ]


@pytest.mark.nightly
def test_what_needs_a_run_fills_the_fork(lab: Lab) -> None:
    page = opened(lab, EXAMPLE.run)
    heat = page.locator(f"{PAGE} .whatif input[aria-label=T]")
    heat.evaluate("(box) => { box.value = 0.9; box.dispatchEvent(new Event('input')); }")
    page.wait_for_selector(f"{PAGE} .whatif .verdict >> text=Needs a re-run")
    page.click(f"{PAGE} .whatif .verdict button")
    assert page.input_value(f"{PAGE} .forks input[aria-label='name of the fork']") == "temperature 0.9"
    assert page.evaluate("document.activeElement.textContent").startswith("Fork from step")

    knob, fork = f"{PAGE} .forks .knobs [data-name={{}}]", f"{PAGE} .fork"

    def drafted_by(drafter: str) -> str:
        """Record a short run of that drafter, opened with the knobs that a fork of it can change; return its id."""
        choice = replace(
            speculative(max_new=8), names={"drafter": drafter, "sampler": ["temperature"]}, settings={}
        )
        run = lab.play.start(choice).run
        assert lab.play._jobs[run].wait(300)
        page.evaluate("hash => { location.hash = hash; }", f"#debugger&run={run}&step=1")
        page.wait_for_selector(f"{PAGE} .head >> text=run {run[:8]}")
        page.wait_for_selector(knob.format(DRAFTERS[drafter]), state="attached")
        page.locator(f"{PAGE} .shape").evaluate("details => { details.open = true; }")
        return run

    drafted_by("token_recycling")
    page.select_option(knob.format("unread"), "zero")
    page.uncheck(knob.format("from_prompt"))
    page.wait_for_selector(f"{fork} >> text=In the fork: from prompt false, unread zero.")
    drafted_by("rest")
    page.set_input_files(
        f"{fork} .ds-file input", {"name": "words.txt", "mimeType": "text/plain", "buffer": b"hello you"}
    )
    page.wait_for_selector(f"{fork} >> text=In the fork: datastore words.txt.")
    run = drafted_by("rsd_c")
    for text, says in [("2,x", "rsd_c.branching, item 2 = 'x': must be a whole number."), ("2,2", "")]:
        page.fill(knob.format("branching"), text)
        page.click(f"{fork} .name .ds-button")
        if says:
            page.wait_for_selector(f"{fork} .ds-refusal >> text={says}")
    page.wait_for_function(f"/^#compare&runs={run},[0-9a-f]{{16}}(&|$)/.test(location.hash)")
    made = lab.play.find(re.search(r",([0-9a-f]{16})", page.evaluate("location.hash")).group(1))
    assert lab.play._jobs[made.run].wait(300) and made.wire.header.method["drafter"]["branching"] == "2,2"


@pytest.mark.nightly
def test_the_path_of_a_what_if_is_drawn_beside_that_of_the_record(lab: Lab) -> None:
    found: list[Any] = []
    page = opened(lab, EXAMPLE.run)
    page.on("response", lambda answer: answer.url.endswith("/whatif") and found.append(answer.json()))
    add(page, "first reject and u > 0.1 and p > 0.001")
    page.click(f"{PAGE} .ways .go")
    page.wait_for_selector(f"{PAGE} .banner:visible")
    page.wait_for_function(f"{CHOSEN}?.classList.contains('reject')")
    assert (
        page.locator(f"{PAGE} .then rect[data-of]").count() == 0
        and not page.locator(f"{PAGE} .then-key").is_visible()
    )
    node = page.evaluate(f"{CHOSEN}.dataset.node")
    draw(page, 0)
    page.wait_for_selector(f"{PAGE} .then-key >> text=What if: this path")
    due = [str(x) for x in found[-1]["path"]]
    assert node in due, "the test needs another path than the record's"
    marks = page.locator(f"{PAGE} .then rect[data-of]")
    assert marks.evaluate_all("all => all.map((x) => x.dataset.of)") == due
    assert page.locator(f"{PAGE} .then path[transform]").count() == len(due) - 1, (
        "a line to each node behind the root"
    )
    assert "reject" in page.evaluate(f"{CHOSEN}.getAttribute('class')"), "the record's own marks stay"
    page.click(f"{PAGE} .tree-pane >> text=Show as table")
    row = page.locator(f"{PAGE} .tree-pane tbody tr").nth(int(node))
    page.wait_for_selector(f"{PAGE} .tree-pane th.then >> text=what if")
    assert (
        row.locator("td").nth(-2).inner_text() == "rejected"
        and row.locator("td.then").inner_text() == "accepted"
    )
    draw(page, 1)
    page.wait_for_selector(f"{PAGE} .then-key >> text=What if: the path of the record")
    page.click(f"{PAGE} .slide .small >> nth=0")
    page.wait_for_function(
        f"!document.querySelector('{PAGE} td.then') && document.querySelector('{PAGE} .then-key').hidden"
    )


@pytest.mark.nightly
def test_decisions_and_steps_are_walked_in_their_order(lab: Lab) -> None:
    trace = open_trace(EXAMPLE.path)
    tried = [[node + 1 for node in x.trials.node] + [len(x.draft.tokens) + 1] for x in list(trace.steps)[:3]]
    trace.close()
    page = opened(lab, EXAMPLE.run)
    page.locator(f"{PAGE} .ds").focus()
    for _ in range(len(tried[0])):  # from the page's first position to the first decision of step 1
        if page.evaluate(AT) == 1:
            break
        before = page.evaluate(f"{AT} + ' ' + {CHOSEN}?.dataset.node")
        page.keyboard.press("F11")
        page.wait_for_function(f"{AT} + ' ' + {CHOSEN}?.dataset.node != {json.dumps(before)}")
    for key, step, node in [
        ("d", 1, tried[1][1]),
        ("Shift+F11", 1, tried[1][0]),
        ("D", 0, tried[0][-1]),
        ("n", 1, None),
        ("F10", 2, None),
    ]:
        page.keyboard.press(key)
        at(page, step)
        if node is not None:
            page.wait_for_function(f"{CHOSEN}?.dataset.node == '{node}'")


@pytest.mark.nightly
def test_breakpoints_stay_in_the_browser_and_are_set_at_a_decision(lab: Lab) -> None:
    page = opened(lab, EXAMPLE.run, 3)
    page.locator(f"{PAGE} .ds .node[tabindex='0']").focus()
    page.keyboard.press("b")
    page.wait_for_selector(f"{PAGE} .breaks li.here")
    text = page.inner_text(f"{PAGE} .breaks li code")
    assert re.fullmatch(r"step == 3 and token in \{\d+\}", text)
    page.reload()
    page.wait_for_selector(f"{PAGE} .breaks li.here")
    page.locator(f"{PAGE} .breaks li input").focus()
    page.keyboard.press("F9")
    page.wait_for_selector(f"{PAGE} .breaks li.off")
    page.locator(f"{PAGE} .ds").focus()
    page.keyboard.press("F8")
    told(page, "No breakpoint is on")
    page.click(f"{PAGE} .breaks .gone")
    page.wait_for_function(f"!document.querySelector('{PAGE} .breaks li')")


@pytest.mark.nightly
def test_watches_are_drawn_and_stand_in_a_table_too(lab: Lab) -> None:
    page = opened(lab, EXAMPLE.run, 2)
    page.wait_for_function(f"document.querySelectorAll('{PAGE} .watches path[d*=L]').length >= 3")
    trace = open_trace(EXAMPLE.path)
    counts = [x.accepted for x in trace.steps]
    trace.close()
    page.fill(f"{PAGE} .watches form input", "accepted")
    page.press(f"{PAGE} .watches form input", "Enter")
    page.wait_for_function(
        f"document.querySelector('{PAGE} .watches li:last-child b')?.textContent == '{counts[2]}'"
    )
    page.click(f"{PAGE} .watches >> text=Show as table")
    page.wait_for_function(f"document.querySelectorAll('{PAGE} .twin tbody tr').length == {len(counts)}")
    shown = page.locator(f"{PAGE} .twin tbody tr td:last-child").all_inner_texts()
    assert [int(x) for x in shown] == counts
    page.fill(f"{PAGE} .watches form input", "accepted +")
    page.press(f"{PAGE} .watches form input", "Enter")
    page.wait_for_selector(f"{PAGE} .watches .said.ds-refusal")


@pytest.mark.nightly
def test_a_bad_condition_gets_one_sentence_and_is_not_taken(lab: Lab) -> None:
    page = opened(lab, EXAMPLE.run, width=390)
    for text in [
        "p <",
        "nonsense > 2",
        "accepted",
        "__import__('os')",
        "p < " * 300,
        "<img src=x onerror=1>",
    ]:
        page.fill(f"{PAGE} .breaks form input", "first reject")
        page.wait_for_selector(f"{PAGE} .breaks .said.quiet >> text=Reads first reject.")
        page.fill(f"{PAGE} .breaks form input", text)
        page.press(f"{PAGE} .breaks form input", "Enter")
        page.wait_for_selector(f"{PAGE} .breaks .said.ds-refusal")
        said = page.inner_text(f"{PAGE} .breaks .said")
        assert said.endswith((".", "?")) and "Traceback" not in said and "\n" not in said
        assert page.locator(f"{PAGE} .breaks li").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")


# ---- forks


@pytest.mark.nightly
def test_a_fork_with_a_forced_verdict_opens_beside_its_run(lab: Lab) -> None:
    run = finished(lab.play, max_new=24)
    step, node = rejections(run.path)[0]
    before = run.path.read_bytes()
    page = opened(lab, run.run, step)
    page.locator(f"{PAGE} .node[data-node='{node}']").click()
    page.wait_for_function(f"{CHOSEN}?.dataset.node == '{node}'")
    page.click(f"{PAGE} .forces >> text=Force accept")
    page.wait_for_selector(f"{PAGE} .fork >> text=node {node} accepted by force")
    page.fill(f"{PAGE} .fork .name input", "what if it had stayed")
    page.click(f"{PAGE} .fork .name .ds-button")
    page.wait_for_function(f"/^#compare&runs={run.run},[0-9a-f]{{16}}(&|$)/.test(location.hash)")
    fork = re.search(r",([0-9a-f]{16})", page.evaluate("location.hash")).group(1)
    assert lab.play._jobs[fork].wait(300)
    assert run.path.read_bytes() == before
    page.wait_for_selector(
        f"#ds-page-compare .origin >> text=fork of A from step {step}: what if it had stayed"
    )
    page.evaluate("hash => { location.hash = hash; }", f"#debugger&run={run.run}&step={step}")
    page.wait_for_selector(f"{PAGE} .forks li >> text=what if it had stayed")
    page.click(f"{PAGE} .forks li >> text=Open")
    page.wait_for_selector(f"{PAGE} .origin >> text=from its step {step}")
    trace = open_trace(lab.play.find(fork).path)
    assert node - 1 in trace.steps[step].path, "the refused guess stays in the fork"
    trace.close()


# ---- a live run


@pytest.mark.nightly
def test_a_run_that_goes_pauses_at_a_breakpoint_and_goes_on_to_its_end(paused: Lab) -> None:
    channel = paused.play.start(speculative(max_new=40))
    page = paused.open(f"/#debugger&run={channel.run}", ready=False)
    page.wait_for_selector(f"{PAGE} .head >> text=paused")
    add(page, "first reject")
    page.wait_for_selector(f"{PAGE} .breaks >> text=they pause the run")
    with page.expect_response(lambda x: x.url.endswith("/breaks")):
        add(page, "step == 12345")  # the run has both conditions once it has this one
    page.locator(f"{PAGE} .ds").focus()
    page.keyboard.press("F8")
    stopped(page, 1, "first reject")
    page.wait_for_selector(f"{PAGE} .head >> text=paused")
    assert channel.status == "paused" and channel.count < 40
    made = channel.steps(0, channel.count)
    assert False in made[-1].trials.ok and all(False not in x.trials.ok for x in made[:-1])
    page.wait_for_function(f"{AT} == {len(made) - 1} && {CHOSEN}?.classList.contains('reject')")
    page.keyboard.press("F10")
    page.wait_for_function(f"{AT} >= {len(made)}")
    assert not channel.over
    page.uncheck(f"{PAGE} .breaks li >> nth=0 >> input")
    with page.expect_response(lambda x: x.url.endswith("/breaks")):
        page.click(f"{PAGE} .breaks li >> nth=1 >> .gone")
    page.click(f"{PAGE} .ways .go")
    page.wait_for_selector(f"{PAGE} .head >> text=recorded")
    assert channel.end.reason in ("max_new_tokens", "stop_token")


@pytest.mark.nightly
def test_the_lab_says_that_a_breakpoint_paused_its_run_and_leads_there(paused: Lab) -> None:
    page = paused.open()
    page.evaluate(
        "localStorage.setItem('decodescope-breakpoints', JSON.stringify([{text: 'first reject', on: true}]))"
    )
    page.reload()
    paused.ready(page)
    with page.expect_response(lambda x: x.url.endswith("/breaks")):
        page.click("#ds-run")
    page.wait_for_selector(".ds-button.pause >> text=Go on")
    page.click(".ds-button.pause")
    page.click(".ds-shown .debug >> text=paused at first reject")
    page.wait_for_selector(f"{PAGE} .banner >> text=Stopped at breakpoint 1")
    page.click("#ds-tab-lab")
    page.click(".ds-button.stop")
    page.wait_for_selector(".ds-places .outcome >> text=Stopped.")


# ---- keyboard alone, and missing runs


def test_the_main_story_with_the_keyboard_alone(lab: Lab) -> None:
    page = opened(lab, EXAMPLE.run)
    go, press = page.locator, page.keyboard.press
    page.focus("#ds-tab-debugger")

    def reach(selector: str) -> None:
        for _ in range(120):
            if page.evaluate(f"!!document.activeElement?.matches({json.dumps(selector)})"):
                return
            press("Tab")
        raise AssertionError(f"{selector} cannot be reached")

    reach(f"{PAGE} .breaks form input")
    page.keyboard.type("first reject and u > 0.1")
    press("Enter")
    page.wait_for_selector(f"{PAGE} .breaks li")
    page.keyboard.type("c")  # in an input field a letter is only a letter
    assert page.input_value(f"{PAGE} .breaks form input") == "c"
    press("Backspace")
    reach(f"{PAGE} .ds .node")
    press("c")
    stopped(page, 1, "first reject and u > 0.1")
    page.wait_for_function(f"{CHOSEN}?.classList.contains('reject')")
    reach(f"{PAGE} .slide input")
    press("Home")
    page.wait_for_selector(f"{PAGE} .verdict >> text=Accepted")
    reach(f"{PAGE} .forces .ds-button")
    press("Enter")
    page.wait_for_selector(f"{PAGE} .forces [aria-pressed=true]")
    assert go(f"{PAGE} .forces .ds-button >> nth=0").evaluate("x => x === document.activeElement")
    reach(f"{PAGE} .time-pane .scrub")
    press("End")
    page.wait_for_function(f"{AT} > 5")


@pytest.mark.nightly
def test_without_a_run_or_without_its_decisions_the_page_says_so(lab: Lab) -> None:
    page = lab.open("/#debugger&run=00000000000000dd", ready=False)
    page.wait_for_selector(f"{PAGE} .empty >> text=press Run in the Lab")
    page.locator(f"{PAGE} .ds").focus()
    page.keyboard.press("F8")
    told(page, "No run is shown")
    target, draft = toys.target(), toys.draft()
    method = toys.method(drafter=("draft_model", {"max_draft_tokens": 3}), sampler="temperature")
    session = Session(
        target, method, toys.PROMPT, models={"draft": draft}, max_new_tokens=12, level="summary"
    )
    session.sink = LazyWriter(lab.play.folder / f"{session.run_id}.dstrace")
    for _ in session.stream():
        pass
    page.evaluate("hash => { location.hash = hash; }", f"#debugger&run={session.run_id}")
    page.wait_for_selector(f"{PAGE} .whatif .why >> text=recorded without its decisions")
    assert page.locator(f"{PAGE} .whatif .slide:visible").count() == 0
    add(page, "tokens >= 1")
    page.wait_for_selector(f"{PAGE} .breaks .hits >> text=/hit|at|here/")
    page.fill(f"{PAGE} .breaks form input", "p < 0.5")
    page.press(f"{PAGE} .breaks form input", "Enter")
    page.wait_for_selector(f"{PAGE} .breaks li:last-child .hits >> text=!")
    page.click(f"{PAGE} .breaks li:last-child .hits")
    told(page, "was not recorded")


# ---- looks


@pytest.fixture(scope="module")
def hostile(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, str]]:
    """A lab whose tokens are written to break pages, and a run of it."""
    play = toy_play(tmp_path_factory.mktemp("traces"), HOSTILE)
    run = finished(play, max_new=60).run
    with served(lambda port: Guard(build_app(play), port)) as address:
        made = Lab(driver, address, play)
        yield made, run
        play.close()
    assert not made.troubles, made.troubles


@pytest.mark.nightly
def test_hostile_tokens_are_text_here_too(hostile: tuple[Lab, str]) -> None:
    lab, run = hostile
    page = opened(lab, run)
    add(page, 'text contains "<script>" or first reject')
    page.click(f"{PAGE} .ways .go")
    page.wait_for_selector(f"{PAGE} .banner:visible")
    draw(page, 0)
    page.wait_for_selector(f"{PAGE} .texts dd")
    assert page.evaluate("window.trap") is None
    assert page.locator(f"{PAGE} :is(img, script)").count() == 0


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_everything_fits_and_can_be_pressed(lab: Lab, scheme: str) -> None:
    page = opened(lab, EXAMPLE.run, 2, color_scheme=scheme)
    for text in ("first reject", "p/q < 0.1 and depth > 2 and entropy > 0.01 and not evicts a sink"):
        add(page, text)
    page.wait_for_selector(f"{PAGE} .breaks li.here")
    low = "all => all.filter((x) => x.getBoundingClientRect().height < 24).map((x) => x.textContent)"
    for width in (390, 900, 1440, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), width
        small = page.locator(f"{PAGE} :is(button, summary, .breaks label):visible").evaluate_all(low)
        assert not small, "targets are at least 24 px high"
        right = "all => Math.max(...all.map((x) => x.getBoundingClientRect().right))"
        assert page.locator(f"{PAGE} .breaks .gone").evaluate_all(right) <= width


def test_a_fork_takes_a_draft_model_of_the_list(shipped: Lab) -> None:
    """Only those of the run's sizes are offered; the form says what is chosen, and the fork opens next to its run."""
    run = next(x.run for x in shipped_examples() if x.title == "First rejection")
    page = shipped.open(f"/#debugger&run={run}&step=2", ready=False)
    form = page.locator("#ds-page-debugger form.fork")
    form.locator("summary", has_text="Another draft from here on").click()
    drafts = form.locator(".instead select")
    assert drafts.locator("option").evaluate_all("all => all.map((x) => x.value)") == ["", "lab-draft-plain"]
    drafts.select_option("lab-draft-plain")
    form.get_by_text("In the fork: draft lab-draft-plain.").wait_for()
    form.get_by_role("button", name="Fork from step 2").click()
    page.wait_for_function("location.hash.startsWith('#compare')")
    fork = next(x.fork for x in shipped.play.channels().values() if x.fork is not None)
    assert (fork["step"], fork["change"]) == (2, {"instead": {"draft": "lab-draft-plain"}})
