"""The library in a browser, by keyboard alone and by dropping files: a table in which nothing is lost by mistake."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import STEP, Lab, served
from sizes import first_of
from toylab import HOSTILE, finished, toy_play

from decodescope.app.http.guard import Guard
from decodescope.app.runs.catalogue.examples import examples, shipped_examples
from decodescope.app.server import build_app

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("tabs")]
PAGE = "#ds-page-library"
HERE = "document.activeElement.closest('tr')?.dataset.run"
DROP = """([name, text]) => {
  const data = new DataTransfer(), bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  data.items.add(new File([bytes], name));
  for (const kind of ["dragenter", "dragover", "drop"])
    document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


@pytest.fixture(scope="module")
def library(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, list[str]]]:
    """A lab with three runs, and their ids, the newest first."""
    play = toy_play(tmp_path_factory.mktemp("traces"))
    runs = [finished(play, prompt=prompt, max_new=12).run for prompt in ("abc", "bcd", "cde")]
    with served(lambda port: Guard(build_app(play), port)) as address:
        made = Lab(driver, address, play)
        yield made, runs[::-1]
        play.close()
    assert not made.troubles, made.troubles


def opened(lab: Lab, **more: Any) -> Any:
    """The page, after its rows have been read."""
    page = lab.open("/#library", ready=False, **more)
    page.wait_for_selector(f"{PAGE} tbody tr:visible")
    return page


def rows(page: Any) -> list[str]:
    """The runs that are listed."""
    return list(page.locator(f"{PAGE} tbody tr").evaluate_all("all => all.map((x) => x.dataset.run)"))


def told(page: Any, text: str) -> None:
    """Wait for a sentence."""
    page.wait_for_function(
        f"document.querySelector('{PAGE} .told')?.textContent.includes({json.dumps(text)})"
    )


@pytest.mark.nightly
def test_the_list_is_a_table_with_heads_and_the_size_is_said(library: tuple[Lab, list[str]]) -> None:
    lab, runs = library
    page = opened(lab)
    assert rows(page) == runs
    table = page.get_by_role("table", name="Traces on this machine")
    heads = table.get_by_role("columnheader").all_inner_texts()
    assert {"name", "method", "steps", "size"} <= set(heads) and all(heads), "each column has a name"
    assert table.get_by_role("rowheader").count() == 3
    assert "3 on this machine" in page.inner_text(f"{PAGE} .count") and "KiB" in page.inner_text(
        f"{PAGE} .count"
    )
    assert page.locator(f"{PAGE} .card").count() == len(examples())
    ways = page.locator(f"{PAGE} .examples .ways").all_inner_texts()
    assert {x.split("\n")[-1] for x in ways} == {"Compare"} and "Compare" in ways, (
        "one without a tour has one button"
    )


@pytest.mark.nightly
def test_words_of_name_text_method_and_model_filter_the_list(library: tuple[Lab, list[str]]) -> None:
    lab, runs = library
    page = opened(lab)
    for words, found in [
        ("toy draft", runs),
        (runs[1][:8], [runs[1]]),
        ("nothing like it", []),
        ("draft_model", runs),
    ]:
        page.fill(f"{PAGE} input[type=search]", words)
        page.wait_for_function(f"document.querySelectorAll('{PAGE} tbody tr').length == {len(found)}")
        assert rows(page) == found
    page.fill(f"{PAGE} input[type=search]", "nothing like it")
    page.wait_for_selector(f"{PAGE} .none >> text=No trace holds these words.")


def test_by_keyboard_alone_a_trace_is_named_starred_deleted_and_brought_back(
    library: tuple[Lab, list[str]],
) -> None:
    lab, runs = library
    page = opened(lab)
    press = page.keyboard.press
    page.focus(f"{PAGE} [data-run='{runs[0]}'] .open")
    press("ArrowDown")
    assert page.evaluate(HERE) == runs[1]
    press("F2")
    page.keyboard.type("the second")
    press("Enter")
    told(page, "the second")
    assert (
        page.evaluate(HERE) == runs[1] and page.evaluate("document.activeElement.textContent") == "the second"
    )
    press("Shift+Tab")
    press("Enter")
    page.wait_for_selector(f"{PAGE} [data-run='{runs[1]}'] .star [aria-pressed=true]")
    page.wait_for_function(f"{HERE} == '{runs[1]}'")
    press("Tab")
    press("Delete")
    told(page, "the second was deleted")
    assert rows(page) == [runs[0], runs[2]] and page.evaluate(HERE) == runs[2], "the next row has the focus"
    page.focus(f"{PAGE} .told button")
    press("Enter")
    told(page, "the second is back")
    assert rows(page) == runs and page.evaluate(HERE) == runs[1]
    assert page.locator(f"{PAGE} [data-run='{runs[1]}'] .star [aria-pressed=true]").count() == 1
    # the menu: open, walk, leave
    press("Tab")
    press("Tab")
    press("Enter")
    page.wait_for_selector(f"{PAGE} [data-run='{runs[1]}'] details[open]")
    press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Rename"
    press("Escape")
    assert (
        page.locator(f"{PAGE} details[open]").count() == 0
        and page.evaluate("document.activeElement.tagName") == "SUMMARY"
    )
    page.focus(f"{PAGE} [data-run='{runs[1]}'] .open")
    press("Enter")
    page.wait_for_function(f"location.hash == '#run={runs[1]}' && {STEP} >= 0")
    assert page.evaluate("!!document.activeElement.closest('.ds-places')"), (
        "the focus is in the picture that was opened"
    )


@pytest.mark.nightly
def test_escape_leaves_a_name_as_it_was(library: tuple[Lab, list[str]]) -> None:
    lab, runs = library
    page = opened(lab)
    before = page.inner_text(f"{PAGE} [data-run='{runs[0]}'] .open")
    page.focus(f"{PAGE} [data-run='{runs[0]}'] .open")
    page.keyboard.press("F2")
    page.keyboard.type("no")
    page.keyboard.press("Escape")
    assert (
        page.inner_text(f"{PAGE} [data-run='{runs[0]}'] .open") == before and page.evaluate(HERE) == runs[0]
    )


@pytest.mark.nightly
def test_two_to_four_traces_and_examples_are_compared(library: tuple[Lab, list[str]]) -> None:
    lab, runs = library
    page = opened(lab)
    pressed = "all => all.filter((x) => x.getAttribute('aria-pressed') === 'true').map((x) => x.textContent)"
    page.click(f"{PAGE} tr[data-run='{runs[2]}'] .compare")
    told(page, "with: press Compare at another")
    page.click(f"{PAGE} tr[data-run='{runs[0]}'] .compare")
    told(page, "A: ")
    page.click(f"{PAGE} >> text=Compare 2 runs")
    page.wait_for_function(f"/^#compare&.*runs={runs[2]},{runs[0]}/.test(location.hash)")
    page.wait_for_function("document.querySelectorAll('#ds-page-compare .outcome').length == 2")
    # up to four runs, examples included; a fifth is refused, and a run can be removed again
    page.click("#ds-tab-library")
    first, second = (x.run for x in shipped_examples()[:2])
    ids = [first, runs[1], second, runs[0]]
    for run in [*ids, runs[2]]:
        page.click(f"{PAGE} [data-run='{run}'] .compare")
    told(page, "At most 4 runs")
    assert sorted(page.locator(f"{PAGE} .compare").evaluate_all(pressed)) == list("ABCD")
    page.click(f"{PAGE} [data-run='{runs[1]}'] .compare")
    assert page.evaluate("document.activeElement.textContent") == "Compare", "the focus stays where it was"
    page.click(f"{PAGE} >> text=Compare 3 runs")
    page.wait_for_function(f"/^#compare&.*runs={first},{second},{runs[0]}/.test(location.hash)")
    page.wait_for_function("document.querySelectorAll('#ds-page-compare .ds.pair .run .letter').length == 3")


def test_a_dropped_trace_is_added_and_a_hostile_one_is_refused(
    library: tuple[Lab, list[str]], tmp_path: Path
) -> None:
    lab, runs = library
    other = toy_play(tmp_path, HOSTILE)
    channel = finished(other, max_new=60)
    data = channel.path.read_bytes()
    other.close()
    page = opened(lab)
    page.evaluate(DROP, ["<img src=x onerror=window.trap=1>.dstrace", base64.b64encode(data[:200]).decode()])
    page.wait_for_selector(f"{PAGE} .told.ds-refusal >> text=was not taken")
    assert rows(page) == runs and "Traceback" not in page.inner_text(PAGE)
    page.evaluate(DROP, ["other.dstrace", base64.b64encode(data).decode()])
    told(page, "other.dstrace was added.")
    assert rows(page) == [channel.run, *runs]
    assert page.evaluate("document.activeElement.textContent") == "Open"
    page.fill(f"{PAGE} input[type=search]", "window.trap")
    page.wait_for_function(f"document.querySelectorAll('{PAGE} tbody tr').length == 1")
    page.fill(f"{PAGE} input[type=search]", "")
    # the name is text, too
    page.focus(f"{PAGE} [data-run='{channel.run}'] .open")
    page.keyboard.press("F2")
    page.keyboard.type("<img src=x onerror=window.trap=1>")
    page.keyboard.press("Enter")
    told(page, "onerror")
    assert page.evaluate("window.trap") is None and page.locator(f"{PAGE} img").count() == 0
    page.focus(f"{PAGE} [data-run='{channel.run}'] .open")
    page.keyboard.press("Delete")
    told(page, "was deleted")


@pytest.mark.nightly
def test_a_chosen_file_is_added_like_a_dropped_one(library: tuple[Lab, list[str]], tmp_path: Path) -> None:
    lab, _ = library
    example = shipped_examples()[0]
    copy = tmp_path / "copy.dstrace"
    shutil.copy(example.path, copy)
    page = opened(lab)
    page.set_input_files(f"{PAGE} input[type=file]", str(copy))
    told(page, "copy.dstrace is here already.")
    page.click(f"{PAGE} .told >> text=Open")
    page.wait_for_function(
        f"location.hash == '#run={example.run}' && document.documentElement.dataset.dsTab == 'lab'"
    )


@pytest.mark.nightly
def test_a_trace_is_saved_in_three_forms(library: tuple[Lab, list[str]]) -> None:
    lab, runs = library
    page = opened(lab)
    for word, ending in [
        ("trace", ".dstrace"),
        ("HTML page", ".html"),
        ("Perfetto events", ".perfetto.json"),
    ]:
        page.click(f"{PAGE} [data-run='{runs[0]}'] summary")
        with page.expect_download() as got:
            page.get_by_role("link", name=word, exact=True).locator("visible=true").click()
        assert got.value.suggested_filename.endswith(ending) and Path(got.value.path()).stat().st_size > 500
        page.keyboard.press("Escape")
        if page.locator(f"{PAGE} details[open]").count():
            page.click(f"{PAGE} .count")


@pytest.mark.parametrize("height", first_of(320, 700))
@pytest.mark.nightly
def test_the_menu_of_the_last_row_can_be_reached_whole(library: tuple[Lab, list[str]], height: int) -> None:
    lab, runs = library
    page = opened(lab, width=1920, height=height)
    page.locator(f"{PAGE} [data-run='{runs[-1]}'] summary").scroll_into_view_if_needed()
    page.click(f"{PAGE} [data-run='{runs[-1]}'] summary")
    last = page.locator(f"{PAGE} [data-run='{runs[-1]}'] details a").last
    box = last.bounding_box()
    assert height < 500 or 0 <= box["y"] < box["y"] + box["height"] <= height, (
        "it opens to the side that has room"
    )
    page.mouse.wheel(0, 4000)
    page.wait_for_function("scrollY + innerHeight > document.documentElement.scrollHeight - 2")
    box = last.bounding_box()
    assert box["y"] + box["height"] <= height, "the page reaches down to its end"


@pytest.mark.nightly
@pytest.mark.parametrize("width", first_of(390, 900))
def test_on_a_narrow_page_every_row_keeps_its_controls(library: tuple[Lab, list[str]], width: int) -> None:
    lab, runs = library
    page = opened(lab, width=width)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")
    for part in (".star button", ".open", ".compare", ".acts summary"):
        box = page.locator(f"{PAGE} [data-run='{runs[0]}'] {part}").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["height"] >= 24
    page.click(f"{PAGE} [data-run='{runs[0]}'] summary")
    menu = page.locator(f"{PAGE} [data-run='{runs[0]}'] details > div").bounding_box()
    assert menu["x"] >= 0 and menu["x"] + menu["width"] <= width
