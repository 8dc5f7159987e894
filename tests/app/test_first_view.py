"""The page without a model: it opens on an example; settings are kept, composed, copied and refused."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import KEPT, STEP, Lab, option, passes, served
from sizes import first_of
from toylab import speculative

from decodescope.app.http.guard import Guard
from decodescope.app.runs.catalogue.examples import examples, shipped_examples
from decodescope.app.runs.catalogue.presets import PRESETS
from decodescope.app.runs.composition import Composition
from decodescope.app.runs.recipe import recipe
from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.app.server import build_app
from decodescope.engine.session.load import SHIPPED

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
TWO = "[...document.querySelectorAll('.ds-places h1')].map((x) => Number(x.textContent.split(' ')[1]))"
ENDS = "[...document.querySelectorAll('.ds-places .outcome')]"


@pytest.fixture(scope="module")
def bare(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab in which no model was loaded."""
    more = tmp_path_factory.mktemp("models")
    shutil.copytree(SHIPPED / "lab-draft", more / "other")
    table = json.loads((more / "other" / "tokenizer.json").read_text())
    words = {place: word for word, place in table["model"]["vocab"].items()}
    table["model"]["vocab"] |= {words[300]: 301, words[301]: 300}
    (more / "other" / "tokenizer.json").write_text(json.dumps(table))
    play = RunService("lab", "lab-draft", tmp_path_factory.mktemp("traces"), more)
    with served(lambda port: Guard(build_app(play), port)) as address:
        made = Lab(driver, address, play)
        yield made
        play.close()
    assert not made.troubles, made.troubles


def test_the_page_opens_on_an_example_that_plays_before_a_model_is_there(bare: Lab) -> None:
    begin = time.monotonic()
    page = bare.open(reduced_motion="no-preference")
    page.wait_for_selector(".ds .node:visible")
    drawn = time.monotonic() - begin
    page.wait_for_function(f"{STEP} >= 2")
    assert bare.play.models.loaded_models() == {}
    assert drawn < 10, f"{drawn:.1f} s; on an idle machine it takes less than 2"
    assert page.evaluate("location.hash") == "", "the address stays as it is"
    shown = page.locator(".ds-shown select").evaluate("x => x.selectedOptions[0].textContent")
    assert shown == "Example: " + shipped_examples()[0].title and shipped_examples()[
        0
    ].about in page.inner_text(".ds-shown")


@pytest.mark.nightly
def test_an_example_stands_still_for_those_who_ask_for_it_and_where_somebody_went(bare: Lab) -> None:
    still = bare.open(clock=True)
    still.wait_for_selector(".ds .node:visible")
    page = bare.open(reduced_motion="no-preference", clock=True)
    page.wait_for_function(f"{STEP} >= 1")
    page.focus(".ds")
    page.keyboard.press("Home")
    for one in (page, still):
        passes(one, 2500)
        assert one.evaluate(STEP) == 0


@pytest.mark.nightly
def test_another_example_can_be_chosen_and_linked(bare: Lab) -> None:
    page, other = bare.open(), shipped_examples()[1]
    page.wait_for_selector(".ds .node:visible")
    page.select_option(".ds-shown select", other.run)
    page.wait_for_function(
        f"document.querySelector('.ds-shown .about').textContent == {json.dumps(other.about)}"
    )
    assert page.evaluate("location.hash") == f"#run={other.run}"
    page.reload()
    bare.ready(page)
    page.wait_for_function(
        f"document.querySelector('.ds-shown select').value == {json.dumps(other.run)} && {STEP} >= 0"
    )


@pytest.mark.nightly
def test_a_run_takes_the_place_of_the_example_and_can_be_saved(lab: Lab) -> None:
    page = lab.open(clock=True)
    page.wait_for_selector(".ds .node:visible")
    page.get_by_label("New tokens").fill("12")
    page.click("#ds-run")
    page.wait_for_selector(".ds .outcome >> text=as many tokens")
    run = page.evaluate("location.hash").removeprefix("#run=")
    assert run not in {x.run for x in examples()}
    assert page.locator(".ds-shown select").evaluate("x => x.selectedOptions[0].textContent") == "Your run"
    at = page.evaluate(STEP)
    passes(page, 2000)
    assert page.evaluate(STEP) == at, "the example no longer plays"
    for link, name in [(".html", f"decodescope-{run}.html"), (".trace", f"{run}.dstrace")]:
        page.click(".ds-shown .ds-save summary")
        with page.expect_download() as got:
            page.click(f".ds-shown a{link}")
        page.keyboard.press("Escape")
        assert got.value.suggested_filename == name and Path(got.value.path()).stat().st_size > 500


@pytest.mark.nightly
def test_an_example_of_the_library_puts_its_prompt_into_the_controls(bare: Lab) -> None:
    page = bare.open()
    due = page.evaluate(
        "fetch('/ds/examples').then((x) => x.json()).then((all) => JSON.parse(all[3].settings).prompt)"
    )
    assert page.input_value("#ds-prompt textarea") != due
    page.click("#ds-tab-library")
    page.locator("#ds-page-library .examples li").nth(3).locator(".card").click()
    page.wait_for_function("due => document.querySelector('#ds-prompt textarea').value == due", arg=due)


@pytest.mark.nightly
def test_settings_survive_a_reload(bare: Lab) -> None:
    page = bare.open()
    option(page, "#ds-policy", "H2O (heavy-hitter oracle)")
    page.get_by_label("heavy, entries").fill("33")
    page.locator("#ds-prompt textarea").fill("My own words, <b>bold</b>")
    page.get_by_label("Seed").fill("12")
    page.get_by_label("New tokens").fill("34")
    page.wait_for_function(f"{KEPT}.new == 34 && {KEPT}.seed == 12 && {KEPT}.settings.policy.heavy == 33")
    page.reload()
    bare.ready(page)
    page.wait_for_function("document.querySelector('#ds-prompt textarea').value.startsWith('My own')")
    page.wait_for_function("document.querySelector('#ds-policy input').value.startsWith('H2O')")
    page.wait_for_selector("#ds-policy >> visible=true")
    assert page.get_by_label("heavy, entries").input_value() == "33"
    assert (
        page.get_by_label("Seed").input_value() == "12"
        and page.get_by_label("New tokens").input_value() == "34"
    )


@pytest.mark.nightly
def test_a_preset_sets_the_parts_and_their_knobs(bare: Lab) -> None:
    page = bare.open()
    for name in ("streaming", "jacobi", "chain"):
        preset = PRESETS[name]
        option(page, "#ds-preset", preset.title)
        page.wait_for_function(
            f"document.querySelector('#ds-preset input').value == {json.dumps(preset.title)}"
        )
        page.wait_for_function(
            f"""() => {{ const kept = {KEPT};
            return Object.entries({json.dumps(dict(preset.names))}).every(([k, v]) => String(kept.names?.[k]) == String(v))
              && Object.entries({json.dumps({k: dict(v) for k, v in preset.settings.items()})}).every(([k, knobs]) =>
                Object.entries(knobs).every(([knob, v]) => kept.settings[k]?.[knob] == v)); }}"""
        )
    assert page.locator("#ds-drafter").is_visible()
    # a changed preset becomes custom settings
    option(page, "#ds-policy", "Window")
    page.wait_for_function("document.querySelector('#ds-preset input').value == 'Custom'")


@pytest.mark.nightly
def test_copied_text_is_the_recipe_of_what_is_set(bare: Lab) -> None:
    page = bare.open()
    page.locator("#ds-prompt textarea").fill('Say "hi"')
    page.wait_for_selector("#ds-copy-next-command >> visible=true")
    preset = PRESETS["tree"]
    names = {
        "strategy": "draft_verify",
        "acceptance": "lossless",
        "policy": "keep_all",
        "adaptive_depth": "all_layers",
    }
    choice = RunChoice('Say "hi"', names | dict(preset.names), preset.settings, 9, 96)  # as in the example
    for way in ("command", "python"):
        page.click(f"#ds-copy-next-{way}")
        page.wait_for_selector(f"#ds-copied textarea[aria-label={way}]")
        assert page.input_value("#ds-copied textarea") == recipe(choice, bare.play.models.names, way)
    page.click("#ds-copy-next-link")
    page.wait_for_selector("#ds-copied textarea[aria-label=link]")
    link = page.input_value("#ds-copied textarea")
    assert link.startswith(bare.address + "/#set=")
    other = bare.open(link.removeprefix(bare.address))
    other.wait_for_function("document.querySelector('#ds-prompt textarea').value == 'Say \"hi\"'")
    assert other.evaluate("location.hash") == ""


@pytest.mark.nightly
def test_a_damaged_link_is_refused_beside_the_controls(bare: Lab) -> None:
    page = bare.open("/#set=%7Bnonsense")
    page.wait_for_selector("#ds-models .room")  # the message about the settings that the page shows instead
    page.wait_for_selector("#ds-answer .ds-refusal >> text=cannot be read")
    assert page.locator("#ds-prompt textarea").input_value()


@pytest.mark.nightly
def test_a_model_that_does_not_fit_is_refused_with_its_sentence(bare: Lab) -> None:
    page = bare.open()
    option(page, "#ds-draft", re.compile("^other"))
    page.wait_for_selector(
        "#ds-answer .ds-refusal >> text=other cannot be the draft model of lab: their tokenizers differ"
    )
    assert bare.play.models.loaded_models() == {}


@pytest.mark.nightly
@pytest.mark.parametrize("width", first_of(390, 900, 1440))
def test_the_first_view_does_not_scroll_sideways(lab: Lab, width: int) -> None:
    page = lab.open(width=width)
    page.wait_for_selector(".ds .node:visible")
    assert page.locator(".ds .node:visible").first.bounding_box()["y"] < 800, (
        "the tree stands on the first screen"
    )
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")
    if width <= 1100:
        assert page.locator("#ds-prompt").is_hidden()
        page.get_by_role("button", name="Prompt and settings").click()
    page.click("#ds-copy-command")
    page.wait_for_selector("#ds-copied textarea")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")


@pytest.mark.nightly
def test_an_old_run_by_its_address_goes_before_the_example(lab: Lab) -> None:
    channel = lab.play.start(speculative(max_new=8))
    assert lab.play._jobs[channel.run].wait(300)
    page = lab.open(f"/#run={channel.run}")
    page.wait_for_selector(".ds .outcome >> text=as many tokens")
    assert page.evaluate("location.hash") == f"#run={channel.run}"


@pytest.mark.nightly
def test_two_methods_run_side_by_side_under_one_scrubber(lab: Lab) -> None:
    page = lab.open()
    option(page, "#ds-other", PRESETS["plain"].title)
    page.get_by_label("New tokens").fill("20")
    page.click("#ds-run")
    page.wait_for_function(f"{ENDS}.length == 2 && {ENDS}.every((x) => x.textContent.includes('as many'))")
    address = page.evaluate("location.hash")
    ids = [x.partition("=")[2] for x in address.removeprefix("#").split("&")]
    first, second = (lab.play.find(x) for x in ids)
    assert first is not None and second is not None
    assert (
        first.wire.header.seed == second.wire.header.seed
        and first.wire.header.method != second.wire.header.method
    )
    written = [0]
    for step in first.steps(0, first.count):
        written.append(written[-1] + len(step.emitted))
    slider = page.locator(".ds-places input[type=range]")
    assert slider.count() == 1
    slider.fill(str(written[3]))
    page.wait_for_function(f"String({TWO}) == '2,{written[3] - 1}'")  # plain decoding writes one token a step
    slider.fill("1")
    page.wait_for_function(f"String({TWO}) == '0,0'")
    # aligned by the clock, which the address keeps
    page.get_by_role("button", name="wall clock").click()
    page.wait_for_function(f"location.hash == {json.dumps(address + '&align=clock')}")
    page.reload()
    lab.ready(page)
    page.wait_for_function(f"{TWO}.length == 2 && {TWO}.every((x) => x > 0)")
    page.wait_for_selector(".ds-places button[aria-pressed=true] >> text=wall clock")
    # the next run has no comparison
    option(page, "#ds-other", "nothing")
    page.click("#ds-run")
    page.wait_for_function("document.querySelectorAll('.ds-places .ds').length == 1")
    assert "with=" not in page.evaluate("location.hash")


@pytest.mark.nightly
def test_a_method_that_cannot_be_compared_starts_nothing(lab: Lab) -> None:
    page = lab.open()
    before = len(lab.play._jobs)
    option(page, "#ds-other", PRESETS["h2o"].title)
    page.get_by_label("New tokens").fill("20")
    kept = lab.play.compose

    def refusing(choice: RunChoice) -> Composition:
        return replace(kept(choice), why="It does not fit." if choice.names.get("policy") == "h2o" else "")

    lab.play.compose = refusing  # type: ignore[method-assign]
    try:
        page.click("#ds-run")
        page.wait_for_selector("#ds-answer .ds-refusal >> text=The method to compare with: It does not fit.")
    finally:
        lab.play.compose = kept  # type: ignore[method-assign]
    assert len(lab.play._jobs) == before
