"""Repetition: the probability of a sentence by copy, over many sentences, and by token for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from decodescope.lab.formatting.style import LIGHT

from .chart import ACCEPT, INK, TARGET, chart, text_label

if TYPE_CHECKING:
    from pandas import DataFrame

LINES = {  # figure of a copy -> colour, dash, what it is
    "tp": (ACCEPT, "solid", "TP: mean probability of a token"),
    "ip": (TARGET, "dash", "IP: tokens more likely than in the first copy"),
    "wr": (INK, "dot", "WR: tokens that are the likeliest"),
}
NOTHING = "nothing was measured, so there is nothing to draw: run decodescope measure repetition first."


def figure(record: Mapping[str, Any], sentence: int = 0) -> go.Figure:
    """The result of `decodescope measure repetition --out`, read from its JSON. Raises ValueError if there is none.
    Above: TP, IP and WR by copy over all sentences. Below: the probability of each token of `sentence` in each copy."""
    if not 0 <= sentence < len(record["sentences"]):
        raise ValueError(
            NOTHING if not record["sentences"] else f"sentence is 0 to {len(record['sentences']) - 1}."
        )
    curve = record["curve"]
    one = record["sentences"][sentence]
    settings = record["settings"]
    lines = [
        go.Scatter(
            x=[x["n"] for x in curve],
            y=[x[name] for x in curve],
            name=words,
            mode="lines+markers",
            line=dict(color=colour, dash=dash),
            hovertemplate="copy %{x}: %{y:.3f}<extra></extra>",
        )
        for name, (colour, dash, words) in LINES.items()
    ]
    columns, pieces = list(range(len(one["pieces"]))), [text_label(x, 12) for x in one["pieces"]]
    heat = go.Heatmap(
        x=columns,
        y=list(range(1, len(one["p"]) + 1)),
        z=one["p"],
        zmin=0,
        zmax=1,
        colorscale=[[0, LIGHT["bg"]], [1, ACCEPT]],
        customdata=[pieces] * len(one["p"]),
        hovertemplate="%{customdata}, copy %{y}: %{z:.3f}<extra></extra>",
        xaxis="x2",
        yaxis="y2",
        showscale=False,
    )
    title = f"{text_label(settings['model'], 40)}: {settings['sentences']} sentences, {settings['times']} times each"
    drawing = chart(title, "copy", "share", *lines, heat, height=640)
    axis = dict(drawing.layout["yaxis"].to_plotly_json())
    tokens = dict(tickvals=columns, ticktext=pieces, tickangle=-40)
    return drawing.update_layout(
        xaxis=dict(anchor="y"),
        yaxis=dict(domain=[0.58, 1], range=[0, 1.02]),
        xaxis2={**axis, "title": "token of one sentence", "anchor": "y2", **tokens},
        yaxis2={**axis, "title": "copy", "domain": [0, 0.4], "autorange": "reversed"},
        margin=dict(b=90, t=96),
    )


def table(record: Mapping[str, Any]) -> DataFrame:
    """The same curves as numbers."""
    import pandas

    return pandas.DataFrame(record["curve"]).rename(columns={"n": "copy", "tp": "TP", "ip": "IP", "wr": "WR"})
