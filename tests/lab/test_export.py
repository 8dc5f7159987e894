"""The exported file: one file, data that cannot leave its element, and a browser that replays it offline."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from toylab import HOSTILE

from decodescope.lab import export_html, show
from decodescope.lab.views.export import POLICY

from .elements import Page
from .runs import known, run


def data(page: str) -> dict:
    """The data that the file replays."""
    return json.loads(Page(page).scripts[0])


def test_one_file_asks_for_nothing_else() -> None:
    page = Page(export_html(known("chain")))
    assert not [a for _, attrs in page.tags for a in ("src", "href", "action", "data") if a in attrs]
    assert [a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"] == [
        POLICY
    ]
    assert len(page.scripts) == 2


def test_hostile_tokens_cannot_leave_the_data() -> None:
    trace = run("chain", hostile=True, count=60)
    text = export_html(trace)
    made, plain = Page(text), Page(export_html(known("chain")))
    assert {tag for tag, _ in made.tags} == {tag for tag, _ in plain.tags}
    assert not set(made.scripts[0]) & set("<>&\u2028\u2029")
    texts = {row[1] for m in data(text)["messages"] if m["kind"] == "step" for row in m["nodes"] if row}
    assert len(texts & set(HOSTILE)) > 5, "the texts are there as they were"


def test_names_of_places_in_a_token_are_not_filled_in() -> None:
    trace = run("chain", hostile=True, count=20)
    trace.header.pieces = dict.fromkeys(trace.header.pieces, "@@MODULE@@@@DATA@@")
    assert export_html(trace).count("function mount(") == 1


def test_the_run_card_names_what_is_needed_to_repeat_it() -> None:
    trace = known("chain")
    page = export_html(trace)
    assert trace.end is not None
    for told in (
        trace.end.content_hash,
        trace.header.model["fingerprint"],
        trace.header.torch,
        "draft_model max_draft_tokens=3",
        "seed",
    ):
        assert told in page
    rows = re.search(r"<noscript>(.*)</noscript>", page, re.DOTALL)
    assert rows and rows[1].count("<tr>") == len(trace.steps) + 1


def test_a_range_keeps_the_text_before_it_and_nothing_behind_it() -> None:
    steps = [m for m in data(export_html(known("chain"), first=3, last=6))["messages"] if m["kind"] == "step"]
    assert [m["i"] for m in steps] == list(range(7))
    assert ["nodes" in m for m in steps] == [False] * 3 + [True] * 4


def test_without_text_no_piece_is_in_the_file() -> None:
    trace = run("chain", hostile=True, count=40)
    page = export_html(trace, text=False)
    assert "trap" not in page
    rows = [row for m in data(page)["messages"] if m["kind"] == "step" for row in m["nodes"] if row]
    assert all(re.fullmatch(r"<#\d+>", row[1]) for row in rows)


def test_300_steps_stay_small() -> None:
    trace = run("chain", count=400)
    assert len(trace.steps) > 100
    assert len(export_html(trace)) / len(trace.steps) < 5000


def test_a_frozen_scope_is_a_frame_that_reaches_nothing() -> None:
    frame = Page(show(known("chain"), 2).freeze()._repr_html_())
    assert [tag for tag, _ in frame.tags] == ["iframe"]
    attrs = frame.tags[0][1]
    assert attrs["sandbox"] == "allow-scripts" and "src" not in attrs
    assert data(attrs["srcdoc"] or "")["step"] == 2


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
@pytest.mark.parametrize("hostile", [False, True], ids=["plain", "hostile"])
def test_the_file_replays_from_disk_with_the_network_unplugged(
    driver: Any, hostile: bool, tmp_path: Path
) -> None:
    trace = run("chain", hostile=hostile, count=40)
    path = tmp_path / "run.html"
    export_html(trace, path)
    (tmp_path / "frozen.html").write_text(show(trace, 1).freeze()._repr_html_(), encoding="utf-8")
    for name, step in (("run.html", 0), ("frozen.html", 1)):
        context = driver.new_context(offline=True)
        page = context.new_page()
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message, said=said: said.append(message.text))
        page.on("pageerror", lambda error, said=said: said.append(str(error)))
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.goto((tmp_path / name).as_uri())
        frame = page.main_frame if name == "run.html" else page.frames[1]
        frame.locator(".ds h1", has_text=re.compile(f"^Step {step}$")).wait_for()
        last = len(trace.steps) - 1
        frame.locator(".scrub").evaluate(
            "(e, i) => { e.value = i; e.dispatchEvent(new Event('input')) }", last
        )
        frame.locator(".ds h1", has_text=re.compile(f"^Step {last}$")).wait_for()
        frame.locator(".ds").press("Home")
        frame.locator(".ds h1", has_text=re.compile("^Step 0$")).wait_for()
        assert frame.locator(".tree .node").count() > 1
        assert frame.evaluate("window.trap") is None and not said, said
        assert all(url.startswith(("file:", "blob:", "about:")) for url in asked), asked
        context.close()


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_without_script_the_steps_stand_in_a_table(driver: Any, tmp_path: Path) -> None:
    export_html(known("chain"), tmp_path / "run.html")
    page = driver.new_context(java_script_enabled=False).new_page()
    page.goto((tmp_path / "run.html").as_uri())
    assert page.locator("noscript tr").count() == len(known("chain").steps) + 1
