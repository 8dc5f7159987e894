"""KV price: the cost of a small cache in text and pass keys under each policy, over the bytes that its cache really held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import plotly.graph_objects as go

from decodescope.lab.formatting.style import LIGHT

from ..chart import MUTED, chart, text_label

if TYPE_CHECKING:
    from pandas import DataFrame

Figure = Literal["nats", "kl", "same", "keys"]
SAID: dict[Figure, str] = {
    "nats": "nats a word",
    "kl": "KL from the full cache, nats",
    "same": "words with the same likeliest token",
}
KEYS = "pass keys answered"
UNASKED = {"right": 0, "asked": 0}  # for a result that is older than these questions
COLOURS = tuple(LIGHT[x] for x in ("accept", "reject", "target", "ink", "faint"))
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x")
NOTHING = "nothing was measured, so there is nothing to draw: run decodescope bench kv first."


def figure(record: Mapping[str, Any], kind: str = "text", shows: Figure = "nats") -> go.Figure:
    """The result of `decodescope bench kv --out`, read from its JSON: a curve per method over the share of the full cache's
    bytes.
    kind: "text", ordinary texts that go on, or "copy", texts that repeat the prompt; "keys" shows the pass keys, whatever
    the kind. Raises ValueError if it contains no such texts."""
    keys = shows == "keys"
    if not record["kinds"].get("passkey" if keys else kind):
        raise ValueError(NOTHING)
    lines = []
    for i, (name, points) in enumerate(list(record["methods"].items())[1:]):
        there = sorted(
            (*x, point["share"]) for point in points if (x := _chart_point(point, kind, shows)) is not None
        )
        budgets = ["as set" if share is None else f"budget {100 * share:g} %" for _, _, share in there]
        lines.append(
            go.Scatter(
                x=[100 * x for x, _, _ in there],
                y=[y for _, y, _ in there],
                name=text_label(name, 40),
                mode="lines+markers",
                line=dict(
                    color=COLOURS[i % len(COLOURS)], width=1.5, dash="solid" if i < len(COLOURS) else "dot"
                ),
                marker=dict(size=8, symbol=SYMBOLS[(i + i // len(COLOURS)) % len(SYMBOLS)]),
                text=budgets,
                hovertemplate="%{text}: %{x:.1f} % of the bytes, %{y:.3f}<extra>"
                + text_label(name, 40)
                + "</extra>",
            )
        )
    full = _chart_point(next(iter(record["methods"].values()))[0], kind, shows)
    assert full is not None, "the full cache has measured all there is"
    if keys:
        words = "pass keys"
    elif kind == "copy":
        words = "words that copy the prompt"
    else:
        words = "words of a text"
    title = f"{text_label(record['settings']['model'], 40)}: {words}"
    drawing = chart(title, "bytes held, % of the full cache", KEYS if keys else SAID[shows], *lines)
    drawing.add_hline(
        y=full[1],
        line=dict(color=MUTED, dash="dash"),
        annotation_text="full cache",
        annotation_font_color=MUTED,
    )
    if shows in ("same", "keys"):
        drawing.update_yaxes(tickformat=".0%")
    return drawing.update_layout(height=440, legend=dict(y=-0.2, yanchor="top"), margin=dict(b=110))


def _chart_point(point: Mapping[str, Any], kind: str, shows: Figure) -> tuple[float, float] | None:
    """A method's point: its bytes as a share of the full cache's, and its figure; None if nothing was measured."""
    if shows == "keys":
        keys = point.get("passkey", UNASKED)
        return (keys["bytes"], keys["right"] / keys["asked"]) if keys["asked"] else None
    return None if point["bytes"] is None else (point["bytes"], point["by_kind"][kind][shows])


def table(record: Mapping[str, Any]) -> DataFrame:
    """The same as numbers, one row per method and budget."""
    import pandas

    rows = []
    for name, points in record["methods"].items():
        for x in points:
            figures = {
                f"{kind}: {SAID[one]}": x["by_kind"][kind][one] for kind in ("text", "copy") for one in SAID
            }
            passed = x.get("passkey", UNASKED)
            keys = {"pass keys": passed["right"], "asked": passed["asked"]}
            rows.append(
                {
                    "method": name,
                    "budget": x["share"],
                    "entries": x["entries"],
                    "bytes": x["bytes"],
                    **figures,
                    **keys,
                }
            )
    return pandas.DataFrame(rows).round(3)
