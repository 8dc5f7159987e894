"""Notes: the signals that the parts of a method recorded over the steps of a run, drawn by kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import plotly.graph_objects as go

from decodescope.engine.core.note import Kind, Note
from decodescope.engine.trace import Trace
from decodescope.engine.trace.checks.notes import declared_notes, iter_note_values
from decodescope.lab.formatting.tokens import escape_html

from .chart import ACCEPT, INK, MUTED, TARGET, chart, text_label

LONGEST = 200  # characters of a part's words
MOST = 16  # members of a set with a row of their own: the most frequent ones

_Singles = list[tuple[int, Any, Any]]  # (step, the node or row that the value belongs to, value)


def figure(trace: Trace, name: str, part: str | None = None) -> go.Figure:
    """The signal that a part recorded under `name`, over the steps, with its reference line.
    part: its kind, if two parts of the method use the name. All clocks of a part share one figure. Raises ValueError for a
    signal that no part of the run declares."""
    part = _find_part(trace, name, part)
    note = trace.header.tells[part][name]
    marks = _MARKS[note.kind](trace, part, name)
    word, unit = (
        ("time", "ms") if note.kind == "clock" else (_escape_words(note.word), _escape_words(note.unit))
    )
    title = f"{word}, {_escape_words(note.what)}" if note.what and note.kind != "clock" else word
    axis = {"grid": "row", "set": "", "track": "lane"}.get(note.kind, unit or word)
    drawing = chart(title, unit if note.kind == "track" else "step", axis, *marks, height=320)
    if note.kind == "track":
        return drawing.update_layout(barmode="overlay").update_yaxes(autorange="reversed", dtick=1)
    return drawing.update_yaxes(type="category") if note.kind in ("set", "grid") else drawing


def _find_part(trace: Trace, name: str, part: str | None) -> str:
    declared = {kind: list(notes) for kind, notes in trace.header.tells.items()}
    kinds = [kind for kind, names in declared.items() if name in names and part in (None, kind)]
    if len(kinds) == 1:
        return kinds[0]
    if kinds:
        raise ValueError(
            f"{' and '.join(kinds)} both record {name!r}: say which, figure(trace, {name!r}, part={kinds[0]!r})."
        )
    known = ", ".join(f"{x} ({kind})" for kind, names in declared.items() for x in names)
    raise ValueError(
        f"No part of this run records {name!r}; "
        + (f"recorded are {known}." if known else "none records any signals.")
    )


def _note_values(trace: Trace, part: str, name: str) -> tuple[Note, _Singles]:
    """The note, and all values recorded under its name."""
    note, rows = trace.header.tells[part][name], _Singles()
    for step in trace.steps:
        if (value := declared_notes(trace.header, step).get(part, {}).get(name)) is not None:
            nodes = 0 if step.draft is None else len(step.draft.tokens)
            rows += [
                (step.step, at, one) for at, one in iter_note_values(note, value, nodes) if one is not None
            ]
    return note, rows


def _reference_line(trace: Trace, part: str, note: Note) -> Iterator[go.Scatter]:
    """The reference line of a note: a number, or another note's line."""
    dashed: dict[str, Any] = dict(mode="lines", line=dict(color=MUTED, dash="dash", shape="hv"))
    if note.at is not None:
        x = [0, max(len(trace.steps) - 1, 0)]
        yield go.Scatter(
            x=x,
            y=[note.at, note.at],
            name=f"{_escape_words(note.line.replace('_', ' '))} {note.at:g}",
            **dashed,
        )
    elif (other := trace.header.tells[part].get(note.line)) is not None and other.kind == "series":
        yield _line_trace(_note_values(trace, part, note.line)[1], name=_escape_words(other.word), **dashed)


def _line_trace(rows: _Singles, *, scale: float = 1.0, **look: Any) -> go.Scatter:
    return go.Scatter(x=[step for step, _, _ in rows], y=[value * scale for _, _, value in rows], **look)


def _series(trace: Trace, part: str, name: str) -> list[Any]:
    note, rows = _note_values(trace, part, name)
    return [
        _line_trace(rows, name=_escape_words(note.word), mode="lines", line=dict(color=INK, shape="hv")),
        *_reference_line(trace, part, note),
    ]


def _nodes(trace: Trace, part: str, name: str) -> list[Any]:
    note, rows = _note_values(trace, part, name)
    words = any(isinstance(one, str | list) for _, _, one in rows)
    y = [_format_member(trace, note, one) if words else one * 1.0 for _, _, one in rows]
    dots = dict(mode="markers", marker=dict(size=6, color=ACCEPT, opacity=0.6))
    name_of = f"{_escape_words(note.word)}, a node each"
    return [
        go.Scatter(x=[step for step, _, _ in rows], y=y, name=name_of, **dots),
        *_reference_line(trace, part, note),
    ]


def _spans(trace: Trace, part: str, name: str) -> list[Any]:
    note, rows = _note_values(trace, part, name)
    x = [step for step, _, _ in rows]
    base = [a for _, _, (a, _) in rows]
    high = [b - a for _, _, (a, b) in rows]
    ends = [f"{a:g} to {b:g}" for _, _, (a, b) in rows]
    outline = dict(color=INK, line=dict(color=INK, width=1))  # a span of no length is visible too
    look = dict(marker=outline, customdata=ends, hovertemplate="step %{x}: %{customdata}<extra></extra>")
    return [go.Bar(x=x, y=high, base=base, name=_escape_words(note.word), **look)]


def _members(trace: Trace, part: str, name: str) -> list[Any]:
    note, rows = _note_values(trace, part, name)
    steps: dict[str, dict[int, None]] = {}
    for step, _, one in rows:
        steps.setdefault(_format_member(trace, note, one), {})[step] = None
    often = sorted(steps, key=lambda one: -len(steps[one]))
    shown = sorted(often[:MOST], key=_sort_key)
    more = f"{len(often) - MOST} more are not shown" if len(often) > MOST else ""
    x, y = [step for one in shown for step in steps[one]], [one for one in shown for _ in steps[one]]
    squares = dict(mode="markers", marker=dict(symbol="square", size=9, color=INK))
    return [go.Scatter(x=x, y=y, name=more or _escape_words(note.word), showlegend=bool(more), **squares)]


def _clocks(trace: Trace, part: str, name: str) -> list[Any]:
    clocks = [x for x, note in trace.header.tells[part].items() if note.kind == "clock"]
    lanes = zip(
        cycle([INK, ACCEPT, TARGET, MUTED]), (_note_values(trace, part, x) for x in clocks), strict=False
    )
    return [
        _line_trace(
            rows, scale=1e-3, name=_escape_words(note.word), mode="lines", line=dict(color=colour, shape="hv")
        )
        for colour, (note, rows) in lanes
    ]


def _rows(trace: Trace, part: str, name: str) -> list[Any]:
    note, rows = _note_values(trace, part, name)
    steps = sorted({step for step, _, _ in rows})
    held: dict[str, dict[int, float]] = {}
    for step, row, value in rows:
        held.setdefault(str(row), {})[step] = value * 1.0
    shades = [[row.get(step) for step in steps] for row in held.values()]
    bar = dict(title=_escape_words(note.unit or note.word))
    return [
        go.Heatmap(
            x=steps, y=[_escape_words(row) for row in held], z=shades, colorscale="Cividis", colorbar=bar
        )
    ]


def _bars(trace: Trace, part: str, name: str) -> list[Any]:
    """The bars of a track, a colour for each word, strongest for the first word in the note's order."""
    note, rows = _note_values(trace, part, name)
    drawn = list[Any]()
    for word, colour in zip(note.rows, cycle([INK, ACCEPT, MUTED]), strict=False):
        own = [(step, bar) for step, _, bar in rows if bar[4] == word]
        text = [text_label(trace.pieces.get(bar[3], f"<#{bar[3]}>")) for _, bar in own]
        place = dict(
            base=[bar[1] for _, bar in own],
            x=[bar[2] - bar[1] for _, bar in own],
            y=[bar[0] + 1 for _, bar in own],
        )
        ends = [[step, x, bar[1], bar[2]] for (step, bar), x in zip(own, text, strict=True)]
        hover = "step %{customdata[0]}: %{customdata[1]}, %{customdata[2]} to %{customdata[3]}<extra></extra>"
        look = dict(
            orientation="h", marker=dict(color=colour), text=text, textposition="inside", hovertemplate=hover
        )
        drawn.append(go.Bar(**place, name=_escape_words(word), showlegend=True, customdata=ends, **look))
    return drawn


_MARKS: dict[Kind, Callable[[Trace, str, str], list[Any]]] = {
    "node": _nodes,
    "series": _series,
    "span": _spans,
    "set": _members,
    "clock": _clocks,
    "grid": _rows,
    "track": _bars,
}


def _format_member(trace: Trace, note: Note, x: Any) -> str:
    """The label of a member: tokens as their text, lists with the unit of each place."""
    units = note.unit.split(", ")

    def one(y: Any, unit: str) -> str:
        if unit == "token" and type(y) is int:
            return text_label(trace.pieces.get(y, f"<#{y}>"))
        return _escape_words(f"{y:g}" if type(y) is float else str(y))

    if isinstance(x, list):
        return " ".join(one(y, units[min(k, len(units) - 1)]) for k, y in enumerate(x))
    return one(x, units[0])


def _escape_words(words: str) -> str:
    """A part's own words for a chart."""
    return escape_html(words[:LONGEST])


def _sort_key(word: str) -> tuple[float, str]:
    """Numbers in their order, then words in theirs."""
    try:
        return float(word), ""
    except ValueError:
        return float("inf"), word
