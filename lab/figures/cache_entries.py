"""Cache entries: the entries that the target's cache keeps of the text, over the steps, as a count and one by one."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from decodescope.engine.core.arguments import check_whole_number
from decodescope.engine.trace import Trace
from decodescope.lab.cache.entry_states import ENTRY_WORDS, shared_stretches
from decodescope.lab.cache.lifetimes import EntryLifetimes
from decodescope.lab.formatting.style import LIGHT

from .chart import INK, MUTED, REJECT, chart

POINTS = 2000  # steps of a line, at most
CELLS = 400  # columns of a map, and rows, at most
# kind of entries -> the pattern over its cells; slanted lines, dots and a line through each cell are the page's too
PATTERNS = {"absent": "/", "unread": ".", "packed": "-", "merged": "+", "shared": "|", "loaded": "x"}


def figure(trace: Trace) -> go.Figure:
    """Entries of the fullest layer after each step, the number of tokens read, and how many entries left.
    Raises ValueError if the prefill was not recorded."""
    lives = EntryLifetimes.of(trace)
    series = lives.series(POINTS)
    line = dict(mode="lines", hovertemplate="step %{x}: %{y} %{fullData.name}<extra></extra>")
    parts: list[go.Scatter | go.Bar] = [
        go.Scatter(
            x=series["step"],
            y=series["length"],
            name="tokens read",
            line=dict(color=MUTED, dash="dash"),
            **line,
        ),
        go.Scatter(
            x=series["step"], y=series["held"], name="entries held", line=dict(color=INK, shape="hv"), **line
        ),
    ]
    if any(series["evicted"]):
        hover = f"step %{{x}}: %{{y}} {lives.went}<extra></extra>"
        parts.append(
            go.Bar(
                x=series["step"],
                y=series["evicted"],
                name=lives.went,
                marker=dict(color=REJECT),
                hovertemplate=hover,
            )
        )
    return chart("What the cache holds", "step", "entries of a KV head", *parts)


def entry_lifetimes(trace: Trace, layer: int | None = None, head: int | None = None) -> go.Figure:
    """The content of the cache: positions of the text upwards, steps across, by the share of layers and KV heads with the
    entry. Patterns mark positions that are absent, packed, merged, shared or loaded somewhere, or read nowhere, in the words of
    the page (`ENTRY_WORDS`).
    If a layer, or one KV head of it, is given, it shows that one. Heads that were cut out of the model do not count. Raises
    ValueError as `figure` does, and if all that is asked for was cut, ParamError for a layer or head that the model does not
    have."""
    run = EntryLifetimes.of(trace)
    if run.unplaced:
        raise ValueError(run.unplaced)
    grid = np.arange(run.rows).reshape(run.layers, run.heads)
    name = "all layers and KV heads"
    if layer is not None:
        grid, name = grid[check_whole_number(layer, "layer", 0, run.layers - 1)][None], f"layer {layer}"
    if head is not None:
        grid, name = grid[:, check_whole_number(head, "head", 0, run.heads - 1)], f"{name}, KV head {head}"
    rows = np.setdiff1d(grid.ravel(), run.cut)
    if not len(rows):
        raise ValueError(
            f"There is nothing to draw: {name} was cut out of the model. Choose another layer or head."
        )
    if cut := grid.size - len(rows):
        name += f" ({cut} of {grid.size} were cut)"
    steps = range(0, run.count, max(1, -(-run.count // CELLS)))
    places = np.arange(
        0, run.length[-1] if run.count else 0, max(1, -(-(run.length[-1] if run.count else 0) // CELLS))
    )
    shares = np.full((len(places), len(steps)), np.nan)
    marked = {kind: np.zeros(shares.shape, bool) for kind in PATTERNS}
    for column, i in enumerate(steps):
        read = places[places < run.length[i]]
        shares[: len(read), column] = run.held_mask(i)[rows].mean(0)[read]
        for kind, mask in _marks(trace, run, i, rows).items():
            marked[kind][: len(read), column] = mask[read]
    drawing = chart(
        f"Who is in the cache: {name}",
        "step",
        "position in the text",
        go.Heatmap(
            x=list(steps),
            y=places,
            z=shares,
            zmin=0,
            zmax=1,
            colorscale=[[0, LIGHT["gone"]], [1e-9, LIGHT["mass-low"]], [1, LIGHT["mass-high"]]],
            colorbar=dict(title="held by", tickformat=".0%"),
            hovertemplate="after step %{x}, position %{y}: held by %{z:.0%}<extra></extra>",
        ),
        *(_pattern_area(kind, mask, steps, places) for kind, mask in marked.items() if mask.any()),
        height=440,
    )
    drawing.add_hline(
        y=run.prompt - 0.5, line=dict(color=MUTED, dash="dot"), annotation_text="the prompt ends"
    )
    for text in _extra_sentences(run):
        drawing.add_annotation(
            text=text,
            xref="paper",
            yref="paper",
            x=0,
            y=-0.2,
            xanchor="left",
            showarrow=False,
            font=dict(color=MUTED),
        )
    return drawing


def _marks(trace: Trace, run: EntryLifetimes, i: int, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Kind -> bool [n]: the positions that are of a kind after step i in some of these rows."""
    n = run.length[i]
    change = next((x for x in trace.steps[i].cache if x.lane == "target"), None)
    marks: dict[str, np.ndarray] = {}
    if (absent := run.absent_mask(i)) is not None:
        marks["absent"] = absent[rows].any(0)
    if change is not None and change.read is not None and change.read.shape[:2] == (run.layers, run.heads):
        seen = change.read.reshape(run.rows, -1)[rows]
        marks["unread"] = np.pad(~seen.astype(bool).any(0), (0, max(0, n - seen.shape[1])))[:n]
        marks["unread"] &= run.held_mask(i)[rows].any(0)
    layers = run.fates.packed_layers(i)
    if (packed := run.fates.packed_length(i)) and (
        layers is None or np.isin(rows // run.heads, layers).any()
    ):
        marks["packed"] = np.arange(n) < packed
    if (merged := run.fates.merge_map(i, run.rows, 1, n)) is not None:
        marks["merged"] = merged[rows].any(0)
    at = np.arange(n)
    if change is not None and change.shared is not None:
        stretches = shared_stretches(change.shared)
        marks["shared"] = np.any(
            [(first <= at) & (at < stop) for first, stop, _ in stretches] or [at < 0], axis=0
        )
    if loaded := (trace.header.loaded or {}).get("entries", 0):
        marks["loaded"] = at < loaded
    return marks


def _pattern_area(kind: str, mask: np.ndarray, steps: range, places: np.ndarray) -> go.Scatter:
    """The cells of a kind as one patterned area, with its words in the legend. mask: bool [places, steps]"""
    wide, high = steps.step, int(places[1] - places[0]) if len(places) > 1 else 1
    across: list[float | None] = []
    up: list[float | None] = []
    for row, line in enumerate(mask):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(np.int8), [0]])))
        for first, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            left, right = steps[first] - wide / 2, steps[stop - 1] + wide / 2
            bottom, top = places[row] - high / 2, places[row] + high / 2
            across += [left, right, right, left, left, None]
            up += [bottom, bottom, top, top, bottom, None]
    pattern = dict(shape=PATTERNS[kind], fgcolor=REJECT, bgcolor="rgba(0,0,0,0)", size=6, fillmode="overlay")
    return go.Scatter(
        x=across,
        y=up,
        mode="lines",
        fill="toself",
        line=dict(width=0),
        fillpattern=pattern,
        name=ENTRY_WORDS[kind],
        showlegend=True,
        hoverinfo="skip",
    )


def _extra_sentences(run: EntryLifetimes) -> list[str]:
    """What was put beside the entries of the text."""
    extras = run.fates.extra_kv(run.count - 1) if run.count else []
    kinds = [ENTRY_WORDS["soft" if one["entries"] else "virtual"] for one in extras]
    return ["In addition: " + "; ".join(dict.fromkeys(kinds)) + "."] if kinds else []
