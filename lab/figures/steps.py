"""Steps: the tokens that each step wrote, and the ones it drafted in vain."""

from __future__ import annotations

import plotly.graph_objects as go

from decodescope.engine.trace import Trace
from decodescope.lab.formatting.style import LIGHT

from .chart import ACCEPT, REJECT, TARGET, chart


def figure(trace: Trace) -> go.Figure:
    """Bars by step: accepted drafted tokens, the target's own above them, and in pale the drafted ones that were not
    emitted."""
    x = [step.step for step in trace.steps]
    accepted = [step.origins.count("accepted") for step in trace.steps]
    own = [len(step.emitted) - one for step, one in zip(trace.steps, accepted, strict=True)]
    lost = [step.drafted - one for step, one in zip(trace.steps, accepted, strict=True)]
    pale = dict(color=LIGHT["reject-soft"], line=dict(color=REJECT, width=1))
    rows = (
        ("accepted", accepted, dict(color=ACCEPT)),
        ("the target's own", own, dict(color=TARGET)),
        ("drafted, not kept", lost, pale),
    )
    hover = "step %{x}: %{y} %{fullData.name}<extra></extra>"
    bars = [
        go.Bar(x=x, y=y, name=name, marker=marker, hovertemplate=hover) for name, y, marker in rows if any(y)
    ]
    return chart("What each step wrote", "step", "tokens", *bars).update_layout(barmode="stack")
