"""Distribution: the probabilities of target and draft at one place, and the residual after a rejection."""

from __future__ import annotations

import plotly.graph_objects as go

from decodescope.engine.trace import Trace
from decodescope.lab.decision.explain import explain

from .chart import ACCEPT, INK, TARGET, chart, escape_label


def figure(trace: Trace, step: int | None = None, node: int | None = None) -> go.Figure:
    """The likeliest tokens where `node` of `step` was tested, or where the target's own token was drawn.
    Without a step it is the first one that has such a token. Raises TraceError for a place that the trace does not have,
    ValueError if it holds no probabilities there."""
    first = next((one.step for one in trace.steps if one.extra is not None), 0)
    at = first if step is None else step
    explained = explain(trace, at, node)
    if not explained.rows:
        raise ValueError(
            f"Step {at} holds no probabilities at this place: take one that was tested, of a run with decisions."
        )
    names = [escape_label(row.text) for row in explained.rows]
    rows = [
        ("draft, q", [row.q for row in explained.rows], INK),
        ("target, p", [row.p for row in explained.rows], ACCEPT),
    ]
    if any(row.left is not None for row in explained.rows):
        rows.append(("what was left", [row.left or 0.0 for row in explained.rows], TARGET))
    places = list(range(len(names)))
    hover = "%{customdata}: %{y:.4f} %{fullData.name}<extra></extra>"
    bars = [
        go.Bar(x=places, y=y, name=name, marker=dict(color=colour), customdata=names, hovertemplate=hover)
        for name, y, colour in rows
        if any(y)
    ]
    drawing = chart(f"{explained.rows_title}, {escape_label(explained.where)}", "token", "probability", *bars)
    return drawing.update_xaxes(tickvals=places, ticktext=names)
