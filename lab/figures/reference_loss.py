"""Reference loss: what eviction cost compared with a full cache: lost attention mass and drift, over the steps.

Or what weight transforms cost compared with the original model: drift, and where it would have chosen another token.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from decodescope.engine.trace import Trace
from decodescope.lab.cache.lifetimes import EntryLifetimes
from decodescope.lab.wire.reference import encode_reference, reference_name

from .cache_entries import POINTS
from .chart import INK, LINE, MUTED, TARGET, chart

UPPER, LOWER = (0.56, 1.0), (0.0, 0.4)  # of the height


def figure(trace: Trace) -> go.Figure:
    """Lost attention and drift over the steps. Raises ValueError if no reference ran: run it with reference=True.
    Above: the share of the full cache's attention on entries that the target no longer held, mean over layers and KV heads,
    and of the head that lost most. Below: how far the next token's distribution is from the full cache's. For a run with
    reference="model": the drift at every token, and where the model would have chosen another."""
    if trace.header.reference_kind == "model":
        return _drift_figure(trace)
    series = EntryLifetimes.of(trace).series(POINTS)
    if "lost" not in series:
        raise ValueError("This run has no reference with a full cache: record it with reference=True.")
    x, share = series["step"], "step %{x}: %{y:.1%} lost, %{fullData.name}<extra></extra>"
    nats = "step %{x}: %{y:.4f} nats<extra></extra>"
    parts = [
        go.Scatter(
            x=x, y=series["lost"], name="mean of the heads", line=dict(color=INK), hovertemplate=share
        ),
        go.Scatter(
            x=x,
            y=series["worst"],
            name="worst head",
            line=dict(color=MUTED, dash="dash"),
            hovertemplate=share,
        ),
        go.Scatter(
            x=x, y=series["drift"], name="drift", line=dict(color=TARGET), hovertemplate=nats, yaxis="y2"
        ),
    ]
    drawing = chart("What the cache missed, against a full one", "step", "lost mass", *parts, height=440)
    lower = dict(title="drift, nats", domain=LOWER, rangemode="tozero", gridcolor=LINE, zeroline=False)
    return drawing.update_layout(
        yaxis=dict(domain=UPPER, tickformat=".0%", rangemode="tozero"), yaxis2=lower, xaxis=dict(anchor="y2")
    )


def _drift_figure(trace: Trace) -> go.Figure:
    name = reference_name(trace.header)
    rows = list[tuple[int, float, str, Any]]()
    count = 0
    for step in trace.steps:
        said = encode_reference(step, trace.piece).get("beside", [])
        for k, (kl, other) in enumerate(said):
            rows.append((count + k, kl, trace.piece(step.emitted[k]), other))
        count += len(step.emitted)
    apart = [x for x in rows if x[3] is not None]
    every = "token %{x}, %{customdata}: %{y:.4f} nats<extra></extra>"
    parts = [
        go.Scatter(
            x=[x for x, *_ in rows],
            y=[y for _, y, *_ in rows],
            customdata=[word for *_, word, _ in rows],
            name="drift",
            line=dict(color=TARGET),
            hovertemplate=every,
        ),
        go.Scatter(
            x=[x for x, *_ in apart],
            y=[y for _, y, *_ in apart],
            customdata=[f"{word!r}, {name} would say {other!r}" for *_, word, other in apart],
            name=f"{name} would say another",
            mode="markers",
            marker=dict(color=INK, symbol="circle-open", size=9),
            hovertemplate=every,
        ),
    ]
    drawing = chart(f"How far the model is from {name}", "token", f"KL({name} || model), nats", *parts)
    return drawing.update_layout(yaxis=dict(rangemode="tozero"))
