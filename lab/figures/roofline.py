"""Roofline: the limits of a machine, and the passes of a run below them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import plotly.graph_objects as go

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.cost.cost import DTYPE_BITS, Cost, cost_of
from decodescope.engine.cost.hardware import HardwareProfile, mbu, mfu, roof
from decodescope.engine.cost.passes import spec_of
from decodescope.engine.trace import Trace
from decodescope.engine.trace.records.events import Pass
from decodescope.engine.trace.records.phases import is_deciding_pass

from .chart import ACCEPT, INK, MUTED, TARGET, chart, escape_label


@dataclass(frozen=True)
class RooflinePoint:
    """Passes of one kind: FLOP per byte by the cost model, FLOP/s by the clock. us: median time of one, which costs `cost`
    before: the name of the model that theirs was made from, and the cost of that pass there; None: it was not made from one"""

    name: str
    intensity: float
    flops_per_s: float
    us: float
    passes: int
    cost: Cost = field(default_factory=Cost)
    before: tuple[str, Cost] | None = None

    def format_utilization(self, profile: HardwareProfile, dtype: str | None) -> str:
        """MBU (weights and cache) and MFU of the median pass, in words."""
        moved, done = mbu(profile, self.cost, self.us, "weights+kv"), mfu(profile, self.cost, self.us, dtype)
        return f"MBU {100 * moved:.0f} %, MFU {100 * done:.1f} %"


def figure(profile: HardwareProfile, *traces: Trace) -> go.Figure:
    """The roofs of `profile`, and the measured passes of the traces. Points are filled: they were measured.
    For a model made from another, a dashed line leads from a hollow point to its own. The hollow point is the same pass by
    the other model, at best, under the roof."""
    dtype = next(iter(traces)).header.dtype if traces else None
    measured = [point for trace in traces for point in roofline_points(trace)]
    every = [p.intensity for p in measured] + [
        p.before[1].intensity for p in measured if p.before is not None
    ]
    x = np.geomspace(min([0.1, *(at / 2 for at in every)]), max([1000.0, *(at * 2 for at in every)]), 200)
    lines = [_roof_line("memory", x, roof(profile, x.tolist(), dtype), INK)]
    if profile.cache_bandwidth is not None:
        lines.append(
            _roof_line("processor's cache", x, roof(profile, x.tolist(), dtype, resident=True), MUTED, "dot")
        )
    dots = [
        go.Scatter(
            x=[p.intensity],
            y=[p.flops_per_s / 1e9],
            name=f"{p.name}, measured",
            mode="markers",
            marker=dict(size=13, color=colour, symbol=symbol),
            hovertemplate=f"{p.name}: {p.us / 1000:.2f} ms, median of {p.passes}<br>%{{x:.2f}} FLOP/byte, "
            + "%{y:.2f} GFLOP/s<br>"
            + p.format_utilization(profile, dtype),
        )
        for p, (colour, symbol) in zip(
            measured, [(ACCEPT, "circle"), (TARGET, "diamond"), (INK, "square")] * 9, strict=False
        )
    ]
    signs = dict(zip(measured, [(ACCEPT, "circle"), (TARGET, "diamond"), (INK, "square")] * 9, strict=False))
    dots += [
        _base_model_line(profile, p, p.before, dtype, *signs[p])
        for p in measured
        if p.before is not None and p in signs
    ]
    drawing = chart(
        f"Roofline of {profile.name}", "FLOP per byte moved", "GFLOP/s", *lines, *dots, height=440
    )
    return drawing.update_xaxes(type="log", dtick=1).update_yaxes(type="log", dtick=1)


def add_remark(drawing: go.Figure, sentence: str) -> go.Figure:
    """The figure with a sentence below its axis on how reliable its model is here."""
    words = f"{cast(Any, drawing.layout).xaxis.title.text}<br><sup>{escape_label(sentence)}</sup>"
    return drawing.update_layout(margin_b=76).update_xaxes(title_text=words)


def roofline_points(trace: Trace) -> list[RooflinePoint]:
    """Prefill and decoding, as far as the trace has such passes of the target."""
    spec, bits = spec_of(trace.header.model), DTYPE_BITS[trace.header.dtype]
    prefill = [p for p in trace.prefill.passes if p.lane == "target"] if trace.prefill is not None else []
    verify = [p for step in trace.steps for p in step.passes if is_deciding_pass(p)]
    sizes = sorted({p.tokens for p in verify}, key=lambda n: -sum(p.tokens == n for p in verify))[:1]
    kinds = [(f"prompt, {max(p.tokens for p in prefill)} tokens at once", prefill)] if prefill else []
    kinds += [
        (f"decoding, {n} token{'s' if n > 1 else ''} at once", [p for p in verify if p.tokens == n])
        for n in sizes
    ]
    return [_roofline_point(name, spec, passes, bits) for name, passes in kinds]


def _base_model_line(
    profile: HardwareProfile,
    p: RooflinePoint,
    before: tuple[str, Cost],
    dtype: str | None,
    colour: str,
    symbol: str,
) -> go.Scatter:
    """The line from the best possible point of the original model's pass to this model's point."""
    name, cost = before
    best = roof(profile, [cost.intensity], dtype)[0]
    us = 1e6 * cost.flops / best
    said = (
        f"{p.name}: {name} at best {us / 1000:.2f} ms, {cost.bytes / 1e6:.1f} MB moved",
        f"{p.name}, measured",
    )
    return go.Scatter(
        x=[cost.intensity, p.intensity],
        y=[best / 1e9, p.flops_per_s / 1e9],
        name=f"{p.name}: {name}, at best",
        mode="lines+markers",
        line=dict(color=colour, width=1, dash="dash"),
        marker=dict(size=[13, 0], color=colour, symbol=f"{symbol}-open"),
        text=said,
        hovertemplate="%{text}<br>%{x:.2f} FLOP/byte, %{y:.2f} GFLOP/s<extra></extra>",
    )


def _roofline_point(name: str, spec: ModelSpec, passes: list[Pass], bits: float) -> RooflinePoint:
    costs: list[Cost] = [cost_of(spec, p, bits=bits) for p in passes]
    rates = [cost.flops / (p.wall_us * 1e-6) for cost, p in zip(costs, passes, strict=True) if p.wall_us > 0]
    middle = costs[len(costs) // 2]
    us = statistics.median(p.wall_us for p in passes)
    whole, one = spec.original_spec, passes[len(passes) // 2]
    before = None if whole is spec else (whole.name, cost_of(whole, one, bits=bits))
    return RooflinePoint(name, middle.intensity, statistics.median(rates), us, len(passes), middle, before)


def _roof_line(name: str, x: np.ndarray, y: list[float], colour: str, dash: str = "solid") -> go.Scatter:
    line = dict(color=colour, width=2, dash=dash)
    return go.Scatter(x=x, y=[v / 1e9 for v in y], name=f"roof: {name}", line=line, hoverinfo="skip")
