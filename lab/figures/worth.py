"""Worth: when a draft pays, by the formula and by the clock."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from decodescope.engine.cost.cost import speedup
from decodescope.engine.trace import Trace
from decodescope.engine.trace.query.summary import summarise

from .chart import ACCEPT, INK, MUTED, chart

if TYPE_CHECKING:
    from pandas import DataFrame


def table(plain: Trace, drafted: Sequence[Trace]) -> DataFrame:
    """One row per trace of `drafted`, measured against `plain` decoding of the same prompt.

    accepted: share of tested tokens that stayed;  draft, verify: time of a drafted token and of a check, in steps of plain
    decoding;  formula: the speedup computed from these three;  measured: from tokens per second
    """
    import pandas

    one = statistics.median(step.wall_us for step in plain.steps)
    base = summarise(plain).tokens_per_s
    rows = []
    for trace in drafted:
        s = summarise(trace)
        full = [step for step in trace.steps if step.drafted]
        length = max((step.drafted for step in full), default=0)
        usual = [step for step in full if step.drafted == length]
        draft = statistics.median(step.draft_us for step in usual) / length / one
        verify = statistics.median(step.wall_us - step.draft_us for step in usual) / one
        share = s.acceptance or 0.0
        rows.append(
            (length, share, draft, verify, speedup(share, length, draft, verify), s.tokens_per_s / base)
        )
    return pandas.DataFrame(
        rows, columns=["length", "accepted", "draft", "verify", "formula", "measured"]
    ).round(3)


def figure(worth: DataFrame) -> go.Figure:
    """Speedup by length of the draft: hollow by the formula, filled by the clock; below the line drafting loses time."""
    x = worth["length"].tolist()
    dashed = dict(mode="lines", line=dict(color=MUTED, dash="dash"), hoverinfo="skip")
    hollow = dict(size=10, color="#ffffff", line=dict(color=INK, width=1.5))
    parts = [
        go.Scatter(x=x, y=[1.0] * len(x), name="plain decoding", **dashed),
        go.Scatter(x=x, y=worth["formula"].tolist(), name="formula", mode="markers", marker=hollow),
        go.Scatter(
            x=x,
            y=worth["measured"].tolist(),
            name="measured",
            mode="markers",
            marker=dict(size=10, color=ACCEPT),
        ),
    ]
    drawing = chart("Is the draft worth it?", "tokens drafted per step", "speed, plain decoding = 1", *parts)
    return drawing.update_xaxes(tickvals=x).update_yaxes(rangemode="tozero")
