"""Charts: the data behind the marks, and hostile names."""

from __future__ import annotations

import statistics
from dataclasses import replace
from itertools import pairwise

import pytest
from toylab import HOSTILE
from toys import SPEC

from decodescope.engine.cost.cost import cost_of, speedup
from decodescope.engine.cost.hardware import HardwareProfile
from decodescope.engine.trace.query.summary import summarise
from decodescope.lab.figures import roofline, worth
from decodescope.lab.figures.measured import bars, curve, text_distributions
from decodescope.lab.lessons import cost_table, time_table
from decodescope.lab.views.perfetto import export_perfetto

from .runs import known, run

MACHINE = HardwareProfile(
    "test", {"float32": 100e9}, 10e9, kind="measured", cache_bandwidth=25e9, cache_bytes=1 << 24
)


def test_roofline_bends_where_arithmetic_takes_over() -> None:
    made = roofline.figure(MACHINE, known("chain"))
    memory, cache = made.data[0], made.data[1]
    for x, slow, fast in zip(memory.x, memory.y, cache.y, strict=True):
        assert slow == pytest.approx(min(100, x * 10)) and fast == pytest.approx(min(100, x * 25))
    assert made.layout.xaxis.type == made.layout.yaxis.type == "log"


def test_roofline_points_are_the_measured_passes() -> None:
    trace = known("chain")
    prompt, decoding = roofline.roofline_points(trace)
    assert trace.prefill is not None
    passes = [
        p
        for s in trace.steps
        for p in s.passes
        if p.lane == "target" and p.phase == "verify" and p.tokens == 4
    ]
    assert decoding.passes == len(passes) and decoding.us == statistics.median(p.wall_us for p in passes)
    rates = [cost_of(SPEC, p, bits=32).flops / p.wall_us * 1e6 for p in passes]
    assert decoding.flops_per_s == pytest.approx(statistics.median(rates))
    assert prompt.intensity > decoding.intensity, "the prompt is read at once"
    marks = [trace for trace in roofline.figure(MACHINE, trace).data if trace.mode == "markers"]
    assert [m.x[0] for m in marks] == [prompt.intensity, decoding.intensity]
    assert all("measured" in m.name for m in marks)


def test_the_header_gives_back_the_model_s_shape() -> None:
    assert roofline.spec_of(known("chain").header.model) == replace(SPEC, pad_token=None), (
        "no record keeps what pads"
    )


def test_verify_curve_is_in_passes_over_one_token() -> None:
    each, measured, modelled = curve.figure([1, 4], [20.0, 30.0], [1.0, 1.25]).data
    assert list(each.y) == [1, 4] and list(measured.y) == [1.0, 1.5] and list(modelled.y) == [1.0, 1.25]
    assert modelled.mode == "markers", "measured and calculated are not joined"


def test_laws_are_shares_in_the_order_of_the_first() -> None:
    first, second = text_distributions.figure(
        {"a": {"x": 0.25, "y": 0.75}, "b": {"x": 30, "z": 10}}, most=2
    ).data
    assert list(first.customdata) == ["y", "x", "all others"]
    assert list(first.y) == [0.75, 0.25, 0.0] and list(second.y) == [0.0, 0.75, 0.25]
    assert text_distributions.largest_difference({"x": 0.5, "y": 0.5}, {"x": 0.25, "z": 0.75}) == 0.75


def test_bars_stand_in_the_order_of_their_things() -> None:
    drawing = bars.figure(
        {"a": {"x": 1.0, "<b>": 2.0}, "b": {"z": 4.0, "x": 3.0}}, "t", "thing", "tokens per step"
    )
    first, second = drawing.data
    assert list(first.y) == [1.0, 2.0, None] and list(second.y) == [3.0, None, 4.0]
    assert list(drawing.layout.xaxis.ticktext) == ["x", "&lt;b&gt;", "z"]
    assert drawing.layout.yaxis.title.text == "tokens per step" and first.marker.color != second.marker.color


def test_hostile_texts_are_no_tags_for_plotly() -> None:
    law = {text: 1 / len(HOSTILE) for text in HOSTILE}
    names = text_distributions.figure({"a": law}).data[0].customdata
    assert not [name for name in names if "<" in name or ">" in name]
    assert not [name for name in names if "&quot;" in name or "&#x27;" in name], (
        "plotly would show these as they stand"
    )
    assert any('"' in name or "'" in name for name in names)
    assert not set("".join(names)) & set("\0\x1b\x7f\u202e\n")


def test_worth_puts_formula_beside_clock() -> None:
    plain, drafted = run("plain greedy"), run("greedy")
    row = worth.table(plain, [drafted]).iloc[0]
    s = summarise(drafted)
    assert row["length"] == 3 and row["accepted"] == pytest.approx(s.acceptance, abs=1e-3)
    assert row["measured"] == pytest.approx(s.tokens_per_s / summarise(plain).tokens_per_s, abs=1e-3)
    assert row["formula"] == pytest.approx(speedup(row["accepted"], 3, row["draft"], row["verify"]), abs=0.02)
    assert [list(t.y) for t in worth.figure(worth.table(plain, [drafted])).data][2] == [row["measured"]]


def test_cost_table_reads_every_weight_once() -> None:
    table = cost_table([SPEC], tokens=[1, 4], bits=32)
    assert table["weights read, MB"].nunique() == 1 and table["FLOP per byte"].is_monotonic_increasing
    assert time_table(SPEC, [MACHINE])["tokens/s at most"].iloc[0] > 0


def test_perfetto_lanes_hold_every_step_phase_and_pass() -> None:
    trace = known("chain")
    made = export_perfetto(trace)
    slices = [e for e in made["traceEvents"] if e["ph"] == "X"]
    names = {e["tid"]: e["args"]["name"] for e in made["traceEvents"] if e["name"] == "thread_name"}
    by = {name: [e for e in slices if names[e["tid"]] == name] for name in names.values()}
    assert set(by) == {"steps", "phases", "passes of target", "passes of draft"}
    assert [e["ts"] for e in by["steps"][1:]] == [pytest.approx(s.t_us) for s in trace.steps]
    assert {e["name"] for e in by["phases"]} >= {"draft", "verify", "commit"}
    assert trace.prefill is not None
    counted = sum(len(s.passes) for s in trace.steps) + len(trace.prefill.passes)
    assert len(by["passes of target"]) + len(by["passes of draft"]) == counted
    for lane in ("steps", "phases"):
        ends = [(e["ts"], e["ts"] + e["dur"]) for e in by[lane]]
        assert all(end <= begin + 1 for (_, end), (begin, _) in pairwise(ends)), "one after the other"
