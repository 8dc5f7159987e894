"""Canvas: which place was settled in which pass, and the model's confidence in the open ones."""

from __future__ import annotations

import plotly.graph_objects as go

from decodescope.engine.trace import Header, Trace
from decodescope.engine.trace.details.declarations import CanvasForm
from decodescope.engine.trace.details.shapes import CanvasDetail
from decodescope.engine.trace.records.pieces import visible_token

from .chart import REJECT, chart


def figure(trace: Trace) -> go.Figure:
    """Confidence of the candidate of each open place, by pass and place, with a mark on those that the pass settled.
    Raises ValueError if no pass filled a canvas."""
    canvases = ((step.step, step.detail_of("canvas")) for step in trace.steps)
    passes = [(step, canvas) for step, canvas in canvases if _is_filled(trace.header, canvas)]
    if not passes:
        raise ValueError(
            "No pass of this run filled places of a canvas: take a run by a model that reads both sides."
        )
    start = passes[0][1].start
    length = max(fill.start + fill.length for _, fill in passes) - start
    rows: list[list[float | None]] = []
    for _, fill in passes:
        sure = dict(zip(fill.open.tolist(), fill.confidence, strict=True))
        rows.append([sure.get(start + k) for k in range(length)])
    shades = go.Heatmap(
        x=list(range(1, length + 1)),
        y=[step for step, _ in passes],
        z=rows,
        colorscale="Cividis",
        colorbar=dict(title="confidence"),
        hovertemplate="pass %{y}, place %{x}: %{z:.3f}<extra></extra>",
    )
    settled = [
        (place - start + 1, step, f"{visible_token(token, trace.pieces)}: {rule}")
        for step, fill in passes
        for place, token, rule in zip(fill.places, fill.tokens, fill.rules, strict=True)
    ]
    marks = go.Scatter(
        x=[x for x, _, _ in settled],
        y=[y for _, y, _ in settled],
        text=[words for _, _, words in settled],
        mode="markers",
        marker=dict(size=6, color=REJECT),
        name="settled",
        hovertemplate="pass %{y}, place %{x}, %{text}<extra></extra>",
    )
    return chart("Which place was settled when", "place", "pass", shades, marks).update_yaxes(
        autorange="reversed"
    )


def _is_filled(header: Header, canvas: CanvasDetail | None) -> bool:
    """Whether a pass filled places in any order, and its confidences were recorded."""
    form = None if canvas is None else header.details.get(canvas.name)
    if canvas is None or canvas.confidence is None:
        return False
    return not (isinstance(form, CanvasForm) and form.drawn == "chain")
