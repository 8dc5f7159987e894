"""Scale: rows of a step as bars with a threshold line, such as answers of a small model, and the cost of each model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import plotly.graph_objects as go

from decodescope.engine.cost.passes import PassPricer
from decodescope.engine.trace import Step, Trace
from decodescope.engine.trace.details.declarations import PriceForm
from decodescope.engine.trace.details.tally import TallyReading
from decodescope.engine.trace.records.pieces import join
from decodescope.lab.decision.details import tally_readings
from decodescope.lab.formatting.style import format_count

from .chart import ACCEPT, INK, MUTED, REJECT, chart, escape_label, text_label


def figure(trace: Trace) -> go.Figure:
    """Left: the deciding number of each row, with its threshold dashed; the chosen row is filled if it holds, else hatched.

    Right: the operations of each model, by the cost model. Raises ValueError if no step holds such rows.
    """
    read = next((read for step in trace.steps for read in _priced_tallies(trace, step)), None)
    form = None if read is None else read.form.scale
    if read is None or form is None or form.prices is None:
        raise ValueError(
            "No step of this run holds answers of a small model: take a run in which a router judges answers."
        )
    names = []
    scores = []
    colours = []
    shapes = []
    said = []
    for k in read.listed_rows:
        outcome, scope = read.outcomes[k], read.rows[k]
        name = text_label(scope.say_first(read.form.row), 40)
        chosen = bool(outcome.bar)
        names.append(f"{k + 1}: {name}" if scope.entry(form.tokens) is not None else name)
        scores.append(scope.value(form.value))
        verdict = ACCEPT if outcome.holds else REJECT
        colours.append(verdict if chosen else MUTED)
        shapes.append("/" if chosen and not outcome.holds else "")
        said.append(
            "<br>".join(
                [
                    *([name] if scope.entry(form.tokens) is not None else []),
                    ", ".join(scope.say_all(form.words)),
                ]
            )
        )
    bars = go.Bar(
        y=names,
        x=scores,
        orientation="h",
        marker=dict(color=colours, pattern=dict(shape=shapes)),
        customdata=said,
        hovertemplate="%{customdata}<br>%{x:.3f}<extra></extra>",
    )
    models, flops, paid = _model_costs(trace, form.prices)
    price = go.Bar(
        y=models, x=flops, orientation="h", xaxis="x2", yaxis="y2", marker=dict(color=MUTED), customdata=paid,
        hovertemplate="%{y}: %{customdata}<extra></extra>",
    )  # fmt: skip
    fate, bar = read.whole_scope.say_first(form.fate), read.whole_scope.value(form.bar)
    drawing = chart(f"{form.title}: {fate}", escape_label(form.number), "", bars, price)
    if bar is not None:
        drawing.add_vline(
            x=bar, line=dict(color=INK, dash="dash"), annotation_text=f"{read.form.bar} {bar:g}"
        )
    axis = dict(drawing.layout["xaxis"].to_plotly_json())
    drawing.update_layout(
        showlegend=False,
        margin=dict(l=180),
        xaxis=dict(domain=[0, 0.52], rangemode="tozero"),
        yaxis=dict(autorange="reversed"),
        xaxis2={**axis, "title": "FLOP", "domain": [0.72, 1], "anchor": "y2"},
        yaxis2=dict(autorange="reversed", anchor="x2", linecolor=MUTED),
    )
    return drawing


def _priced_tallies(trace: Trace, step: Step) -> Iterator[TallyReading]:
    """The tallies of a step with rows on a scale that has prices."""
    for read in tally_readings(trace.header, step, lambda ids: join(ids, trace.pieces)):
        if read.form.scale is not None and read.form.scale.prices is not None:
            yield read


def _model_costs(trace: Trace, form: PriceForm) -> tuple[list[str], list[float], list[str]]:
    """For each model, and for all together: name, FLOP, and rows and passes in words."""
    passes, sums = PassPricer(trace.header), defaultdict[str, list[int]](lambda: [0, 0, 0])
    for record in ([trace.prefill] if trace.prefill is not None else []) + list(trace.steps):
        for row in passes.rows(record.passes):
            for i, key in enumerate(("flops", "rows", "n")):
                sums[row["lane"]][i] += row[key]
    each = [sums[lane] for lane in form.lanes]
    together = [sum(column) for column in zip(*each, strict=True)]
    words = [
        f"{format_count(flops)}FLOP, {rows} rows in {n} passes" if n else "not asked"
        for flops, rows, n in (*each, together)
    ]
    names = [f"{word} model" for word in form.lanes.values()]
    return [*names, form.together], [x[0] for x in (*each, together)], words
