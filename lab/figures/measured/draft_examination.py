"""Draft examination: what `doctor draft` measured, as panels; with a sound draft, if one is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ..chart import ACCEPT, INK, LINE, MUTED, chart, escape_label

MOST = 5  # readings that are drawn: those that help most
WIDE = 30  # characters of a line of their names
OWN = "this draft"
Record = Mapping[str, Any]
Places = tuple[list[str], list[float | None]]  # the labels along an axis, and a share for each


def _label_ranges(rows: Sequence[Record], value: str) -> Places:
    """Rows with `from` and `to`."""

    def words(low: int, high: int | None) -> str:
        if high is None:
            return f"{low}+"
        return str(low) if low == high else f"{low}–{high}"

    return [words(x["from"], x["to"]) for x in rows], [x[value] for x in rows]


def _label_signs(rows: Sequence[Record], key: str, value: str) -> Places:
    """Rows with a signed number."""
    return [f"{x[key]:+d}" if x[key] else "0" for x in rows], [x[value] for x in rows]


def _kinds(record: Record) -> Places:
    rows = [
        *((x["class"].removeprefix("tokens "), x) for x in record["by_class"]),
        *(("chat template" if x["chat"] else "plain prompts", x) for x in record["by_template"]),
    ]
    return [name for name, x in rows if x["places"]], [x["overlap"] for _, x in rows if x["places"]]


# panel -> its title, the title of the x axis, and the shares of a record
PANELS: dict[str, tuple[str, str, Callable[[Record], Places]]] = {
    "ranks": (
        "How the draft ranks the target's token",
        "rank in the draft",
        lambda record: _label_ranges(record["ranks"], "share"),
    ),
    "offsets": (
        "Guesses that are right for another place",
        "places away",
        lambda record: _label_signs(record["by_offset"], "offset", "agree"),
    ),
    "ids": (
        "Distance of the ids",
        "target's id minus the draft's",
        lambda record: _label_signs(record["by_id_distance"], "distance", "share"),
    ),
    "positions": (
        "Overlap by position",
        "position in the text, from",
        lambda record: (
            [str(x["from"]) for x in record["by_position"]],
            [x["overlap"] for x in record["by_position"]],
        ),
    ),
    "kinds": ("Overlap by kind of token", "", _kinds),
}


def figure(record: Record, sound: Record | None = None, panels: Sequence[str] = ()) -> go.Figure:
    """An examination as `decodescope doctor draft --out` writes it: the best readings, then the shares of PANELS.

    sound: the record of a draft without a fault on the same texts, in grey next to it;  panels: those that are drawn

    Raises ValueError for a panel that there is not.
    """
    if unknown := [x for x in panels if x not in (*PANELS, "readings")]:
        raise ValueError(f"there is no panel {unknown[0]!r}: there are readings, {', '.join(PANELS)}.")
    names = list(panels) or ["readings", *PANELS]
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    titles = [PANELS[x][0] if x in PANELS else "Overlap when read otherwise" for x in names]
    grid = make_subplots(rows, columns, subplot_titles=titles, horizontal_spacing=0.09, vertical_spacing=0.26)
    for k, name in enumerate(names):
        at = dict(row=k // columns + 1, col=k % columns + 1)
        for bar in _bars(name, record, sound):
            bar.showlegend = bar.name not in {x.name for x in grid.data}
            grid.add_trace(bar, **at)
        share = dict(range=[0, 1.02], tickformat=".0%", gridcolor=LINE, zeroline=False)
        if name == "readings":
            grid.update_xaxes(title="", **share, **at).update_yaxes(autorange="reversed", **at)
        else:
            grid.update_xaxes(title=PANELS[name][1], type="category", **at).update_yaxes(**share, **at)
    first = record["findings"][0]
    words = escape_label(f"{record['draft']} for {record['target']}")
    title = f"{words}: overlap {record['overlap']:.0%}; {first['title']}"
    plain = chart(title, "", "", height=120 + 260 * rows)
    grid.update_layout(
        title=plain.layout.title.update(x=0.02, xref="container"),
        font=plain.layout.font,
        paper_bgcolor=plain.layout.paper_bgcolor,
        plot_bgcolor=plain.layout.plot_bgcolor,
        hoverlabel=plain.layout.hoverlabel,
        height=plain.layout.height,
        margin=dict(l=60, r=20, t=96, b=64),
        legend=dict(orientation="h", y=1 + 0.09 / rows, yanchor="bottom", x=1, xanchor="right"),
        barmode="group",
    )
    grid.update_annotations(font_size=13).update_xaxes(title_font_size=13, tickangle=0, tickfont_size=11)
    return grid


def _bars(name: str, record: Record, sound: Record | None) -> list[go.Bar]:
    if name == "readings":
        rows = sorted(record["experiments"], key=lambda x: x["before"] - x["after"])[:MOST]
        words = ["<br>".join(map(escape_label, wrap(x["how"], WIDE))) for x in rows]
        pairs = ((OWN, "before", INK), ("read otherwise", "after", ACCEPT))
        return [
            go.Bar(
                y=words,
                x=[x[key] for x in rows],
                orientation="h",
                name=label,
                marker=dict(color=colour),
                hovertemplate=f"%{{y}}: %{{x:.1%}}<extra>{label}</extra>",
            )
            for label, key, colour in pairs
        ]
    several = [(OWN, record, INK), *([("a sound draft", sound, MUTED)] if sound else [])]
    bars = []
    for label, one, colour in several:
        places, shares = PANELS[name][2](one)
        bars.append(
            go.Bar(
                x=places,
                y=shares,
                name=label,
                legendgroup=label,
                marker=dict(color=colour, opacity=1 if one is record else 0.45),
                hovertemplate=f"%{{x}}: %{{y:.1%}}<extra>{label}</extra>",
            )
        )
    return bars
