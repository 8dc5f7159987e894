"""Picture: the grey levels that a run wrote, and a map of the pass in which each cell came."""

from __future__ import annotations

import plotly.graph_objects as go

from decodescope.engine.trace import Trace
from decodescope.lab.wire.picture_shape import encode_picture_shape

from .chart import chart


def picture_cells(trace: Trace) -> dict[int, tuple[int, int]]:
    """Cell -> its token and the step in which it came, -1 for cells of the prompt."""
    shape = encode_picture_shape(trace.header)["picture"]
    begin = shape["begin"]
    came = {cell: (token, -1) for cell, token in enumerate(shape["known"])}
    for step in trace.steps:
        if (canvas := step.detail_of("canvas")) is not None:
            settled = zip(canvas.places, canvas.tokens, strict=True)
        else:
            settled = zip(range(step.n, step.n + len(step.emitted)), step.emitted, strict=True)
        came |= {place - begin: (token, step.step) for place, token in settled}
    return {cell: one for cell, one in came.items() if cell < shape["height"] * shape["width"]}


def figure(trace: Trace) -> go.Figure:
    """Grey levels, from the background on, and passes, each by row and column.
    Raises ValueError if the model writes no pictures, or larger ones than are drawn."""
    shape = encode_picture_shape(trace.header).get("picture")
    if shape is None:
        raise ValueError("This run's model writes no pictures that could be drawn: take a run by lab-digits.")
    levels = {token: k for k, token in enumerate(shape["levels"])}
    across, down = (list(range(1, shape[side] + 1)) for side in ("width", "height"))
    grey: list[list[int | None]] = [[None for _ in across] for _ in down]
    passes: list[list[int | None]] = [[None for _ in across] for _ in down]
    for cell, (token, step) in picture_cells(trace).items():
        row, column = divmod(cell, shape["width"])
        grey[row][column], passes[row][column] = levels.get(token), step if step >= 0 else None
    look = dict(x=across, y=down, xgap=1, ygap=1, hovertemplate="row %{y}, column %{x}: %{z}<extra></extra>")
    drawn = chart(
        "How the picture filled in: grey levels, and the pass of each cell",
        "column",
        "row",
        go.Heatmap(z=grey, zmin=0, zmax=len(levels) - 1, colorscale="Greys", showscale=False, **look),
        go.Heatmap(z=passes, zmin=0, colorscale="Cividis", colorbar=dict(title="pass"), xaxis="x2", **look),
    )
    drawn.update_layout(xaxis=dict(domain=[0, 0.46]), xaxis2=dict(title="column", domain=[0.54, 1]))
    return drawn.update_xaxes(dtick=1, showgrid=False).update_yaxes(
        dtick=1, showgrid=False, autorange="reversed"
    )
