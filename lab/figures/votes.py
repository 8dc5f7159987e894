"""Votes: how like texts that were drawn at once are, and how many votes each has by that."""

from __future__ import annotations

import plotly.graph_objects as go

from decodescope.engine.trace import Trace
from decodescope.engine.trace.records.pieces import join, shown

from .chart import ACCEPT, chart, literal

ROW, TEXT = 24, 32  # px of a text, and characters of it that are shown


def figure(trace: Trace) -> go.Figure:
    """The likeness of each two texts, those with the most votes first, and their means at the right. Raises ValueError where no
    texts have voted."""
    vote = next(
        (step.drawn for step in trace.steps if step.drawn is not None and step.drawn.like is not None), None
    )
    if vote is None or vote.like is None:
        raise ValueError(
            "No step of this run keeps texts that voted: take a run with the strategy consensus."
        )
    order = sorted(range(len(vote.texts)), key=lambda k: (-vote.votes[k], k != vote.chosen))
    texts = [literal(shown(join(vote.texts[k].tokens, trace.pieces), TEXT)) for k in order]
    places = [*range(1, len(order) + 1)]
    shades = go.Heatmap(
        x=places,
        y=places,
        z=vote.like[order][:, order].tolist(),
        zmin=0,
        zmax=1,
        customdata=[[[a, b] for b in texts] for a in texts],
        colorscale="Cividis",
        colorbar=dict(title="likeness"),
        hovertemplate="%{customdata[0]}<br>%{customdata[1]}<br>%{z:.3f} alike<extra></extra>",
    )
    own = order.index(vote.chosen) + 1 if vote.chosen is not None else 1
    mark = go.Scatter(
        x=[own],
        y=[own],
        name="the run's text",
        mode="markers",
        marker=dict(symbol="star", size=12, color=ACCEPT),
    )
    drawing = chart(
        "Texts that voted, by the measure " + vote.by, "text", "", shades, mark, height=200 + ROW * len(order)
    )
    named = [f"{text}  {vote.votes[k]:.3f}" for k, text in zip(order, texts, strict=True)]
    return drawing.update_layout(showlegend=True, margin=dict(l=260)).update_yaxes(
        autorange="reversed", tickmode="array", tickvals=places, ticktext=named
    )
