"""Knobs on the page: lists, texts and files are entered, checked while they are typed, run, copied, and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
import toys
from browser import KEPT, Lab, option
from fastapi.testclient import TestClient
from waiting import eventually

from decodescope.app.basis.parser import build_parser
from decodescope.app.commands.shared.run import build_method
from decodescope.app.http.guard import Guard
from decodescope.app.page import controls
from decodescope.app.runs.catalogue import knobs
from decodescope.app.runs.catalogue.presets import PRESETS
from decodescope.app.runs.recipe import as_json, choice_from_header, from_json
from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.app.server import build_app
from decodescope.engine import Method
from decodescope.engine.core import files
from decodescope.engine.core.component import registry
from decodescope.engine.trace import read_header

REFUSED = "#ds-answer .ds-refusal"
ANSWERS = """() => {
  const hand = window.decodescope;
  window.answers = 0;
  window.decodescope = (use) => hand((page) => (use(page), (window.answers += String(use).includes('page.followRun'))));
}"""  # count the answers of Run
NAMES = {"RSD-C (constant branching)": "rsd_c", "Inference with reference (LLMA)": "llma", "REST": "rest"}


def test_what_is_declared_is_what_a_record_holds() -> None:
    """A list or a text may be as long as a record allows. No box cuts off the input: the check reports what is too long."""
    with gr.Blocks():
        table = controls.build(draft=True)
    told = json.loads(knobs.knob_declarations().text)
    assert {*told} == {*table.knobs} == {kind for kind, shelf in table.begins.items() if shelf}
    for kind, parts in told.items():
        assert {*parts} == {*table.begins[kind]}
        for name, part in parts.items():
            params = registry(kind)[name].params()
            assert [x["name"] for x in part["knobs"]] == [x.name for x in params]
            assert {x["name"]: x["value"] for x in part["knobs"]} == table.begins[kind][name]
            assert [(x.get("low"), x.get("high")) for x in part["knobs"]] == [
                (x.low, x.high) for x in params
            ], "0 is a bound"
    assert table.begins["drafter"]["rsd_c"]["branching"] == "3,2,1,1"


def test_a_number_that_may_be_auto_is_declared_so_and_goes_into_a_recipe_and_a_command() -> None:
    told = json.loads(knobs.knob_declarations().text)["schedule"]["specdec_pp"]["knobs"]
    assert [(x["name"], x["value"], x.get("auto", False)) for x in told] == [
        ("threshold", "auto", True),
        ("max_draft_tokens", 20, False),
    ]
    names = {"drafter": "draft_model", "schedule": "specdec_pp"}
    for typed, value in (("auto", "auto"), ("0.9", 0.9), (0.9, 0.9)):
        choice = RunChoice("x", names, {"schedule": {"threshold": typed}})
        again = from_json(as_json(choice))
        assert Method.from_names(again.names, again.settings).schedule.record() == {
            "name": "specdec_pp",
            "threshold": value,
            "max_draft_tokens": 20,
        }
        words = [
            "run",
            "--model",
            "lab",
            "--prompt",
            "x",
            "--drafter",
            "draft_model",
            "--schedule",
            "specdec_pp",
        ]
        made = build_method(build_parser().parse_args([*words, "--set", f"schedule.threshold={typed}"]))
        assert made.schedule.record()["threshold"] == value


def test_the_page_holds_no_declaration_and_asks_for_all_of_them_once(play: RunService) -> None:
    with TestClient(Guard(build_app(play), 7860), base_url="http://127.0.0.1:7860") as client:
        page, told = client.get("/"), client.get("/ds/knobs.json", headers={"accept-encoding": "identity"})
        helps = [x["help"] for part in told.json()["drafter"].values() for x in part["knobs"] if "help" in x]
        assert len(helps) > 60 and not [x for x in helps if len(x) > 30 and x in page.text]
        assert len(page.content) < 160_000, "the declarations alone were 187,000 bytes of it"
        packed = client.get("/ds/knobs.json", headers={"accept-encoding": "gzip, br"})
        assert packed.headers["content-encoding"] == "gzip" and packed.json() == told.json()
        assert int(packed.headers["content-length"]) < 20_000 < len(told.content)
        mark = told.headers["etag"]
        assert told.headers["cache-control"] == "no-cache" and packed.headers["etag"] == mark
        again = client.get("/ds/knobs.json", headers={"if-none-match": mark})
        assert again.status_code == 304 and not again.content and again.headers["etag"] == mark
        assert client.get("/ds/knobs.json", headers={"if-none-match": 'W/"0"'}).status_code == 200


def test_values_that_no_panel_holds_are_those_that_it_began_with() -> None:
    with gr.Blocks():
        table = controls.build(draft=True)
    values = [part.value for part in table.parts.values()]
    for odd in ({}, None, [], "x", {"draft_model": 3}, {"draft_model": {"nothing": 1}}):
        _, settings = table.read([*values, *(odd for _ in table.knobs)])
        assert settings["drafter"] == PRESETS[controls.FIRST].settings["drafter"] | settings["drafter"]
    _, settings = table.read([*values, *({"draft_model": {"max_draft_tokens": None}} for _ in table.knobs)])
    assert settings["drafter"]["max_draft_tokens"] is None, (
        "an emptied box is refused by the check, not filled"
    )


def drafter(page: Any, title: str) -> Any:
    """Choose a drafter; return the place of its knobs."""
    option(page, "#ds-drafter", title)
    page.wait_for_function(f"(name) => {KEPT}.names?.drafter === name", arg=NAMES[title])
    return page.locator(".ds-knobs:visible").first


def ran(lab: Lab, page: Any) -> Any:
    """Run the entered settings to the end; return the header of the trace."""
    before = set(lab.play._jobs)
    page.click("#ds-run")
    eventually(lambda: set(lab.play._jobs) > before)
    (run,) = set(lab.play._jobs) - before
    assert lab.play._jobs[run].wait(300)
    return read_header(lab.play.folder / f"{run}.dstrace")


def copied(page: Any, which: str = "") -> str:
    """The shown run as a command, or with "next-" the settings of the controls."""
    page.click(f"#ds-copy-{which}command >> visible=true")
    page.wait_for_selector("#ds-copied textarea")
    return str(page.locator("#ds-copied textarea").input_value())


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.nightly
def test_a_list_is_checked_as_it_is_written_run_and_copied(lab: Lab) -> None:
    page = lab.open()
    box = drafter(page, "RSD-C (constant branching)").get_by_label("branching")
    assert box.input_value() == "3,2,1,1"
    for text, sentence in (
        ("3,0,1", "rsd_c.branching, item 2 = 0: must lie in [1, 128] children."),
        ("3,x", "rsd_c.branching, item 2 = 'x': must be a whole number."),
        ("", "rsd_c.branching = '' has 0 items: must have 1 to 128, such as 3,2,1,1."),
        ("8,8,8", "rsd_c.branching = '8,8,8' makes 584 nodes; 128 are the limit, e.g. 3,2,1 makes 15."),
    ):
        box.fill(text)
        page.wait_for_function(
            "([at, said]) => document.querySelector(at)?.textContent === said", arg=[REFUSED, sentence]
        )
    runs = set(lab.play._jobs)
    page.evaluate(ANSWERS)
    page.click("#ds-run")
    # a late answer of Run would replace the answer of the check
    page.wait_for_function("() => window.answers > 0")
    assert page.locator(REFUSED).inner_text() == sentence
    box.fill("2 1")
    page.wait_for_function("() => !document.querySelector('#ds-answer .ds-refusal')")
    assert set(lab.play._jobs) == runs, "Run was refused"
    header = ran(lab, page)
    assert header.method["drafter"]["branching"] == "2,1"
    assert "--set drafter.branching=2,1 " in copied(page)
    page.close()


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_a_file_is_brought_refused_run_kept_and_taken_away(lab: Lab, tmp_path: Path) -> None:
    page = lab.open()
    knobs = drafter(page, "REST")
    assert (
        knobs.locator(".name").inner_text() == "No file chosen"
        and not knobs.get_by_text("Remove").is_visible()
    )
    odd, good = tmp_path / "odd.bin", tmp_path / "notes.txt"
    odd.write_bytes(b"ab\xff")
    good.write_bytes(Path(toys.DATASTORE).read_bytes())
    knobs.locator("input[type=file]").set_input_files(str(odd))
    said = knobs.locator(".ds-refusal")
    said.wait_for()
    assert said.inner_text() == (
        "rest.datastore: the file 'odd.bin' is not UTF-8 text (byte 2): save it as UTF-8, or choose a text file."
    )
    knobs.locator("input[type=file]").set_input_files(str(good))
    knobs.locator(".name", has_text="notes.txt").wait_for()
    assert not said.is_visible()
    value = files.file_mark(str(good), 1 << 24)
    page.wait_for_function(f"(value) => {KEPT}.settings.drafter.datastore === value", arg=value)
    knobs.get_by_label("min suffix").first.fill("1")
    header = ran(lab, page)
    assert (
        header.method["drafter"]["datastore"] == value
        and choice_from_header(header).settings["drafter"]["datastore"] == value
    )
    assert f"--set drafter.datastore={value} " in copied(page)
    page.reload()
    knobs = page.locator(".ds-knobs:visible").first
    knobs.locator(".name", has_text="notes.txt").wait_for()
    (lab.play.files.folder / str(files.hash_of(value))).unlink()
    knobs.get_by_label("min suffix").first.fill("2")
    page.wait_for_selector(f"{REFUSED} >> text=this file is not here; upload it again")
    knobs.get_by_text("Remove").click()
    knobs.locator(".name", has_text="No file chosen").wait_for()
    page.wait_for_function(
        f"() => {KEPT}.settings.drafter.datastore === '' && !document.querySelector('{REFUSED}')"
    )
    page.close()


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.nightly
def test_a_text_of_several_lines_is_written_and_comes_back(lab: Lab) -> None:
    page = lab.open()
    box = drafter(page, "Inference with reference (LLMA)").locator("textarea")
    box.fill("one,\n two")
    page.wait_for_function(f"() => {KEPT}.settings.drafter.reference === 'one,\\n two'")
    assert "'drafter.reference=one,\n two'" in copied(page, "next-")
    page.reload()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.ds-knobs textarea')].some((x) => x.value === 'one,\\n two')"
    )
    box = page.locator(".ds-knobs:visible textarea").first
    box.evaluate(
        "(box) => { box.value = 'a'.repeat(262145); box.dispatchEvent(new Event('input', { bubbles: true })); }"
    )
    page.wait_for_selector(
        f"{REFUSED} >> text=llma.reference has 262,145 characters, above the limit of 262,144; shorten it."
    )
    page.close()


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.nightly
def test_until_the_knobs_are_declared_their_panel_says_so_and_keeps_what_is_set(lab: Lab) -> None:
    page, held = lab.open("/", ready=False), []

    def hold(route: Any) -> None:
        held.append(route)

    page.route("**/ds/knobs.json", hold)
    page.reload()
    said = page.locator("#ds-drafter-knobs [role=status]")
    said.wait_for()
    assert (
        said.inner_text() == "Reading the settings…"
        and page.locator("#ds-kv_compression-knobs [role=status]").count() == 0
    )
    option(page, "#ds-drafter", "RSD-C (constant branching)")
    page.wait_for_function(f"{KEPT}.names?.drafter === 'rsd_c'")
    assert len(held) == 1, "one question for all panels"
    held[0].fulfill(status=503, body="{}")  # as from a server that is still starting: the page asks again
    page.unroute("**/ds/knobs.json")
    page.locator("#ds-drafter-knobs").get_by_label("branching").wait_for()
    assert page.locator("[role=status] >> text=Reading the settings").count() == 0
    page.close()
