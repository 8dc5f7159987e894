"""Time: the duration of each step, by phase."""

from __future__ import annotations

import plotly.graph_objects as go

from decodescope.engine.trace import Trace
from decodescope.lab.formatting.style import LIGHT

from .chart import chart

# phases of a step's time, as records call them, as people do, and the colour; the rest of a step comes last
PHASES = (
    ("draft", "drafting", LIGHT["time-1"]),
    ("verify", "verifying", LIGHT["time-2"]),
    ("policy", "evicting", LIGHT["gone"]),
    ("rest", "bookkeeping", LIGHT["time-3"]),
)


def figure(trace: Trace) -> go.Figure:
    """Milliseconds of each step by phase, as the clock measured them."""
    steps = trace.steps
    spent = {name: [getattr(step, f"{name}_us") for step in steps] for name, _, _ in PHASES[:-1]}
    named = [sum(one) for one in zip(*spent.values(), strict=True)]
    spent["rest"] = [max(0.0, step.wall_us - one) for step, one in zip(steps, named, strict=True)]
    x, hover = [step.step for step in steps], "step %{x}: %{y:.2f} ms %{fullData.name}<extra></extra>"
    bars = [
        go.Bar(
            x=x, y=[us / 1e3 for us in spent[name]], name=word, marker=dict(color=colour), hovertemplate=hover
        )
        for name, word, colour in PHASES
        if any(spent[name])
    ]
    return chart("Where the time of each step went", "step", "ms", *bars).update_layout(barmode="stack")
