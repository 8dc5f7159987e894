"""Surface: when drafting pays on a machine, by draft length and accepted share."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from decodescope.engine.cost.hardware import HardwareProfile
from decodescope.engine.trace import Trace
from decodescope.lab.cost.pricer import PricedRun, Pricer
from decodescope.lab.formatting.style import LIGHT

from ..chart import INK, REJECT, TARGET, chart


def figure(trace: Trace, profile: HardwareProfile) -> go.Figure:
    """Speed by the cost model on the machine of `profile`; plain decoding there is 1. A run that drafted is marked on it.
    Raises ParamError where the record does not contain the model's shape."""
    pricer = Pricer(PricedRun(trace.header, trace.prefill, trace.steps), profile)
    tables = pricer.surface(pricer.rows())
    grid = tables["grid"]
    scale = [[0, REJECT], [0.5, LIGHT["bg"]], [1, TARGET]]
    shades = go.Heatmap(
        x=list(range(len(tables["lengths"]))),
        y=list(tables["shares"]),
        z=grid,
        zmin=0,
        zmax=2,  # so that plain decoding, 1, is white
        colorscale=scale,
        text=[[f"{one:.2f}" for one in row] for row in grid],
        texttemplate="%{text}",
        hovertemplate="%{y:.0%} accepted: %{text} × plain decoding<extra></extra>",
        colorbar=dict(title="speed"),
    )
    parts: list[go.Heatmap | go.Scatter] = [shades]
    if tables["point"] is not None:
        place = _axis_position(tables["lengths"], tables["point"]["length"])
        look = dict(size=13, color=LIGHT["bg"], line=dict(color=INK, width=2.5))
        name = f"this run: {tables['point']['length']:.1f} deep, {tables['point']['share']:.0%} accepted"
        parts.append(
            go.Scatter(x=[place], y=[tables["point"]["share"]], mode="markers", marker=look, name=name)
        )
    title = f"Speed over plain decoding on {pricer.machine.name}, by the cost model"
    drawing = chart(title, "tokens drafted per step", "share accepted", *parts, height=440)
    drawing.update_xaxes(
        tickvals=list(range(len(tables["lengths"]))), ticktext=[str(n) for n in tables["lengths"]]
    )
    return drawing.update_yaxes(tickformat=".0%").update_layout(showlegend=tables["point"] is not None)


def _axis_position(lengths: tuple[int, ...], length: float) -> float:
    """The position of a length on an axis with the `lengths` at equal distances."""
    return float(np.interp(length, lengths, range(len(lengths))))
