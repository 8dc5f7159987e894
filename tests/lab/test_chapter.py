"""A notebook as a page: its runs are drawn from the state that their widgets kept, and nothing else of it is executed."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from sizes import first_of

from decodescope.lab.figures.chart import chart
from decodescope.lab.views.chapter import CLAIMS, PLOT, STATE, VIEW, Chapter, chapter
from decodescope.lab.views.gallery import gallery
from decodescope.lab.wire.messages import messages

from .runs import known
from .test_gallery import Page, entry


def out(data: dict[str, Any], kind: str = "execute_result") -> Any:
    return new_output(kind, data=data)


def book() -> Any:
    """An executed notebook: prose, a table, a run, two runs, a control, a figure, and a cell that only checks."""
    import plotly.graph_objects as go

    told = list(messages(known("tree")))
    states = {
        "one": {"state": {"messages": told, "views": ["tree", "card"], "step": 1}},
        "two": {"state": {"runs": [told, told], "views": ["tree", "text"], "align": "token", "token": 2}},
        "slider": {"state": {"value": 3}},
    }
    html = "<style scoped>td { color: red }</style><script>window.trap=1</script><table><tr><td>cell</td></tr></table>"
    figure = chart(
        "Passes", "tokens", "ms", go.Scatter(x=[1, 2], y=[3.5, 4.25], name="here")
    ).to_plotly_json()
    shown = [out({VIEW: {"model_id": x}, "text/plain": x}) for x in ("one", "two", "slider")]
    prose = "# A title\n\nProse, see [the next](04_copying.ipynb) and [a paper](https://arxiv.org/abs/1).\n\n$$ a_b < c $$"
    cells = [
        new_markdown_cell(prose),
        new_code_cell(
            "table", outputs=[out({"text/html": html}), out({VIEW: {"model_id": "bar"}}, "display_data")]
        ),
        *(new_code_cell(f"show_{i}", outputs=[x]) for i, x in enumerate(shown)),
        new_code_cell("figure", outputs=[out({PLOT: figure}, "display_data")]),
        new_code_cell("assert claims_hold", metadata={"tags": [CLAIMS]}),
    ]
    return nbformat.from_dict(new_notebook(cells=cells, metadata={"widgets": {STATE: {"state": states}}}))


@pytest.fixture(scope="module")
def made() -> Chapter:
    return chapter("a-title", book())


def test_a_notebook_s_cells_stand_on_its_page(made: Chapter) -> None:
    assert (
        made.title == "A title" and "Prose" in made.body and ">cell<" in made.body and "show_0" in made.body
    )
    assert '<code class="formula">a_b &lt; c</code>' in made.body
    assert "claims_hold" not in made.body, "what only checks the prose"
    assert (
        "4.25" in made.body
        and "Passes, as a table" in made.body
        and "can be moved in the notebook" in made.body
    )


def test_its_runs_have_their_places_and_what_they_are_drawn_from(made: Chapter) -> None:
    assert [sorted(x) for x in made.live] == [
        ["messages", "step", "views"],
        ["align", "runs", "token", "views"],
    ]
    assert [f'id="live-{i}"' in made.body for i in range(3)] == [True, True, False]


def test_nothing_of_its_outputs_runs_and_links_lead_out_of_the_folder_only_by_name(made: Chapter) -> None:
    tags = Page(made.body).tags
    assert not {tag for tag, _ in tags} & {"script", "style", "iframe"}
    assert [a["href"] for tag, a in tags if tag == "a"] == ["https://arxiv.org/abs/1"]


def test_a_notebook_is_not_changed() -> None:
    one = book()
    before = copy.deepcopy(one)
    chapter("x", one)
    assert one == before


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
@pytest.mark.parametrize("width", first_of(390, 1440))
def test_runs_are_drawn_where_the_cells_showed_them(
    driver: Any, made: Chapter, width: int, tmp_path: Path
) -> None:
    gallery([entry(known("tree"))], tmp_path, course=[made])
    page = driver.new_page(viewport={"width": width, "height": 900}, color_scheme="dark")
    troubles: list[str] = []
    page.on("console", lambda x: troubles.append(x.text))
    page.on("pageerror", lambda x: troubles.append(str(x)))
    page.goto((tmp_path / "index.html").as_uri())
    page.click(".course a")
    page.locator("#live-0").scroll_into_view_if_needed()
    page.wait_for_selector("#live-0 .ds[data-theme=dark] h1:text-is('Step 1')")
    page.locator("#live-1").scroll_into_view_if_needed()
    page.wait_for_function("document.querySelectorAll('#live-1 .tree').length === 2")
    page.click("#theme")
    page.wait_for_selector("#live-1 .ds[data-theme=light]")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not troubles and page.evaluate("window.trap") is None, troubles
    page.close()
