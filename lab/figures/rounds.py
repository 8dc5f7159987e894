"""Rounds: the progress of a search or a training on a model of the run, one generation or step after another."""

from __future__ import annotations

import plotly.graph_objects as go

from decodescope.engine.core.arguments import check_choice
from decodescope.engine.trace import Trace

from .chart import ACCEPT, INK, REJECT, TARGET, chart, escape_label

COLOURS = ((ACCEPT, "solid"), (REJECT, "dash"), (TARGET, "dot"), (INK, "dashdot"))


def figure(trace: Trace, role: str | None = None) -> go.Figure:
    """A line for each series that a transform of the model's weights recorded round by round.
    Hovering shows the words recorded with it, such as the best list of a search. role: as `figure(run, "model")` takes it.
    Raises ValueError if no transform recorded rounds, and ParamError for a role that the trace does not have."""
    reports = trace.header.reports or {}
    if role is not None:
        check_choice(role, "role", ("target", *trace.header.lanes))
    rows = [one for name in ([role] if role else reports) for one in reports.get(name, [])]
    own = [(one, x) for one in rows for x in one.findings.values() if x.over == "round" and x.values]
    words = [x for _, x in own if not all(v is None or isinstance(v, int | float) for v in x.values)]
    lines = [(one, x) for one, x in own if all(x is not y for y in words)]
    if not lines:
        raise ValueError(
            "No transform of this run's models recorded its rounds: take a search or a training."
        )
    most = max(len(x.values) for _, x in lines)
    beside = [[f"{x.word}: {x.values[k]}" for x in words if k < len(x.values)] for k in range(most)]
    drawn = [
        go.Scatter(
            x=list(range(len(x.values))),
            y=x.values,
            name=escape_label(f"{x.word}, {x.unit}" if x.unit else x.word),
            mode="lines+markers" if len(x.values) < 60 else "lines",
            line=dict(color=colour, dash=dash, width=2),
            customdata=[escape_label(", ".join(beside[k])) for k in range(len(x.values))],
            hovertemplate="round %{x}: %{y:.4g}<br>%{customdata}<extra></extra>",
        )
        for (_, x), (colour, dash) in zip(lines, COLOURS * len(lines), strict=False)
    ]
    title = " + ".join(dict.fromkeys(one.weights for one, _ in lines))
    drawing = chart(
        escape_label(title),
        "round",
        escape_label(", ".join(dict.fromkeys(x.unit or x.word for _, x in lines))),
        *drawn,
    )
    return drawing.update_layout(showlegend=True)
