"""Verify curve: how long a pass over several tokens takes, in passes over one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from ..chart import ACCEPT, INK, MUTED, chart

if TYPE_CHECKING:
    from pandas import DataFrame


def figure(tokens: Sequence[int], us: Sequence[float], modelled: Sequence[float] | None = None) -> go.Figure:
    """us: measured time of a pass over each number of `tokens`; the first number is 1; modelled: the same as multiples of
    the first, by a cost model. Filled points were measured, hollow ones calculated."""
    times = [t / us[0] for t in us]
    dashed = dict(mode="lines", line=dict(color=MUTED, dash="dash"), hoverinfo="skip")
    full = dict(mode="lines+markers", line=dict(color=ACCEPT), marker=dict(size=10, color=ACCEPT))
    parts = [
        go.Scatter(x=tokens, y=list(tokens), name="one pass for each token", **dashed),
        go.Scatter(x=tokens, y=times, name="one pass for all, measured", **full),
    ]
    if modelled is not None:
        hollow = dict(size=9, color="#ffffff", line=dict(color=INK, width=1.5))
        name = "one pass for all, by the roofline"
        parts.append(go.Scatter(x=tokens, y=list(modelled), name=name, mode="markers", marker=hollow))
    drawing = chart(
        "Several tokens in one pass", "tokens in the pass", "time, in passes over one token", *parts
    )
    return drawing.update_xaxes(type="log", tickvals=list(tokens)).update_yaxes(
        type="log", tickvals=[1, 2, 4, 8, 16, 32, 64]
    )


def table(tokens: Sequence[int], us: Sequence[float]) -> DataFrame:
    """The same measured times as numbers."""
    import pandas

    rows = [(n, t / 1e3, t / n / 1e3, t / us[0]) for n, t in zip(tokens, us, strict=True)]
    return pandas.DataFrame(
        rows, columns=["tokens", "ms a pass", "ms a token", "passes over one token"]
    ).round(2)
