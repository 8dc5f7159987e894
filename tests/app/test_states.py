"""What the page shows in unusual states: loading, waiting, cut off, failed, out of memory, damaged, empty."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from browser import STEP, Lab, served
from sizes import first_of
from toylab import finished, occupied, speculative, toy_play

from decodescope.app.http.guard import Guard
from decodescope.app.runs.catalogue.examples import examples, shipped_examples
from decodescope.app.runs.catalogue.presets import PRESETS
from decodescope.app.runs.recipe import choice_from_header
from decodescope.app.server import build_app
from decodescope.engine import Method, Session
from decodescope.engine.model.forward.executor import EngineFault, Executor
from decodescope.engine.session.load import Model
from decodescope.engine.trace.records.events import Prefill

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
SECRET = "abcdefghijklm"


class Cut:
    """An application whose event streams can be cut off."""

    def __init__(self, app: Any):
        self.app, self.on = app, False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def sent(message: Any) -> None:
            if self.on and scope.get("path", "").endswith("/events"):
                raise ConnectionError("cut off")
            await send(message)

        await self.app(scope, receive, sent)


@pytest.fixture(scope="module")
def lab(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab that can run, whose streams can be cut off."""
    play = toy_play(tmp_path_factory.mktemp("traces"))
    cut = Cut(build_app(play))
    with served(lambda port: Guard(cut, port)) as address:
        made = Lab(driver, address, play)
        made.cut = cut  # type: ignore[attr-defined] # only the labs of this file have it
        yield made
        play.close()
    assert not made.troubles, made.troubles


@pytest.mark.nightly
def test_loading_is_told_in_words_and_seconds(lab: Lab) -> None:
    lab.play.models._phase, lab.play.models._since = "loading target big", time.monotonic() - 3
    try:
        page = lab.open(width=390)
        page.wait_for_selector("#ds-models >> text=/loading target big, ([3-9]|[1-9][0-9]+) s/")
        assert "%" not in page.inner_text("#ds-models")
    finally:
        lab.play.models._phase = ""
    page.wait_for_selector("#ds-models", state="hidden")


@pytest.mark.nightly
def test_what_a_run_does_before_its_first_step_is_told_with_its_seconds(lab: Lab) -> None:
    read, loaded = Event(), Event()

    def slow(models: Mapping[str, Model]) -> Session:
        session = Session(models["target"], Method(), [1, 2, 3], max_new_tokens=2)
        begin = session.start

        def start() -> Prefill:
            session.reading = session.reading or ("target", 512, 4096)
            assert read.wait(60)
            return begin()

        session.start = start  # type: ignore[method-assign]
        return session

    run = lab.play.launch({"target": "toy"}, slow).run
    page = lab.open(f"/#run={run}")
    page.wait_for_selector(".ds .veil >> text=/Reading the prompt: 512 of 4,096 tokens, [0-9]+ s/")
    assert "press Run" not in page.inner_text(".ds .empty")
    read.set()
    page.wait_for_function(f"{STEP} >= 0")
    page.wait_for_selector(".ds .veil", state="hidden")
    # the same for a run whose model must be loaded first
    bring, gone = lab.play.models.ensure_loaded, lab.play.models.present.pop("toy")

    def coming(names: Mapping[str, str]) -> dict[str, Model]:
        lab.play.models._phase = "loading the model big"
        assert loaded.wait(60)
        lab.play.models._phase, lab.play.models.present["toy"] = "", gone
        return lab.play.models.loaded_models(names)

    lab.play.models.ensure_loaded = coming
    try:
        page.goto(f"{lab.address}/#run={lab.play.launch({'target': 'toy'}, slow).run}")
        page.wait_for_selector(".ds .veil >> text=/Loading the model big, [0-9]+ s/")
        loaded.set()
        page.wait_for_function(f"{STEP} >= 0")
    finally:
        lab.play.models.ensure_loaded = bring


@pytest.mark.nightly
def test_a_stop_at_a_breakpoint_is_told_over_the_picture(paused: Lab) -> None:
    run = paused.play.start(speculative(max_new=60)).run
    page = paused.open(f"/#run={run}")
    page.wait_for_selector(".ds-button.pause >> text=Go on")
    assert page.locator(".ds-halted").is_hidden(), "a pause by hand is none"
    page.evaluate(
        """async (run) => {
            const post = (what, body) => fetch(`/ds/run/${run}/${what}`, { method: "POST", body });
            await post("breaks", JSON.stringify({ conditions: ["step >= 2"] }));
            await post("resume");
        }""",
        run,
    )
    page.wait_for_selector(".ds-halted >> text=/Paused at a breakpoint *step >= 2, at step 2/")
    page.click(".ds-halted >> text=Go on")
    page.wait_for_selector(".ds-halted >> text=/at step 3/")
    page.click(".ds-halted >> text=Look at it in the Debugger")
    page.wait_for_function("location.hash.startsWith('#debugger')")


@pytest.mark.nightly
def test_a_run_that_waits_says_behind_how_many_and_can_be_cancelled(lab: Lab) -> None:
    page = lab.open()
    with occupied(lab.play):
        page.click("#ds-run")
        page.wait_for_selector(".ds .veil >> text=1 run before yours")
        page.click(".ds-button.stop >> text=Cancel")
        page.wait_for_selector(".ds .outcome >> text=Stopped.")


@pytest.mark.nightly
def test_a_lost_stream_is_veiled_and_goes_on_from_its_last_step(paused: Lab) -> None:
    page = paused.open()
    page.click("#ds-run")
    page.wait_for_selector(".ds-button.pause >> text=Go on")
    page.click(".ds-button.step")
    page.wait_for_function(f"{STEP} == 0")
    channel = paused.play.find(page.evaluate("location.hash").removeprefix("#run="))
    paused.cut.on = True  # type: ignore[attr-defined] # only the labs of this file have it
    try:
        paused.play.act(channel, "step")
        page.wait_for_selector(".ds .veil >> text=reconnecting, last step 0")
        assert page.evaluate(STEP) == 0 and page.locator(".ds .node:visible").count() > 1, (
            "the last picture stays"
        )
    finally:
        paused.cut.on = False  # type: ignore[attr-defined] # only the labs of this file have it
    page.wait_for_function(f"{STEP} == 1")
    page.wait_for_selector(".ds .veil", state="hidden")
    page.click(".ds-button.stop")
    page.wait_for_selector(".ds .outcome >> text=Stopped.")


@pytest.mark.nightly
def test_a_run_that_waits_says_for_which_and_anybody_can_stop_that_one(lab: Lab) -> None:
    page = lab.open()
    page.get_by_label("New tokens").fill("8")
    with occupied(lab.play) as other:
        page.click("#ds-run")
        page.wait_for_selector(f".ds-going li[data-run='{other.run}'] >> text=is running")
        page.click(".ds-going >> text=Stop it")
        assert not other.over, "between two steps"
    page.wait_for_selector(".ds .outcome >> text=as many tokens")
    page.wait_for_selector(".ds-going", state="hidden")
    assert other.end is not None and other.end.reason == "stopped_by_user"


@pytest.mark.nightly
def test_a_run_that_was_paused_on_a_page_that_is_gone_holds_nobody_up_and_is_listed(paused: Lab) -> None:
    first = paused.open()
    first.click("#ds-run")
    first.wait_for_selector(".ds-button.pause >> text=Go on")
    first.click(".ds-button.step")
    first.wait_for_function(f"{STEP} == 0")
    run = first.evaluate("location.hash").removeprefix("#run=")
    first.context.close()
    paused.play.pausing = False
    page = paused.open()
    page.get_by_label("New tokens").fill("8")
    page.click("#ds-run")
    page.wait_for_selector(".ds .outcome >> text=as many tokens")
    page.goto(paused.address + "/#library")
    row = page.locator(f"#ds-page-library .ds-going li[data-run='{run}']")
    row.get_by_text("is paused after 1 step").wait_for()
    assert "draft model" in row.inner_text().lower()
    row.get_by_role("button", name="Stop it").click()
    page.wait_for_selector("#ds-page-library .ds-going", state="hidden")
    channel = paused.play.find(run)
    assert channel is not None and channel.over and channel.count == 1, "its step is kept"


@pytest.mark.nightly
def test_a_server_that_stays_away_is_named_with_what_to_do(paused: Lab) -> None:
    page = paused.open()
    page.click("#ds-run")
    page.wait_for_selector(".ds-button.pause >> text=Go on")
    paused.cut.on = True  # type: ignore[attr-defined] # only the labs of this file have it
    try:
        page.click(".ds-button.step")
        page.wait_for_selector(".ds .veil >> text=The server does not answer: start it again")
    finally:
        paused.cut.on = False  # type: ignore[attr-defined] # only the labs of this file have it
    page.wait_for_function(f"{STEP} == 0")
    page.click(".ds-button.stop")
    page.wait_for_selector(".ds .outcome >> text=Stopped.")


@pytest.mark.nightly
def test_a_link_whose_run_is_no_number_says_so(lab: Lab) -> None:
    page = lab.open("/#run=nonsense")
    page.wait_for_selector(".ds-none .ds-refusal >> text=cannot be read")
    page.get_by_role("button", name="Run the example").click()
    page.wait_for_selector(".ds .node:visible")


@pytest.mark.parametrize("reason", first_of("out_of_memory", "device_lost"))
def test_a_run_that_fails_keeps_its_steps_and_says_what_to_do(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, reason: Any
) -> None:
    run, calls = Executor.run, 0

    def failing(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 20:
            raise EngineFault(reason, "This did not go well.")
        return run(*args, **more)

    page = lab.open()
    page.locator("#ds-prompt textarea").fill(SECRET)
    monkeypatch.setattr(Executor, "run", failing)
    page.click("#ds-run")
    page.wait_for_selector(".ds .outcome.bad >> text=/This did not go well. [0-9]+ steps? (is|are) kept/")
    monkeypatch.undo()
    assert page.evaluate(STEP) >= 1 and page.locator(".ds .node:visible").count() > 1
    page.click(".ds-trouble >> text=Copy report")
    page.wait_for_selector(".ds-trouble textarea")
    report = page.input_value(".ds-trouble textarea")
    assert f"ended: {reason}" in report and "message: This did not go well." in report and "seed: 9" in report
    assert SECRET not in report, "the prompt may be private"
    ways = page.locator(".ds-trouble .ways button")
    if reason != "out_of_memory":
        assert ways.all_inner_texts() == ["Copy report"]
        return
    assert "cache of" in page.inner_text(".ds-trouble p")
    assert ways.all_inner_texts()[:-1] == [PRESETS[x].title for x in ("plain", "h2o", "streaming")]
    ways.nth(1).click()
    page.wait_for_function(f"document.querySelector('#ds-preset input').value == '{PRESETS['h2o'].title}'")
    header = lab.play.find(page.evaluate("location.hash").removeprefix("#run=")).wire.header
    assert page.locator("#ds-prompt textarea").input_value() == choice_from_header(header).prompt, (
        "the same prompt, with less"
    )


@pytest.mark.nightly
def test_a_damaged_trace_is_shown_as_far_as_it_goes(lab: Lab) -> None:
    whole = finished(lab.play, max_new=60).path.read_bytes()
    path: Path = lab.play.folder / "00000000000000aa.dstrace"
    path.write_bytes(whole[: len(whole) * 2 // 3])
    page = lab.open("/#run=00000000000000aa")
    page.wait_for_selector(".ds .outcome.bad >> text=/[0-9]+ steps are kept and can be looked at/")
    assert page.evaluate(STEP) > 2


@pytest.mark.parametrize("trouble", first_of("gone", "no trace at all"))
@pytest.mark.nightly
def test_where_nothing_can_be_shown_an_example_is_offered(lab: Lab, trouble: str) -> None:
    run, sentence = "00000000000000bb", "not here any more"
    if trouble != "gone":
        run, sentence = "00000000000000cc", "cannot be shown"
        (lab.play.folder / f"{run}.dstrace").write_bytes(b"this is no trace " * 9)
    page = lab.open(f"/#run={run}")
    page.wait_for_selector(f".ds-none .ds-refusal >> text={sentence}")
    assert page.evaluate("location.hash") == "" and "Traceback" not in page.content()
    assert page.locator(".ds-none li").count() == len(examples())
    page.get_by_role("button", name="Run the example").click()
    page.wait_for_selector(".ds .node:visible")
    page.wait_for_selector(".ds-none", state="hidden")
    assert page.input_value(".ds-shown select") == shipped_examples()[0].run
