"""Matrix: what a step compared with each other, by row and column, as its declaration describes it.

No strategy is known here by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from decodescope.engine.trace import Trace, TraceError
from decodescope.engine.trace.detail_checks.details import find_tally, matrix_reading
from decodescope.engine.trace.details.declarations import DetailColumn
from decodescope.engine.trace.details.matrix import MatrixReading
from decodescope.engine.trace.details.tally import TallyReading
from decodescope.engine.trace.records.events import Step
from decodescope.engine.trace.records.pieces import join, visible_piece
from decodescope.engine.trace.values.formula import sentence
from decodescope.lab.formatting.tokens import visible_token
from decodescope.lab.wire.survey import row_order

from .chart import ACCEPT, REJECT, chart, escape_label

CELL = 15  # px of a row
ROW = 24  # px of a row with a text
TEXT = 32  # characters of such a text that are shown
NAMED = 120  # rows up to which each has its label at the side
LOOKS = {"accept": (ACCEPT, "star"), "reject": (REJECT, "circle-open")}  # of marks


def figure(trace: Trace, step: int | None = None) -> go.Figure:
    """The numbers of a matrix with its marks. step: None, the first that keeps one.
    If its rows are those of a tally, these are at the left with their numbers, in the declared order. Raises TraceError for
    a step that the trace does not have, ValueError if none keeps one."""
    if step is not None and not 0 <= step < len(trace.steps):
        raise TraceError(f"There is no step {step}: the trace has {len(trace.steps)}, counted from 0.")
    steps = trace.steps if step is None else [trace.steps[step]]
    first = next(((one, read) for one in steps for read in _step_matrices(trace, one)), None)
    if first is None:
        where = "No step of this run keeps a matrix" if step is None else f"Step {step} keeps no matrix"
        raise ValueError(f"{where}: take a run whose strategy holds texts or spans against each other.")
    own, read = first
    if read.form.rows_of:
        tally = find_tally(trace.header, own, read.form.rows_of, lambda ids: join(ids, trace.pieces))
        assert tally is not None  # a matrix without its tally is not read
        return _heatmap_with_tally(trace, read, tally)
    return _heatmap(trace, read)


def _step_matrices(trace: Trace, step: Step) -> list[MatrixReading]:
    """The matrices of a step that have numbers."""
    every = (matrix_reading(trace.header, step, x) for x in step.details or ())
    return [read for read in every if read is not None and read.detail.numbers is not None]


def _heatmap(trace: Trace, read: MatrixReading) -> go.Figure:
    """A map of all cells, with the marks."""
    detail, form = read.detail, read.form
    rows, columns = detail.size
    down, across = [*range(1, rows + 1)], [*range(1, columns + 1)]
    labels = {**_labels(trace, form.rows, detail.rows), **_labels(trace, form.columns, detail.columns)}
    of_rows = [labels[x.name] for x in form.rows if x.name in labels]
    of_columns = [labels[x.name] for x in form.columns if x.name in labels]
    names = [x.name for x in (*form.rows, *form.columns) if x.name in labels]
    texts = [[[*a, *b] for b in _texts_by_place(of_columns, columns)] for a in _texts_by_place(of_rows, rows)]
    shades = _heatmap_cells(read, across, down, np.arange(rows), np.arange(columns), texts, names)
    points = []
    for word, mark in form.marks.items():
        cells = [(row, column) for row, column, other in detail.marks if other == word]
        colour, symbol = LOOKS[mark.status]
        look = dict(symbol=symbol, size=12, color=colour)
        if cells:
            x, y = [column + 1 for _, column in cells], [row + 1 for row, _ in cells]
            points.append(go.Scatter(x=x, y=y, name=escape_label(mark.name), mode="markers", marker=look))
    high = max(380, 170 + CELL * rows) if rows <= NAMED else 620
    drawing = chart(
        _title(read), escape_label(form.across), escape_label(form.down), shades, *points, height=high
    )
    drawing.update_layout(showlegend=True).update_xaxes(dtick=1).update_yaxes(autorange="reversed")
    if form.head in labels:
        drawing.update_xaxes(tickmode="array", tickvals=across, ticktext=labels[form.head])
    if form.side in labels and rows <= NAMED:
        drawing.update_yaxes(tickmode="array", tickvals=down, ticktext=labels[form.side])
    return drawing


def _heatmap_with_tally(trace: Trace, read: MatrixReading, tally: TallyReading) -> go.Figure:
    """A map with the rows of a tally."""
    form, order = read.form, row_order(read, tally)
    columns = order if form.square else [*range(read.detail.size[1])]
    named = [escape_label(visible_piece(scope.say_first(tally.form.row), TEXT)) for scope in tally.rows]
    heads = named if form.square else [str(k + 1) for k in columns]
    texts = [[[named[a], heads[b]] for b in columns] for a in order]
    places, across = [*range(1, len(order) + 1)], [*range(1, len(columns) + 1)]
    rows, own = np.array(order), np.array(columns)
    shades = _heatmap_cells(read, across, places, rows, own, texts, ["row_text", "column_text"])
    marks = []
    if tally.focus_row is not None:
        at = order.index(tally.focus_row) + 1
        word = tally.rows[tally.focus_row].say_first(tally.outcomes[tally.focus_row].words)
        look = dict(symbol="star", size=12, color=ACCEPT)
        marks = [go.Scatter(x=[at], y=[at], name=escape_label(word), mode="markers", marker=look)]
    drawing = chart(
        _title(read),
        escape_label(form.across),
        escape_label(form.down),
        shades,
        *marks,
        height=200 + ROW * len(order),
    )
    ticks = [f"{named[k]}  {_format_number(tally.number(k))}" for k in order]
    return drawing.update_layout(showlegend=True, margin=dict(l=260)).update_yaxes(
        autorange="reversed", tickmode="array", tickvals=places, ticktext=ticks
    )


def _heatmap_cells(
    read: MatrixReading,
    x: Sequence[int],
    y: Sequence[int],
    rows: np.ndarray,
    columns: np.ndarray,
    texts: list[Any],
    names: list[str],
) -> go.Heatmap:
    """The cells of `rows` and `columns`, at x and y; names: of the texts of each cell."""
    form, numbers = read.form, read.detail.numbers
    assert numbers is not None
    ends = dict(zip(("zmin", "zmax"), form.scale, strict=False))
    return go.Heatmap(
        x=x,
        y=y,
        z=[[None if v != v else float(v) for v in row] for row in numbers[np.ix_(rows, columns)].tolist()],
        customdata=texts,
        colorscale="Cividis" if form.strong == "high" else "Cividis_r",
        colorbar=dict(title=escape_label(form.number)),
        hovertemplate=f"{_hover_template(form.hover, names)}<extra></extra>",
        **ends,
    )


def _hover_template(text: str, names: list[str]) -> str:
    """A sentence as plotly writes it at a cell; names: of the texts there."""
    said = ""
    for part in sentence(text or "row {row}, column {column}: {value}"):
        if isinstance(part, str):
            said += escape_label(part)
            continue
        name, form = part
        places = {"row": "%{y}", "column": "%{x}", "value": f"%{{z:.{form}f}}" if form.isdigit() else "%{z}"}
        places |= {label: f"%{{customdata[{k}]}}" for k, label in enumerate(names)}
        said += places.get(str(name), "")  # of a label that this matrix does not have
    return said.replace("\n", "<br>")


def _labels(trace: Trace, declared: list[DetailColumn], held: dict[str, list[Any]]) -> dict[str, list[str]]:
    """Name -> the texts of a column of labels."""
    return {
        one.name: [_format_label(trace, one, x) for x in held[one.name]]
        for one in declared
        if one.name in held
    }


def _format_label(trace: Trace, one: DetailColumn, entry: Any) -> str:
    if one.type == "token" and entry is not None:
        return escape_label(visible_token(entry, trace.pieces))
    if one.type == "tokens" and entry is not None:
        return escape_label(visible_piece(join(entry, trace.pieces), TEXT))
    return "" if entry is None else escape_label(str(entry)[:TEXT])


def _texts_by_place(columns: list[list[str]], n: int) -> list[list[str]]:
    """The texts of each of n places."""
    return [list(x) for x in zip(*columns, strict=True)] if columns else [[] for _ in range(n)]


def _title(read: MatrixReading) -> str:
    return escape_label(read.form.title + read.whole_scope.say_first(read.form.caption))


def _format_number(x: float | None) -> str:
    return "" if x is None else f"{x:.3f}"
