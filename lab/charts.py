"""Charts: every chart that needs only a trace, each under one name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import plotly.graph_objects as go

from decodescope.engine.core.arguments import check_choice
from decodescope.engine.core.params import ParamError
from decodescope.engine.cost.hardware import HardwareProfile
from decodescope.engine.trace import Trace
from decodescope.engine.trace.file.named_trace import trace_of
from decodescope.lab.cost.pricer import PricedRun, Pricer, cost_deviation
from decodescope.lab.figures import (
    attention,
    cache_entries,
    canvas,
    distribution,
    exits,
    layers,
    matrix,
    model,
    notes,
    picture,
    prompt,
    reference_loss,
    repeats,
    roofline,
    rounds,
    scale,
    search,
    steps,
    time,
    tree,
    worth,
)
from decodescope.lab.figures.measured import surface
from decodescope.lab.reports import figures as reported
from decodescope.lab.reports.report import AcceptanceReport, count_report


class Chart(NamedTuple):
    """draw: a trace, and the other arguments in `takes` -> the figure;  about: what it shows, in a few words"""

    about: str
    draw: Callable[..., go.Figure]
    takes: tuple[str, ...] = ()


def figure(  # noqa: PLR0913
    given: Any,
    name: str,
    *,
    step: int | None = None,
    node: int | None = None,
    layer: int | None = None,
    head: int | None = None,
    note: str | None = None,
    part: str | None = None,
    role: str | None = None,
    profile: HardwareProfile | None = None,
    plain: Any = None,
) -> go.Figure:
    """The chart `name` as a plotly figure, of a trace, of the result of `run`, of a path, or of an example's name.

    CHARTS has the names, and which of the other arguments each of them takes: `step` and `node`, a place counted as `explain`
    counts them; `layer` and `head`, a part of the cache; `note`, a signal that a part recorded, and `part`, the kind of that
    part; `role`, one of the run's models; `profile`, a machine, by default the one that ran it as far as it was measured;
    `plain`, a run of plain decoding.

    Raises ParamError for an unknown name or an argument that the chart does not take, TraceError for a step that the trace does
    not have, and ValueError where the trace lacks the data to draw.
    """
    chart = CHARTS[check_choice(name, "name", tuple(CHARTS))]
    asked = dict(
        step=step,
        node=node,
        layer=layer,
        head=head,
        note=note,
        part=part,
        role=role,
        profile=profile,
        plain=plain,
    )
    more = {key: value for key, value in asked.items() if value is not None}
    for key in more:
        if key not in chart.takes:
            has = f"it takes {', '.join(chart.takes)}" if chart.takes else "it takes the trace alone"
            raise ParamError(f"{key} = ...: the chart {name!r} knows no {key}; {has}.")
    return chart.draw(trace_of(given), **more)


def _resolve_machine(trace: Trace, profile: HardwareProfile | None) -> HardwareProfile:
    if profile is not None:
        return profile
    if trace.header.machine is None:
        raise ValueError(
            "The trace does not record its machine: name one, figure(..., profile=device('h100-sxm'))."
        )
    return HardwareProfile.from_record(trace.header.machine)


def _roofline(trace: Trace, profile: HardwareProfile | None = None) -> go.Figure:
    machine = _resolve_machine(trace, profile)
    drawing = roofline.figure(machine, trace)
    far = (
        cost_deviation(Pricer(PricedRun(trace.header, trace.prefill, trace.steps), machine).rows())
        if profile is None
        else None
    )
    return drawing if far is None else roofline.add_remark(drawing, str(far))


def _surface(trace: Trace, profile: HardwareProfile | None = None) -> go.Figure:
    return surface.figure(trace, _resolve_machine(trace, profile))


def _worth(trace: Trace, plain: Any = None) -> go.Figure:
    if plain is None:
        raise ParamError(
            "plain = None: the chart 'worth' sets a run against plain decoding of its prompt; give that run too."
        )
    return worth.figure(worth.table(trace_of(plain), [trace]))


def _notes(trace: Trace, note: str | None = None, part: str | None = None) -> go.Figure:
    known = [name for names in trace.header.tells.values() for name in names]
    if note is None and not known:
        raise ValueError("No part of this run records signals, so there is nothing to draw.")
    return notes.figure(trace, known[0] if note is None else note, part)


def _report_chart(draw: Callable[[AcceptanceReport], go.Figure]) -> Callable[[Trace], go.Figure]:
    return lambda trace: draw(count_report(trace))


CHARTS: dict[str, Chart] = {
    "steps": Chart("what each step wrote, and what it drafted in vain", steps.figure),
    "tree": Chart("the draft of a step, and what became of each node", tree.figure, ("step",)),
    "distribution": Chart(
        "the probabilities at one place, and what a rejection left", distribution.figure, ("step", "node")
    ),
    "time": Chart("what each step took, by phase", time.figure),
    "spent": Chart("the time of all steps, by phase", _report_chart(reported.time)),
    "cache": Chart("entries that the cache held, and lost", cache_entries.figure),
    "lives": Chart(
        "which entries were in the cache, and when", cache_entries.entry_lifetimes, ("layer", "head")
    ),
    "missed": Chart("what a full cache, or the whole model, says that was lost", reference_loss.figure),
    "attention": Chart("how few entries drew the attention", attention.figure),
    "layers": Chart("what became of each layer in each pass, and where passes left", layers.figure),
    "exits": Chart("how deep each step went, and how sure it was", exits.figure),
    "canvas": Chart("which place of a canvas was settled when, and how sure the model was", canvas.figure),
    "cascade": Chart("the answers of a small model against tau, and what both models cost", scale.figure),
    "prompt": Chart("what each token of a prompt was worth to a context, and which were read", prompt.figure),
    "picture": Chart("how a picture filled in, and the pass in which each cell came", picture.figure),
    "repeats": Chart("what the text says again, and how sure the model is of its loop", repeats.figure),
    "matrix": Chart(
        "what a step held against each other: how like texts that voted are, or what spans cost",
        matrix.figure,
        ("step",),
    ),
    "search": Chart(
        "a search as a tree: what was begun, kept and left, and its worth", search.figure, ("step", "node")
    ),
    "notes": Chart("what a part recorded over the steps", _notes, ("note", "part")),
    "depth": Chart("the share accepted, by depth of the guess", _report_chart(reported.depth)),
    "entropy": Chart("the share accepted, by the target's entropy", _report_chart(reported.entropy)),
    "kinds": Chart("guesses by kind of token, accepted and rejected", _report_chart(reported.kinds)),
    "calibration": Chart(
        "the share accepted, by what the draft believed", _report_chart(reported.calibration)
    ),
    "lengths": Chart("speed by length of the draft, by the model", _report_chart(reported.lengths)),
    "model": Chart(
        "what a model of the run is: bytes and bits by matrix, heads, and what is gone",
        model.figure,
        ("role",),
    ),
    "rounds": Chart("what a search or a training made of a model, round by round", rounds.figure, ("role",)),
    "worth": Chart("whether the draft paid, by formula and clock", _worth, ("plain",)),
    "roofline": Chart("what the machine can do, and where the passes stood", _roofline, ("profile",)),
    "surface": Chart("when drafting pays on a machine", _surface, ("profile",)),
}
