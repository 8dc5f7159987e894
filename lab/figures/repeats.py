"""Repeats: repeated stretches of a run's text, as bands between the places, and the model's certainty in its loop, by round."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from decodescope.engine.trace import Trace
from decodescope.engine.trace.query.repeats import (
    GRAM,
    Repeat,
    emitted_probabilities,
    find_repeats,
    loop_rounds,
    repeated_share,
)

from .chart import INK, MUTED, REJECT, chart, text_label
from .repetition import LINES

ROUND = {"ip": "IP: tokens more likely than in the first round"}  # other repetitions than a copy


def figure(trace: Trace) -> go.Figure:
    """A band over the run's tokens from each stretch to its repetition; those of a text in a loop are coloured.
    Below: TP, IP and WR of its last loop by round. Raises ValueError if nothing is repeated."""
    ids = [token for step in trace.steps for token in step.emitted]
    stretches = list(find_repeats(ids))
    if not stretches:
        raise ValueError(f"No {GRAM} tokens occur twice in what this run wrote, so there is nothing to draw.")
    words = [text_label(trace.text([token]) if token in trace.pieces else f"<{token}>", 12) for token in ids]
    marks = go.Scatter(
        x=list(range(len(ids))), y=[0] * len(ids), mode="markers", marker=dict(symbol="square", size=4, color=INK),
        customdata=words, hovertemplate="token %{x}: %{customdata}<extra></extra>", showlegend=False,
    )  # fmt: skip
    loop = next((one for one in reversed(stretches) if one.loop), None)
    curves = [] if loop is None else _round_curves(trace, loop)
    again = f"{repeated_share(ids):.0%} of the {GRAM}-grams occur earlier in the text"
    drawing = chart(
        f"What the text says again: {again}", "token", "", marks, *curves, height=560 if curves else 320
    )
    longest = max(one.period + min(one.period, one.lasts) for one in stretches)
    for one in stretches:
        for k in _copy_starts(one):
            drawing.add_shape(_band_shape(one, k, longest))
    axis = dict(drawing.layout["yaxis"].to_plotly_json())
    drawing.update_layout(
        yaxis=dict(range=[-0.05, 1.05], visible=False, domain=[0.56, 1] if curves else [0, 1])
    )
    if curves:
        drawing.update_layout(
            xaxis=dict(anchor="y"),
            xaxis2={
                **axis,
                "title": f"round of {loop.period if loop else 0} tokens",
                "anchor": "y2",
                "dtick": 1,
            },
            yaxis2={**axis, "title": "share", "domain": [0, 0.38], "range": [0, 1.02]},
            legend=dict(y=-0.2, yanchor="top"),
            margin=dict(b=104),
        )
    return drawing


def _copy_starts(one: Repeat) -> range:
    """The beginnings of a stretch's copies, counted from its own beginning."""
    return range(0, one.lasts, one.period)


def _band_shape(one: Repeat, k: int, longest: int) -> dict[str, object]:
    """The band of a copy between two arcs; the outer one goes from the original's first token to the copy's last."""
    period, wide = one.period, min(one.period, one.lasts - k)
    last, begin = one.at + k + wide, one.at + k - period
    high = 0.35 + 0.65 * (last - begin) / longest
    low = high * (period - wide) / (last - begin)
    outer, inner = (begin, last, high), (begin + wide, last - wide, low)
    path = f"M {begin},0 {_arc(*outer)} L {inner[1]},0 {_arc(inner[1], inner[0], low)} Z"
    colour = REJECT if one.loop else MUTED
    return dict(type="path", path=path, fillcolor=colour, opacity=0.3, line=dict(width=0), layer="below")


def _arc(begin: float, end: float, high: float) -> str:
    """Half an ellipse as two cubic curves, from `begin` to `end` over the height `high`."""
    middle, bent = (begin + end) / 2, 0.5523 * abs(end - begin) / 2 * (1 if end > begin else -1)
    rise = 0.5523 * high
    return f"C {begin},{rise} {middle - bent},{high} {middle},{high} C {middle + bent},{high} {end},{rise} {end},0"


def _round_curves(trace: Trace, loop: Repeat) -> Sequence[go.Scatter]:
    laws = [law for step in trace.steps for law in emitted_probabilities(step)]
    known = [one for one in loop_rounds(loop, laws) if one.tp is not None]
    return [
        go.Scatter(
            x=[one.n for one in known], y=[getattr(one, name) for one in known], name=ROUND.get(name, words),
            mode="lines+markers", line=dict(color=colour, dash=dash), xaxis="x2", yaxis="y2",
            hovertemplate="round %{x}: %{y:.3f}<extra></extra>",
        )
        for name, (colour, dash, words) in LINES.items()
        if known
    ]  # fmt: skip
