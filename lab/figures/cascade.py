"""Cascade: the answers of the small model against tau, and what each of the two models cost."""

from __future__ import annotations

from collections import defaultdict

import plotly.graph_objects as go

from decodescope.engine.cost.passes import Passes
from decodescope.engine.trace import Trace
from decodescope.engine.trace.records.pieces import join
from decodescope.lab.decision.routed import BITS, MEANS
from decodescope.lab.formatting.style import count
from decodescope.lab.wire.cascaded import own_score

from .chart import ACCEPT, INK, MUTED, REJECT, chart, literal, plain


def figure(trace: Trace) -> go.Figure:
    """At the left what decides, by answer, with tau dashed: the chosen answer filled where it was kept, hatched where it was
    not; at the right the operations of both models, by the cost model. Raises ValueError where no step holds answers of a small
    model."""
    record = next((step.candidates for step in trace.steps if step.candidates is not None), None)
    if record is None:
        raise ValueError(
            "No step of this run holds answers of a small model: take a run of the strategy cascade."
        )
    number = MEANS[record.by][0] if record.by in MEANS else BITS[0].lstrip("−")
    names = []
    scores = []
    colours = []
    shapes = []
    said = []
    for k, one in enumerate(record.answers):
        text = plain(join(one.tokens, trace.pieces), 40)
        fate = ("kept" if record.kept else "not kept") if k == record.chosen else "another answer"
        names.append(f"{k + 1}: {text}")
        scores.append(own_score(record, k))
        colours.append((ACCEPT if record.kept else REJECT) if k == record.chosen else MUTED)
        shapes.append("/" if k == record.chosen and not record.kept else "")
        said.append(f"{text}<br>{len(one.tokens)} tokens, form {one.form + 1}, {fate}")
    if not record.answers:
        names = ["not asked"]
        scores = [record.score]
        colours = [REJECT]
        shapes = ["/"]
        said = ["by what was bet before"]
    bars = go.Bar(
        y=names,
        x=scores,
        orientation="h",
        marker=dict(color=colours, pattern=dict(shape=shapes)),
        customdata=said,
        hovertemplate="%{customdata}<br>%{x:.3f}<extra></extra>",
    )
    models, flops, paid = _paid(trace)
    price = go.Bar(
        y=models, x=flops, orientation="h", xaxis="x2", yaxis="y2", marker=dict(color=MUTED), customdata=paid,
        hovertemplate="%{y}: %{customdata}<extra></extra>",
    )  # fmt: skip
    fate = "the small model's answer is the text" if record.kept else "the large model was asked"
    drawing = chart(f"Cascade: {fate}", literal(number), "", bars, price)
    drawing.add_vline(x=record.tau, line=dict(color=INK, dash="dash"), annotation_text=f"tau {record.tau:g}")
    axis = dict(drawing.layout.xaxis.to_plotly_json())
    drawing.update_layout(
        showlegend=False,
        margin=dict(l=180),
        xaxis=dict(domain=[0, 0.52], rangemode="tozero"),
        yaxis=dict(autorange="reversed"),
        xaxis2={**axis, "title": "FLOP", "domain": [0.72, 1], "anchor": "y2"},
        yaxis2=dict(autorange="reversed", anchor="x2", linecolor=MUTED),
    )
    return drawing


def _paid(trace: Trace) -> tuple[list[str], list[float], list[str]]:
    """Of the small model, of the large one and of both together: name, FLOP, and rows and passes in words."""
    passes, sums = Passes(trace.header), defaultdict[str, list[int]](lambda: [0, 0, 0])
    for record in ([trace.prefill] if trace.prefill is not None else []) + list(trace.steps):
        for row in passes.rows(record.passes):
            for i, key in enumerate(("flops", "rows", "n")):
                sums[row["lane"]][i] += row[key]
    small, large = (sums[lane] for lane in ("draft", "target"))
    both = [a + b for a, b in zip(small, large, strict=True)]
    words = [
        f"{count(flops)}FLOP, {rows} rows in {n} passes" if n else "not asked"
        for flops, rows, n in (small, large, both)
    ]
    return ["small model", "large model", "together"], [x[0] for x in (small, large, both)], words
