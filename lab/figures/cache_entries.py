"""Cache entries: the entries that the target's cache keeps of the text, over the steps, as a count and one by one."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from decodescope.engine.core.arguments import check_whole_number
from decodescope.engine.trace import Trace
from decodescope.lab.cache.lifetimes import EntryLifetimes
from decodescope.lab.formatting.style import LIGHT

from .chart import INK, MUTED, REJECT, chart

POINTS = 2000  # steps of a line, at most
CELLS = 400  # columns of a map, and rows, at most


def figure(trace: Trace) -> go.Figure:
    """Entries of the fullest layer after each step, the number of tokens read, and how many entries left.
    Raises ValueError if the prefill was not recorded."""
    lives = EntryLifetimes.of(trace)
    series = lives.series(POINTS)
    line = dict(mode="lines", hovertemplate="step %{x}: %{y} %{fullData.name}<extra></extra>")
    parts: list[go.Scatter | go.Bar] = [
        go.Scatter(
            x=series["step"],
            y=series["length"],
            name="tokens read",
            line=dict(color=MUTED, dash="dash"),
            **line,
        ),
        go.Scatter(
            x=series["step"], y=series["held"], name="entries held", line=dict(color=INK, shape="hv"), **line
        ),
    ]
    if any(series["evicted"]):
        hover = f"step %{{x}}: %{{y}} {lives.went}<extra></extra>"
        parts.append(
            go.Bar(
                x=series["step"],
                y=series["evicted"],
                name=lives.went,
                marker=dict(color=REJECT),
                hovertemplate=hover,
            )
        )
    return chart("What the cache holds", "step", "entries of a KV head", *parts)


def entry_lifetimes(trace: Trace, layer: int | None = None, head: int | None = None) -> go.Figure:
    """The content of the cache: positions of the text upwards, steps across, by the share of layers and KV heads with the
    entry.
    If a layer, or one KV head of it, is given, it shows that one. Raises ValueError as `figure` does, ParamError for a layer
    or head that the model does not have."""
    run = EntryLifetimes.of(trace)
    if run.unplaced:
        raise ValueError(run.unplaced)
    rows = np.arange(run.rows).reshape(run.layers, run.heads)
    name = "all layers and KV heads"
    if layer is not None:
        rows, name = rows[check_whole_number(layer, "layer", 0, run.layers - 1)][None], f"layer {layer}"
    if head is not None:
        rows, name = rows[:, check_whole_number(head, "head", 0, run.heads - 1)], f"{name}, KV head {head}"
    steps = range(0, run.count, max(1, -(-run.count // CELLS)))
    places = np.arange(
        0, run.length[-1] if run.count else 0, max(1, -(-(run.length[-1] if run.count else 0) // CELLS))
    )
    shares = np.full((len(places), len(steps)), np.nan)
    for column, i in enumerate(steps):
        kept = run.held_mask(i)[rows.ravel()].mean(0)
        read = places[places < len(kept)]
        shares[: len(read), column] = kept[read]
    drawing = chart(
        f"Who is in the cache: {name}",
        "step",
        "position in the text",
        go.Heatmap(
            x=list(steps),
            y=places,
            z=shares,
            zmin=0,
            zmax=1,
            colorscale=[[0, LIGHT["gone"]], [1e-9, LIGHT["mass-low"]], [1, LIGHT["mass-high"]]],
            colorbar=dict(title="held by", tickformat=".0%"),
            hovertemplate="after step %{x}, position %{y}: held by %{z:.0%}<extra></extra>",
        ),
        height=440,
    )
    drawing.add_hline(
        y=run.prompt - 0.5, line=dict(color=MUTED, dash="dot"), annotation_text="the prompt ends"
    )
    return drawing
