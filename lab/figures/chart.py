"""Chart: the common look of all charts, and text that plotly cannot take for markup."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import plotly.graph_objects as go

from decodescope.engine.trace.records.events import Piece
from decodescope.lab.formatting.style import DARK, LIGHT, SANS
from decodescope.lab.formatting.tokens import visible_piece

INK, MUTED, LINE, ACCEPT, REJECT, TARGET = (
    LIGHT[x] for x in ("ink", "muted", "line", "accept", "reject", "target")
)


def chart(title: str, x: str, y: str, *traces: Any, height: int = 380) -> go.Figure:
    """A figure with these axes; units are in their titles."""
    figure = go.Figure(list(traces))
    axis = dict(gridcolor=LINE, zeroline=False, linecolor=MUTED, ticks="outside", tickcolor=LINE)
    figure.update_layout(
        title=dict(
            text=title,
            x=0,
            xref="paper",
            y=1,
            yref="container",
            yanchor="top",
            pad=dict(t=14),
            font=dict(size=15),
        ),
        font=dict(family=", ".join(SANS), size=13, color=INK),
        xaxis=dict(title=x, **axis),
        yaxis=dict(title=y, **axis),
        paper_bgcolor=LIGHT["bg"],
        plot_bgcolor=LIGHT["bg"],
        margin=dict(l=70, r=20, t=76, b=56),
        height=height,
        legend=dict(orientation="h", y=1.01, yanchor="bottom", x=0, xanchor="left"),
        hoverlabel=dict(bgcolor=LIGHT["panel"], font=dict(color=INK)),
    )
    return figure


def themed_figures(figure: go.Figure) -> dict[str, Any]:
    """The figure as data for the page, in its light and in its dark colours."""
    dark = {
        LIGHT[name]: DARK[name] for name in reversed(LIGHT)
    }  # of names with one colour the first one counts
    text = figure.to_json()
    colours = re.compile("|".join(map(re.escape, dark)))
    return {"light": json.loads(text), "dark": json.loads(colours.sub(lambda x: dark[x[0]], text))}


def text_label(text: Piece, most: int = 24) -> str:
    """A model's text for a chart: white space visible, and nothing that plotly reads as a tag.
    Quotes stay as they are: plotly decodes no entity for them."""
    return escape_label(visible_piece(text, most))


def escape_label(words: str) -> str:
    """Words for a chart as they are, with nothing that plotly reads as a tag."""
    return html.escape(words, quote=False)
