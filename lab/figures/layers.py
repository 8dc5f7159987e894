"""Layers: the depth map: the state of each layer in each pass of the target that wrote, and where passes exited."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from decodescope.engine.trace import Trace
from decodescope.engine.trace.records.events import Exit, Step
from decodescope.engine.trace.records.pieces import visible_token
from decodescope.lab.formatting.style import LIGHT
from decodescope.lab.wire.depths import count_resumed_rows, exit_pass_indices, layer_letters, partial_passes

from .chart import INK, chart, escape_label

# letter -> its letter in a map, a word, its colour, its pattern, and the part of a cell that it fills, from above; as in the
# page's lab/web/scope/model/depth.js
DID: dict[str, tuple[str, str, str, str, tuple[float, float]]] = {
    "r": ("R", "ran", "time-3", "", (0.0, 1.0)),
    "a": ("A", "attention alone", "time-2", "", (0.0, 0.5)),
    "f": ("F", "feed-forward alone", "time-2", "", (0.5, 1.0)),
    "p": ("P", "propagated", "gone", "/", (0.0, 1.0)),
    "c": ("C", "copied", "gone", ".", (0.0, 1.0)),
    "w": ("W", "waiting", "bg", "", (0.0, 1.0)),
    "l": ("L", "ran later", "time-2", "", (0.0, 1.0)),
    "s": ("S", "run by some of its rows", "time-2", "", (0.0, 1.0)),
    "b": ("", "in another pass of the step", "gone", "", (0.0, 1.0)),
    "-": ("", "absent", "gone", "", (0.0, 1.0)),
}


@dataclass
class PassColumn:
    """A pass of the map. letters: of each layer;  drafted: its number among the step's drafting passes, or None;  token:
    that it wrote or guessed, if known;  left: number of layers after which none ran; None: it checks what others began;
    exit: the results of its tests"""

    step: int
    letters: list[str]
    drafted: int | None
    token: int | None
    left: int | None
    exit: Exit | None


def pass_columns(steps: Iterable[Step], layers: int) -> list[PassColumn]:
    """The passes of these steps in order; tokens that waited before a layer count as run once a later pass ran it."""
    shown: list[PassColumn] = []
    waits: list[list[PassColumn]] = [[] for _ in range(layers)]
    for step in steps:
        passes, ran = partial_passes(step), [x for x in step.passes if x.lane == "target"]
        own = [_pass_column(step, one, k, len(passes), layers) for k, one in enumerate(passes)]
        if not passes and ran:
            own = [
                PassColumn(
                    step.step, ["r"] * layers, None, step.emitted[-1] if step.emitted else None, layers, None
                )
            ]
        for k, left in zip(exit_pass_indices(step, passes), step.exits or (), strict=False):
            own[k].exit = left
        shown += own
        for column in own:
            for layer, letter in enumerate(column.letters):
                waits[layer] += [column] if letter == "w" else []
        for layer, many in enumerate(count_resumed_rows(step, layers)):
            for column in waits[layer][:many]:
                column.letters[layer] = "l"
            del waits[layer][:many]
    return shown


def _pass_column(step: Step, one: Any, k: int, many: int, layers: int) -> PassColumn:
    drafted = k if one.phase == "draft" else None
    marks = [("b" if x == "-" and many > 1 else x) for x in layer_letters(one, layers)]
    guess = (
        step.draft.tokens[k]
        if drafted is not None and step.draft is not None and k < len(step.draft.tokens)
        else None
    )
    if drafted is not None:
        token = guess
    elif step.emitted:
        token = step.emitted[-1]
    else:
        token = None
    at = max((i for i, x in enumerate(marks) if x in "raf"), default=-1) + 1
    return PassColumn(
        step.step,
        marks,
        drafted,
        token,
        at if not one.routed and (many == 1 or drafted is not None) else None,
        None,
    )


def figure(trace: Trace) -> go.Figure:
    """A column per pass and a row per layer, with letters and patterns as on the page. Raises ValueError if all layers always
    ran.
    A line connects the exits, and a diamond marks where an oracle knew the full depth's choice."""
    layers = int(trace.header.model.get("n_layers", 0))
    if layers < 1 or not any(partial_passes(step) for step in trace.steps):
        raise ValueError(
            "Every pass of this run ran all layers, unasked: take a run with a depth rule, or drafts by an exit."
        )
    shown = pass_columns(trace.steps, layers)
    marks = [
        _letter_cells(letter, shown, trace.pieces)
        for letter in DID
        if any(letter in x.letters for x in shown)
    ]
    marks += _exit_line(shown, layers) + _oracle_marks(shown, layers)
    height = 150 + layers * (24 if layers <= 16 else 12)
    drawing = chart("What became of each layer", "step", "layer", *marks, height=height)
    first = [n for n, x in enumerate(shown) if not n or shown[n - 1].step != x.step]
    apart = max(1, len(first) // 24)
    drawing.update_xaxes(
        tickvals=first[::apart], ticktext=[str(shown[n].step) for n in first[::apart]], showgrid=False
    )
    drawing.update_yaxes(range=[layers - 0.5, -0.5], tickvals=[*range(layers)], showgrid=False)
    return drawing.update_layout(barmode="overlay", bargap=0.06, showlegend=True)


def _letter_cells(letter: str, shown: Sequence[PassColumn], pieces: Any) -> go.Bar:
    """The cells with one letter."""
    sign, word, colour, pattern, (top, end) = DID[letter]
    cells = [
        (n, layer, x) for n, x in enumerate(shown) for layer, one in enumerate(x.letters) if one == letter
    ]
    return go.Bar(
        x=[n for n, _, _ in cells],
        y=[0.94 * (end - top)] * len(cells),
        base=[layer - 0.47 + 0.94 * top for _, layer, _ in cells],
        name=f"{sign} {word}".strip(),
        text=[sign] * len(cells) if len(shown) <= 64 else None,
        textposition="inside",
        insidetextanchor="middle",
        insidetextfont=dict(color=LIGHT["bg"] if letter == "r" else INK, size=10),
        textangle=0,
        constraintext="none",
        customdata=[f"{_pass_label(x, pieces)}, layer {layer}: {word}" for _, layer, x in cells],
        hovertemplate="%{customdata}<extra></extra>",
        marker=dict(
            color=LIGHT[colour],
            line=dict(color=LIGHT["muted"], width=1 if letter == "w" else 0),
            pattern=dict(shape=pattern, fgcolor=LIGHT["time-3"], size=5, solidity=0.3),
        ),
    )


def _pass_label(one: PassColumn, pieces: Any) -> str:
    name = "" if one.token is None else f", {escape_label(visible_token(one.token, pieces))}"
    return f"step {one.step}{'' if one.drafted is None else f', draft {one.drafted + 1}'}{name}"


def _exit_line(shown: Sequence[PassColumn], layers: int) -> list[go.Scatter]:
    """The line of exits, if a pass exited."""
    if not any(x.left is not None and x.left < layers for x in shown):
        return []
    x = [at for n in range(len(shown)) for at in (n - 0.5, n + 0.5)]
    y = [None if one.left is None else one.left - 0.5 for one in shown for _ in range(2)]
    return [
        go.Scatter(
            x=x, y=y, mode="lines", name="where passes left", line=dict(color=INK, width=2), hoverinfo="skip"
        )
    ]


def _oracle_marks(shown: Sequence[PassColumn], layers: int) -> list[go.Scatter]:
    """Marks of the passes that exited at the earliest layer with the same best token as the whole model (the oracle)."""
    at = [
        (n, x.left - 0.5)
        for n, x in enumerate(shown)
        if x.exit and x.exit.whole and x.left is not None and x.left < layers
    ]
    if not at:
        return []
    marker = dict(symbol="diamond", size=9, color=INK)
    x, y = zip(*at, strict=True)
    return [
        go.Scatter(
            x=x, y=y, mode="markers", name="the full depth's own choice", marker=marker, hoverinfo="skip"
        )
    ]
