"""Chapter: a notebook as a page of a gallery. The gallery's own script draws the runs that its cells show."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from decodescope.lab.formatting.tokens import escape_html

VIEW = "application/vnd.jupyter.widget-view+json"
STATE = "application/vnd.jupyter.widget-state+json"
PLOT = "application/vnd.plotly.v1+json"
CLAIMS = "claims"  # the tag of cells that only check the prose
LIVE = (
    ("messages", "views", "step"),
    ("runs", "views", "align", "token"),
)  # messages that one run, and two, are drawn from
ELEMENTS = re.compile(r"<(style|script)\b.*?</\1\s*>", re.DOTALL | re.IGNORECASE)
FORMULA = re.compile(r"\$\$\s*(.+?)\s*\$\$", re.DOTALL)
HEADING = re.compile(r"^#\s+(.+)$", re.MULTILINE)
LOCAL = re.compile(r'<a href="(?!https?://|#)[^"]*"[^>]*>(.*?)</a>', re.DOTALL)


@dataclass(frozen=True)
class Chapter:
    """A notebook for a gallery. name: of its page;  body: its cells as HTML, with a place for each run, number i in live-i
    live: the messages that each of these runs is drawn from, as its widget kept them"""

    name: str
    title: str
    body: str
    live: list[dict[str, Any]]


def chapter(name: str, notebook: Any) -> Chapter:
    """The page of a notebook (nbformat 4), as it was run or saved; it is not changed.
    Script and style elements in its outputs are left out: a gallery's pages would not run them. A sentence names outputs
    that need a kernel."""
    from nbconvert import HTMLExporter

    book = copy.deepcopy(notebook)
    states = book.metadata.get("widgets", {}).get(STATE, {}).get("state", {})
    live: list[dict[str, Any]] = []
    book.cells = [cell for cell in book.cells if CLAIMS not in cell.metadata.get("tags", ())]
    for cell in book.cells:
        if cell.cell_type == "code":
            shown = (_render_output(output, states, live) for output in cell.outputs)
            cell.outputs = [output for output in shown if output is not None]
    book.metadata.pop("widgets", None)
    first = next((match for cell in book.cells if (match := HEADING.search(cell.source))), None)
    body, _ = HTMLExporter(template_name="basic", exclude_anchor_links=True).from_notebook_node(book)
    body = FORMULA.sub(r'<code class="formula">\1</code>', ELEMENTS.sub("", body))
    return Chapter(name, first[1] if first else name, LOCAL.sub(r"\1", body), live)


def _render_output(output: Any, states: Mapping[str, Any], live: list[dict[str, Any]]) -> Any:
    """An output for the page; None: it is left out."""
    data = output.get("data", {})
    if VIEW in data:
        state = states.get(data[VIEW].get("model_id"), {}).get("state", {})
        names = next((names for names in LIVE if state.get(names[0])), None)
        if names is not None:
            live.append({name: state.get(name) for name in names})
            return _html_output(output, f'<div class="live" id="live-{len(live) - 1}"></div>')
        if output.output_type != "execute_result":
            return None  # a progress bar, or the printed output of a control
        return _html_output(output, '<p class="quiet">A control, which can be moved in the notebook.</p>')
    if PLOT in data:
        return _html_output(output, _render_plot(data[PLOT]))
    return output


def _html_output(output: Any, text: str) -> Any:
    output["data"] = {"text/html": text}
    return output


def _render_plot(figure: Mapping[str, Any]) -> str:
    """A plotly figure as a table of its numbers: the pages do not include plotly's script."""
    layout = figure.get("layout", {})
    title = _title_text(layout.get("title")) or "Figure"
    rows = []
    for trace in figure.get("data", ()):
        x, y = (_axis_values(trace.get(axis)) for axis in "xy")
        rows += [(_title_text(trace.get("name")), a, b) for a, b in zip(x, y, strict=False)]
    head = (
        "",
        _title_text(layout.get("xaxis", {}).get("title")),
        _title_text(layout.get("yaxis", {}).get("title")),
    )
    cells = "".join("<tr>" + "".join(f"<td>{escape_html(x)}</td>" for x in row) + "</tr>" for row in rows)
    heads = "".join(f"<th>{escape_html(x)}</th>" for x in head)
    return f"<details><summary>{escape_html(title)}, as a table</summary><table><tr>{heads}</tr>{cells}</table></details>"


def _title_text(title: Any) -> str:
    return str(title.get("text") or "") if isinstance(title, Mapping) else str(title or "")


def _axis_values(values: Any) -> list[str]:
    """The values of an axis: a list, or packed as plotly packs arrays."""
    if isinstance(values, Mapping):
        import base64

        import numpy as np

        values = np.frombuffer(
            base64.b64decode(values.get("bdata", "")), dtype=values.get("dtype", "f8")
        ).tolist()
    return [f"{x:.4g}" if isinstance(x, float) else str(x) for x in values or ()]
