"""Model: the structure of a run's model, layer by layer: bytes by matrix, bits by shade, cut parts hatched, heads by KV
head."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import plotly.graph_objects as go

from decodescope.engine.core.arguments import check_choice
from decodescope.engine.trace import Trace
from decodescope.lab.formatting.style import LIGHT, format_bytes, format_count
from decodescope.lab.wire.model_build import encode_models

from .chart import INK, MUTED, REJECT, chart, escape_label

MATRICES = ("qkv", "out", "gate_up", "down")
SHADES = (
    (3.5, "bits-1"),
    (6.0, "bits-2"),
    (12.0, "bits-3"),
    (24.0, "bits-4"),
    (float("inf"), "bits-5"),
)  # as on the page


class MatrixCell(NamedTuple):
    """A matrix of a model.
    row: its row in the figure; shape: its shape; whole: the shape of the uncut one; bits: bits of a number; bytes: size of
    what is there; gone: bytes of what was cut, in the model's type; saved: bytes saved by fewer bits"""

    row: str
    name: str
    shape: tuple[int, int]
    whole: tuple[int, int]
    bits: float
    bytes: float
    gone: float
    saved: float


def matrix_cells(model: dict[str, Any]) -> Iterator[MatrixCell]:
    """The matrices of a model as `built` describes it, layer by layer, then the embedding and the head."""
    usual = model["usual"]
    for i, kind in enumerate(model["layers"]):
        parts = zip(MATRICES, model["kinds"][kind]["parts"], model["whole"]["parts"], strict=True)
        for name, (rows, columns, bits), (tall, wide) in parts:
            yield _matrix_cell(f"L{i}", name, (rows, columns), (tall, wide), bits, usual)
    for name, rows, columns, bits in model["ends"]:
        yield _matrix_cell(name, name, (rows, columns), (rows, columns), bits, usual)


def _matrix_cell(
    row: str, name: str, shape: tuple[int, int], whole: tuple[int, int], bits: float, usual: float
) -> MatrixCell:
    many = shape[0] * shape[1]
    gone = (whole[0] * whole[1] - many) * usual / 8
    return MatrixCell(row, name, shape, whole, bits, many * bits / 8, gone, many * (usual - bits) / 8)


def figure(trace: Trace, role: str | None = None) -> go.Figure:
    """A bar per layer with its matrices: as long as their bytes, shaded by the bits of a number, which are written in it.
    Hatched: what the original model has in addition. Dotted: what fewer bits save. At the right are its query heads by KV
    head. role: "target", "draft", ...; by default the first model that was made from another. Raises ValueError if the trace
    does not have the shapes of its models, and ParamError for a role that it does not have."""
    models = encode_models(trace.header)
    if not models:
        raise ValueError("This trace does not record what its model is made of.")
    usual = next((name for name, x in models.items() if x["changed"]), next(iter(models)))
    model = models[check_choice(role, "role", tuple(models)) if role is not None else usual]
    drawn = list(matrix_cells(model))
    bars = [*_present_bars(drawn), *_absent_bars(drawn, "gone"), *_absent_bars(drawn, "saved")]
    of = f" of {format_bytes(model['dense'])}" if model["changed"] else ""
    title = f"{model['name']}: {format_count(model['params'])} parameters, {format_bytes(model['bytes'])}{of}"
    rows = list(dict.fromkeys(x.row for x in drawn))
    drawing = chart(
        escape_label(title), "MiB", "", *bars, *_head_squares(model), height=max(330, 190 + 26 * len(rows))
    )
    names = dict(categoryorder="array", categoryarray=rows, autorange="reversed")
    drawing.update_layout(barmode="stack", bargap=0.25, margin=dict(l=140, t=50, b=120), yaxis=names)
    words = dict(text="query heads by KV head", font=dict(size=13))
    axis = dict(
        domain=[0.75, 1], title=words, showgrid=False, showticklabels=False, zeroline=False, linecolor=MUTED
    )
    drawing.update_xaxes(domain=[0, 0.7])
    return drawing.update_layout(xaxis2={**axis, "anchor": "y"}, legend=dict(y=-0.2, yanchor="top"))


def _present_bars(drawn: list[MatrixCell]) -> Iterator[go.Bar]:
    """A trace for each matrix and shade; the legend names each shade once."""
    named: set[str] = set()
    for name, shade in dict.fromkeys((x.name, _bits_shade(x.bits)) for x in drawn if x.bytes):
        own = [x for x in drawn if x.bytes and (x.name, _bits_shade(x.bits)) == (name, shade)]
        yield _matrix_bars(own, shade, shade not in named, drawn)
        named.add(shade)


def _matrix_bars(own: list[MatrixCell], shade: str, first: bool, drawn: list[MatrixCell]) -> go.Bar:
    bits = sorted({round(x.bits, 2) for x in drawn if x.bytes and _bits_shade(x.bits) == shade})
    span = ", ".join(f"{x:g}" for x in bits) if len(bits) < 4 else f"{bits[0]:g} to {bits[-1]:g}"
    return go.Bar(
        y=[x.row for x in own],
        x=[x.bytes / 2**20 for x in own],
        orientation="h",
        name=f"{span} bits a weight",
        legendgroup=shade,
        showlegend=first,
        marker=dict(color=LIGHT[shade], line=dict(color=LIGHT["time-3"], width=1)),
        text=[f"{round(x.bits, 2):g}" for x in own],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        textfont=dict(color=LIGHT["on-few" if shade in ("bits-1", "bits-2") else "on-many"]),
        customdata=[_hover_text(x) for x in own],
        hovertemplate="%{customdata}<extra></extra>",
    )


def _bits_shade(bits: float) -> str:
    return next(shade for limit, shade in SHADES if bits < limit)


def _hover_text(x: MatrixCell) -> str:
    shape = f"{x.name}, {x.shape[0]:,} × {x.shape[1]:,}, {round(x.bits, 2):g} bits a weight: {format_bytes(x.bytes)}"
    more = f"<br>{format_bytes(x.gone)} gone of {x.whole[0]:,} × {x.whole[1]:,}" if x.gone else ""
    return shape + more + (f"<br>{format_bytes(x.saved)} saved by fewer bits" if x.saved > 0 else "")


def _absent_bars(drawn: list[MatrixCell], what: str) -> Iterator[go.Bar]:
    """What is missing: hatched for cut parts, with a dotted pattern for the saving of fewer bits."""
    own = [x for x in drawn if getattr(x, what) > 0]
    if not own:
        return
    shape, name = ("/", "gone") if what == "gone" else (".", "saved by fewer bits")
    yield go.Bar(
        y=[x.row for x in own],
        x=[getattr(x, what) / 2**20 for x in own],
        orientation="h",
        name=name,
        marker=dict(
            color=LIGHT["bg"],
            line=dict(color=REJECT if what == "gone" else LIGHT["edge"], width=1),
            pattern=dict(shape=shape, fgcolor=REJECT if what == "gone" else LIGHT["edge"], size=6),
        ),
        customdata=[_hover_text(x) for x in own],
        hovertemplate="%{customdata}<extra></extra>",
    )


class HeadSquare(NamedTuple):
    """A query head: its place and row, words, whether it is there, the number shown next to it, and the score for its tint."""

    x: float
    row: str
    said: str
    there: bool
    place: int | None = None
    score: float | None = None


def _head_squares(model: dict[str, Any]) -> Iterator[go.Scatter]:
    """A square for each query head, those of a KV head side by side; removed ones are crossed."""
    if len(model["layers"]) * sum(model["whole"]["groups"]) > 4096:
        return
    squares = list(_squares_by_head(model) if model["there"] else _squares_by_group(model))
    scored = any(x.score is not None for x in squares)
    for there, name, symbol in ((True, "query head", "square"), (False, "query head, gone", "x-thin-open")):
        own = [x for x in squares if x.there is there]
        plain = INK if there else REJECT
        tint = [x.score for x in own] if scored and there else plain
        if own:
            yield go.Scatter(
                x=[x.x for x in own],
                y=[x.row for x in own],
                mode="markers" if there else "markers+text",
                text=["" if x.place is None else str(x.place) for x in own],
                textposition="middle right",
                textfont=dict(size=10, color=REJECT),
                name=name,
                xaxis="x2",
                customdata=[x.said for x in own],
                hovertemplate="%{customdata}<extra></extra>",
                marker=dict(
                    symbol=symbol,
                    size=10 if there else 7,
                    color=tint,
                    colorscale=[[0, LIGHT["mass-low"]], [1, LIGHT["mass-high"]]]
                    if scored and there
                    else None,
                    line=dict(color=LIGHT["time-3"] if there else REJECT, width=1 if there else 1.5),
                ),
            )


def _squares_by_group(model: dict[str, Any]) -> Iterator[HeadSquare]:
    """For a model without a record of the removed heads: the remaining ones by KV head, then the number of removed ones."""
    for i, kind in enumerate(model["layers"]):
        groups, at = model["kinds"][kind]["groups"], 0.0
        for g, many in enumerate(groups):
            yield from (
                HeadSquare(at + k, f"L{i}", f"layer {i}, KV head {g}: {many} query heads", True)
                for k in range(many)
            )
            at += many + 0.8
        lost = sum(model["whole"]["groups"]) - sum(groups)
        yield from (
            HeadSquare(at + k, f"L{i}", f"layer {i}: {lost} query heads are gone", False) for k in range(lost)
        )


def _squares_by_head(model: dict[str, Any]) -> Iterator[HeadSquare]:
    """Each query head in the KV head that it had in the whole model, with the findings on it."""
    own = [x for x in model["findings"] if x["over"] == "head"]
    places = next((x for x in own if _are_integers(x["values"])), None)
    scores = next((x for x in own if x is not places), None)
    group = model["whole"]["groups"][0]
    for i, row in enumerate(model["there"]):
        for h, there in enumerate(row):
            values = [(x["word"], x["values"][i][h], x["unit"]) for x in own]
            lines = [
                f"{word}: {value:.4g} {unit}".rstrip() for word, value, unit in values if value is not None
            ]
            said = "<br>".join(
                [f"layer {i}, query head {h} of KV head {h // group}{'' if there else ', gone'}", *lines]
            )
            place, score = (None if x is None else x["values"][i][h] for x in (places, scores))
            yield HeadSquare(
                h + 0.8 * (h // group),
                f"L{i}",
                escape_label(said).replace("&lt;br&gt;", "<br>"),
                there,
                place,
                score,
            )


def _are_integers(rows: list[list[Any]]) -> bool:
    return all(isinstance(x, int) for row in rows for x in row if x is not None)
