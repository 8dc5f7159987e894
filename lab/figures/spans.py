"""Spans: what every span of a passage costs as an answer, where it begins and how long it is."""

from __future__ import annotations

import plotly.graph_objects as go

from decodescope.engine.trace import Trace
from decodescope.lab.formatting.tokens import shown_id

from .chart import ACCEPT, REJECT, chart, literal

ROW, NAMED = 15, 120  # px of a token, and tokens up to which each has its text at the side


def figure(trace: Trace) -> go.Figure:
    """Nats of every span, its end counted, by first token and length, the answer and the greedy span marked. Raises ValueError
    where a run has not written a span of a passage."""
    spans = next((step.spans for step in trace.steps if step.spans is not None), None)
    if spans is None or spans.losses is None:
        raise ValueError(
            "No step of this run keeps the spans of a passage: take a run with the strategy exact_extract."
        )
    passage = trace.header.prompt[spans.start : spans.start + spans.count].tolist()
    words = [literal(shown_id(token, trace.pieces)) for token in passage]
    losses = [[None if x != x else float(x) for x in row] for row in spans.losses]
    shades = go.Heatmap(
        x=list(range(1, spans.losses.shape[1] + 1)),
        y=list(range(1, spans.count + 1)),
        z=losses,
        customdata=[[word] * spans.losses.shape[1] for word in words],
        colorscale="Cividis_r",
        colorbar=dict(title="nats"),
        hovertemplate="from token %{y}, %{customdata}: %{x} tokens, %{z:.3f} nats<extra></extra>",
    )
    marks = [("answer", spans.best, ACCEPT, "star"), ("greedy", spans.greedy, REJECT, "circle-open")]
    points = [
        go.Scatter(
            x=[span[1]],
            y=[span[0] + 1],
            name=name,
            mode="markers",
            marker=dict(symbol=symbol, size=12, color=colour),
        )
        for name, span, colour, symbol in marks
        if span is not None
    ]
    gap = "" if spans.gap is None else f", the greedy one {spans.gap:.3f} nats behind"
    high = max(380, 170 + ROW * spans.count) if spans.count <= NAMED else 620
    drawing = chart(f"Spans of a passage{gap}", "tokens", "first token", shades, *points, height=high)
    named = (
        dict(tickmode="array", tickvals=[*range(1, spans.count + 1)], ticktext=words)
        if spans.count <= NAMED
        else {}
    )
    return (
        drawing.update_layout(showlegend=True)
        .update_yaxes(autorange="reversed", **named)
        .update_xaxes(dtick=1)
    )
