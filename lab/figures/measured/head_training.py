"""Head training: the loss of a head, and how far its drafts get, by the tokens that it has read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from decodescope.lab.formatting.style import LIGHT

from ..chart import ACCEPT, INK, TARGET, chart, escape_label

if TYPE_CHECKING:
    from pandas import DataFrame

COLOURS = (ACCEPT, TARGET, INK)  # of the positions of a draft, then again with other dashes
DASHES = ("solid", "dash", "dot", "dashdot")
NOTHING = (
    "nothing was measured yet, so there is nothing to draw: wait for the first measurement of the training."
)


def figure(title: str, metrics: Sequence[Mapping[str, Any]]) -> go.Figure:
    """The measurements of `decodescope train head`, as its metrics.jsonl has them. Raises ValueError if there are none.
    Above: at each position of a draft, the share of guesses that are accepted. Below: the loss."""
    if not metrics:
        raise ValueError(NOTHING)
    tokens = [row["tokens"] for row in metrics]
    lines = [
        go.Scatter(
            x=tokens,
            y=[row["accepted"][position] for row in metrics],
            name=f"position {position + 1}",
            mode="lines+markers",
            line=dict(color=COLOURS[position % 3], dash=DASHES[position // 3 % 4]),
            hovertemplate="%{x} tokens: %{y:.1%} accepted<extra></extra>",
        )
        for position in range(len(metrics[0]["accepted"]))
    ]
    loss = go.Scatter(
        x=tokens,
        y=[row["loss"] for row in metrics],
        name="loss",
        mode="lines+markers",
        line=dict(color=INK, dash="dot"),
        hovertemplate="%{x} tokens: loss %{y:.3f}<extra></extra>",
        xaxis="x2",
        yaxis="y2",
        showlegend=False,
    )
    last = metrics[-1]
    about = f"{escape_label(title)}<br>{last['tokens_per_pass']:.2f} tokens a pass after {last['tokens']:,} tokens"
    drawing = chart(about, "tokens read", "accepted on held-out prompts", *lines, loss, height=560)
    axis = dict(drawing.layout["yaxis"].to_plotly_json())
    return drawing.update_layout(
        xaxis=dict(anchor="y"),
        yaxis=dict(domain=[0.5, 1], range=[0, 1], tickformat=".0%"),
        xaxis2={**axis, "title": "tokens read", "anchor": "y2"},
        yaxis2={**axis, "title": "loss", "domain": [0, 0.34], "anchor": "x2"},
        plot_bgcolor=LIGHT["bg"],
        margin=dict(b=60, t=96),
    )


def table(metrics: Sequence[Mapping[str, Any]]) -> DataFrame:
    """The same measurements as numbers, a row each."""
    import pandas

    return pandas.DataFrame(
        [
            {
                "tokens": row["tokens"],
                "loss": row["loss"],
                **{f"position {i + 1}": share for i, share in enumerate(row["accepted"])},
                "tokens a pass": row["tokens_per_pass"],
            }
            for row in metrics
        ]
    )
