"""Missed: what a full cache beside the target's says that eviction cost: lost mass, and drift, over the steps."""

from __future__ import annotations

import plotly.graph_objects as go

from decodescope.engine.trace import Trace
from decodescope.lab.cache.lives import Lives

from .chart import INK, LINE, MUTED, TARGET, chart
from .held import POINTS

UPPER, LOWER = (0.56, 1.0), (0.0, 0.4)  # of the height


def figure(trace: Trace) -> go.Figure:
    """Above the share of the full cache's attention that fell on what the target no longer held, mean over layers and KV heads
    and of the head that lost most; below how far the next token's distribution is from the full cache's. Raises ValueError
    where no full cache was kept: run it with shadow=True."""
    series = Lives.of(trace).series(POINTS)
    if "lost" not in series:
        raise ValueError("No full cache was kept beside this run's: record it with shadow=True.")
    x, share = series["step"], "step %{x}: %{y:.1%} lost, %{fullData.name}<extra></extra>"
    nats = "step %{x}: %{y:.4f} nats<extra></extra>"
    parts = [
        go.Scatter(x=x, y=series["lost"], name="mean of the heads", line=dict(color=INK), hovertemplate=share),
        go.Scatter(x=x, y=series["worst"], name="worst head", line=dict(color=MUTED, dash="dash"), hovertemplate=share),
        go.Scatter(x=x, y=series["drift"], name="drift", line=dict(color=TARGET), hovertemplate=nats, yaxis="y2"),
    ]
    drawing = chart("What the cache missed, against a full one", "step", "lost mass", *parts, height=440)
    lower = dict(title="drift, nats", domain=LOWER, rangemode="tozero", gridcolor=LINE, zeroline=False)
    return drawing.update_layout(
        yaxis=dict(domain=UPPER, tickformat=".0%", rangemode="tozero"), yaxis2=lower, xaxis=dict(anchor="y2")
    )
