"""Text distributions: how often each text comes, under several methods, side by side."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from itertools import cycle
from typing import TypeVar

import plotly.graph_objects as go

from ..chart import ACCEPT, INK, TARGET, chart, text_label

T = TypeVar("T", bound=Hashable)
MOST = 16  # texts shown; the others together


def figure(
    laws: Mapping[str, Mapping[T, float]], text: Callable[[T], str] = str, most: int = MOST
) -> go.Figure:
    """Bars by text, sorted by the first distribution, likeliest first. laws: name -> text -> probability or count."""
    first = next(iter(laws.values()))
    keys = sorted({key for law in laws.values() for key in law}, key=lambda key: -first.get(key, 0.0))
    shown, rest = keys[:most], keys[most:]
    names = [text_label(text(key)) for key in shown] + (["all others"] if rest else [])
    places = list(range(len(names)))
    bars = []
    for (name, law), colour in zip(laws.items(), cycle([INK, ACCEPT, TARGET]), strict=False):
        total = sum(law.values()) or 1.0
        shares = [law.get(key, 0.0) / total for key in shown]
        if rest:
            shares.append(sum(law.get(key, 0.0) for key in rest) / total)
        hover = dict(customdata=names, hovertemplate="%{customdata}: %{y:.4f}")
        bars.append(go.Bar(x=places, y=shares, name=name, marker=dict(color=colour), **hover))
    drawing = chart("How often each text comes", "text", "share of all texts", *bars)
    return drawing.update_xaxes(tickvals=places, ticktext=names)


def largest_difference(a: Mapping[T, float], b: Mapping[T, float]) -> float:
    """The largest difference between the probabilities of one text."""
    return max(abs(a.get(key, 0.0) - b.get(key, 0.0)) for key in {*a, *b})
