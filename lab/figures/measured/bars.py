"""Bars: one number for each of several things, under several names, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import plotly.graph_objects as go

from ..chart import ACCEPT, INK, MUTED, REJECT, TARGET, chart, text_label


def figure(values: Mapping[str, Mapping[str, float]], title: str, x: str, y: str) -> go.Figure:
    """Grouped bars.
    values: name (a colour) -> thing (a place along x) -> number; a name without a number for a thing gets no bar. x, y: axis
    labels, units included. Things are ordered by first appearance."""
    things = list(dict.fromkeys(thing for numbers in values.values() for thing in numbers))
    places = list(range(len(things)))
    bars = [
        go.Bar(
            x=places,
            y=[numbers.get(thing) for thing in things],
            name=text_label(name),
            marker=dict(color=colour),
        )
        for (name, numbers), colour in zip(
            values.items(), cycle([INK, ACCEPT, TARGET, MUTED, REJECT]), strict=False
        )
    ]
    return chart(title, x, y, *bars).update_xaxes(
        tickvals=places, ticktext=[text_label(thing) for thing in things]
    )
