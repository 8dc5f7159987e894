"""LabBench: accuracy by kind, tokens per pass and speed of each method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import plotly.graph_objects as go

from decodescope.lab.formatting.style import LIGHT, format_percent

from ..chart import ACCEPT, INK, LINE, MUTED, chart, text_label

if TYPE_CHECKING:
    from pandas import DataFrame

# share of the width: accuracy, tokens per pass, speed
PLACES = ((0.0, 0.6), (0.66, 0.81), (0.85, 1.0))
ROW = 40  # pixels of a method
# ink can be read on it
HALF = "rgba({}, {}, {}, 0.5)".format(*(int(ACCEPT[i : i + 2], 16) for i in (1, 3, 5)))
NOTHING = "nothing was measured, so there is nothing to draw: run decodescope bench labbench first."


def figure(record: Mapping[str, Any]) -> go.Figure:
    """The result of `decodescope bench labbench --out`, read from its JSON: a strip of accuracies for every method, and
    bars for tokens per target pass and for the speed, plain decoding being 1. Raises ValueError if it holds no rows."""
    methods, kinds = record["methods"], list(record["kinds"])
    if not kinds:
        raise ValueError(NOTHING)
    rows = list(range(len(methods)))
    names = [text_label(name, 40) for name in methods]
    table = [[one["by_kind"][kind]["accuracy"] for kind in kinds] for one in methods.values()]
    shown = [["–" if x is None else f"{100 * x:.0f}" for x in row] for row in table]
    labels = [text_label(kind, 24) for kind in kinds]
    strip = go.Heatmap(
        x=list(range(len(kinds))),
        y=rows,
        z=table,
        text=shown,
        texttemplate="%{text}",
        customdata=[[f"{name}, {label}" for label in labels] for name in names],
        hovertemplate="%{customdata}: %{text} %<extra></extra>",
        zmin=0,
        zmax=1,
        xgap=2,
        ygap=2,
        colorscale=[[0, LIGHT["accept-soft"]], [1, HALF]],
        textfont=dict(color=INK),
        hoverongaps=False,
        showscale=False,
    )
    bars = [
        _bars(rows, names, [one[key] for one in methods.values()], axis, word)
        for key, axis, word in (("tau", "x2", "tokens per target pass"), ("ratio", "x3", "× plain decoding"))
    ]
    drawing = chart("", "", "", strip, *bars, height=150 + ROW * len(rows))
    grid: dict[str, Any] = dict(showgrid=False, zeroline=False, linecolor=MUTED)
    upright: dict[str, Any] = dict(tickvals=list(range(len(kinds))), ticktext=labels, tickangle=-40, ticks="")
    drawing.update_xaxes(title="", domain=list(PLACES[0]), **upright, **grid)
    titles = ("tokens per target pass", "speed, plain = 1")
    for bar, place, title in zip(bars, PLACES[1:], titles, strict=True):
        most = max([1.0, *(x for x in cast("Sequence[float | None]", bar.x) if x is not None)])
        scale = dict(
            domain=list(place),
            anchor="y",
            range=[0, 1.35 * most],
            gridcolor=LINE,
            linecolor=MUTED,
            zeroline=False,
        )
        drawing.layout[cast(str, bar.xaxis).replace("x", "xaxis")] = dict(
            title=dict(text=title, font=dict(size=12)), **scale
        )
    drawing.update_yaxes(title="", tickvals=rows, ticktext=names, autorange="reversed", ticks="", **grid)
    for at in (row for row, x in zip(rows, methods.values(), strict=True) if x["exactness"] == "lossy"):
        drawing.add_annotation(
            x=0, xref="paper", xanchor="right", xshift=-4, y=at + 0.37, text="changes the text", **SMALL
        )
    drawing.add_vline(x=1, xref="x3", line=dict(color=INK, width=1, dash="dot"))
    drawing.update_layout(
        title_text=_title(record), showlegend=False, margin=dict(l=150, r=20, t=56, b=96), bargap=0.35
    )
    return drawing


SMALL = dict(yref="y", showarrow=False, font=dict(size=10, color=MUTED))


def _title(record: Mapping[str, Any]) -> str:
    settings, count = record["settings"], sum(record["kinds"].values())
    said = "greedy" if not settings["temperature"] else f"temperature {settings['temperature']:g}"
    return f"Right answers in percent, of {count} questions to {text_label(settings['model'], 40)}, {said}"


def _bars(rows: list[int], names: list[str], values: list[float | None], axis: str, word: str) -> go.Bar:
    """Bars labelled with their numbers."""
    return go.Bar(
        x=values,
        y=rows,
        xaxis=axis,
        orientation="h",
        marker=dict(color=ACCEPT),
        text=["" if x is None else f"{x:.2f}" for x in values],
        textposition="outside",
        customdata=names,
        hovertemplate=f"%{{customdata}}: %{{x:.2f}} {word}<extra></extra>",
    )


def table(record: Mapping[str, Any]) -> DataFrame:
    """The same as numbers, one row per method; accuracy by kind in percent after the other figures."""
    import pandas

    rows = []
    for name, one in record["methods"].items():
        kinds = {kind: _percent_or_none(one["by_kind"][kind]["accuracy"]) for kind in record["kinds"]}
        rows.append(
            {
                "method": name,
                "accuracy, %": _percent_or_none(one["accuracy"]),
                "tokens per target pass": _round_or_none(one["tau"]),
                "tokens/s": _round_or_none(one["tokens_per_s"]),
                "× plain decoding": _round_or_none(one["ratio"]),
                "target passes": one["target_passes"],
                "most KV, MiB": round(one["peak_kv_bytes"] / 2**20, 2),
                "most KV while writing, MiB": round(one["step_kv_bytes"] / 2**20, 2),
                "text alike": "–" if one["alike"] is None else format_percent(one["alike"]),
                **kinds,
            }
        )
    return pandas.DataFrame(rows)


def _round_or_none(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _percent_or_none(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 1)
