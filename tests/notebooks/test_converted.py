"""A notebook as HTML, by nbconvert: its frozen picture is drawn, moves by its slider, and requests nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook, new_output

from decodescope.lab import show

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("drawn")]
SLIDER = ".ds .scrub"


def converted() -> str:
    """A notebook of one cell with a frozen scope as its output, as a kernel leaves it, in the form that `nbconvert` writes."""
    data = {"text/html": show("first-rejection", 2).freeze()._repr_html_(), "text/plain": "a frozen scope"}
    output = new_output("execute_result", data=data, execution_count=1)
    cell = new_code_cell("show('first-rejection', 2).freeze()", outputs=[output], execution_count=1)
    text, _ = HTMLExporter().from_notebook_node(new_notebook(cells=[cell]))
    return str(text)


def test_a_frozen_scope_lives_on_in_a_converted_notebook(driver: Any, tmp_path: Path) -> None:
    file = tmp_path / "notebook.html"
    file.write_text(converted(), encoding="utf-8")
    page = driver.new_page(viewport={"width": 1280, "height": 900})
    asked: list[Any] = []
    page.on("request", lambda request: asked.append((request.url, request.frame)))
    # nbconvert's own page refers to three scripts
    page.route(lambda url: url.startswith("http"), lambda route: route.abort())
    page.goto(file.as_uri(), wait_until="domcontentloaded")
    frame = page.frame_locator("iframe[title='decoding run']")
    frame.locator(".ds .tree").wait_for()
    assert frame.locator(SLIDER).input_value() == "2" and "Step 2" in frame.locator(".ds h1").inner_text()
    before = frame.locator(".ds .tree").inner_html()
    frame.locator(SLIDER).focus()
    page.keyboard.press("ArrowRight")
    frame.locator(".ds h1 >> text=/^Step 3/").wait_for()
    assert frame.locator(".ds .tree").inner_html() != before
    inside = [
        url for url, of in asked if of != page.main_frame and not url.startswith(("data:", "blob:", "about:"))
    ]
    assert not inside, inside
    page.close()
