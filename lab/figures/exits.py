"""Exits: how deep each pass of the target went, and its confidence on the way."""

from __future__ import annotations

import plotly.graph_objects as go

from decodescope.engine.trace import Trace

from .chart import REJECT, chart


def figure(trace: Trace) -> go.Figure:
    """Confidence before each tested layer, by step, and the depth at which the step's last pass exited.
    Raises ValueError if no pass tested an exit."""
    left = [(step.step, step.exits[-1]) for step in trace.steps if step.exits]
    if not left:
        raise ValueError("No pass of this run asked whether to leave early: take a run with a depth rule.")
    sure = {(step, int(layer)): value for step, one in left for layer, value, _ in one.tests}
    layers = list(range(1, max(one.depth for _, one in left) + 1))
    steps = [step for step, _ in left]
    shades = go.Heatmap(
        x=steps,
        y=layers,
        z=[[sure.get((step, layer)) for step in steps] for layer in layers],
        colorscale="Cividis",
        colorbar=dict(title="how sure"),
        hovertemplate="step %{x}, in front of layer %{y}: %{z:.3f}<extra></extra>",
    )
    depth = dict(
        mode="lines+markers", line=dict(color=REJECT, shape="hvh"), marker=dict(size=5, color=REJECT)
    )
    line = go.Scatter(x=steps, y=[one.depth for _, one in left], name="left after", **depth)
    return chart("How deep each step went", "step", "layers", shades, line).update_layout(showlegend=True)
