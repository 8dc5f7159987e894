"""Every chart by its name: charts of shipped example traces, and the data behind their marks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toys
from followed import followed
from followed import searched as search_of

from decodescope.engine.core.component import note_declarations
from decodescope.engine.core.note import Finding
from decodescope.engine.core.params import ParamError
from decodescope.engine.cost.hardware import device
from decodescope.engine.cost.passes import PassPricer
from decodescope.engine.trace import Trace, TraceError
from decodescope.engine.trace.records.events import Made
from decodescope.lab import decisions, explain, figure, open_trace
from decodescope.lab.charts import CHARTS

ROOT = Path(__file__).resolve().parents[2]
# chart -> the shipped example that shows it, and further arguments
EXAMPLES: dict[str, tuple[str, dict[str, Any]]] = {
    "prompt": ("gemfilter", {}),
    **dict.fromkeys(
        ("steps", "time", "roofline", "model", "surface", "tree", "distribution"), ("first-rejection", {})
    ),
    **dict.fromkeys(
        ("spent", "depth", "entropy", "kinds", "calibration", "lengths"), ("first-rejection", {})
    ),
    **dict.fromkeys(("cache", "lives", "attention"), ("h2o", {})),
    **dict.fromkeys(("exits", "layers"), ("early-exit", {})),
    "cascade": ("no-agreement", {}),
    "search": ("planned", {}),
    "worth": ("eagle", {"plain": "early-exit"}),
}


def told() -> Trace:
    """The run with early exits, with the notes of its parts, as the page reads it."""
    trace = open_trace("early-exit")
    trace.header = replace(trace.header, tells=note_declarations(trace.header.method))
    return trace


def needs_reference() -> Trace:
    """A run with a full reference cache."""
    return toys.decode(
        toys.method(policy=("h2o", dict(heavy=4, recent=4))), toys.PROMPT * 3, count=8, reference=True
    ).sink


def filled() -> Trace:
    """A run that fills a canvas."""
    return toys.decode(toys.method(strategy=("masked", {"block": 8}), unmasking="threshold"), count=16).sink


def pictured() -> Trace:
    """A run that writes a picture."""
    return toys.decode(toys.method(strategy="zipar", sampler="temperature"), [4, 0, 2], count=40).sink


def extracted() -> Trace:
    """A run that answers with a span."""
    return toys.decode(toys.method(strategy=("exact_extract", {"end_token": "7"})), count=9).sink


def voted() -> Trace:
    """A run in which several texts vote."""
    return toys.decode(
        toys.method(strategy=("consensus", {"samples": 4}), sampler="temperature"), count=6
    ).sink


def searched() -> Trace:
    """A run on a model for which a search tried plans."""
    trace = toys.decode().sink
    fitness = Finding("series", "KL", unit="nats", over="round", values=[0.5, 0.2, 0.1])
    trace.header = replace(
        trace.header, reports={"target": [Made("evopress", findings={"fitness": fitness})]}
    )
    return trace


# charts whose content no shipped example has
OWN = {
    "notes": (told, {"note": "sure"}),
    "missed": (needs_reference, {}),
    "canvas": (filled, {}),
    "picture": (pictured, {}),
}
OWN["rounds"] = (searched, {})
OWN |= {"matrix": (extracted, {}), "repeats": (lambda: toys.decode().sink, {})}


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_drawn_from_a_shipped_run(name: str) -> None:
    given, more = EXAMPLES[name] if name in EXAMPLES else (OWN[name][0](), OWN[name][1])
    drawing = figure(given, name, **more)
    assert any(one.y is not None and len(one.y) for one in drawing.data) and drawing.layout.title.text
    assert "<script" not in drawing.to_json()


def test_every_chart_stands_in_the_documentation() -> None:
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    for name, chart in CHARTS.items():
        takes = ", ".join(f"`{x}`" for x in chart.takes)
        assert f"| `{name}` | {chart.about} | {takes} |".replace("  ", " ") in page.replace("  ", " "), name


def test_a_wrong_name_is_refused_with_the_names() -> None:
    with pytest.raises(ParamError) as refused:
        figure("h2o", "rooflin")
    assert all(name in str(refused.value) for name in CHARTS) and "\n" not in str(refused.value)
    with pytest.raises(ParamError, match=r"the chart 'time' knows no layer; it takes the trace alone"):
        figure("h2o", "time", layer=1)
    with pytest.raises(ParamError, match=r"'tree' knows no node; it takes step"):
        figure("first-rejection", "tree", node=0)
    with pytest.raises(ParamError, match="give that run too"):
        figure("eagle", "worth")
    for name, given, why in (
        ("tree", "h2o", "holds a draft"),
        ("exits", "h2o", "asked whether"),
        ("notes", "h2o", "signals"),
    ):
        with pytest.raises(ValueError, match=why):
            figure(given, name)
    with pytest.raises(TraceError, match="no step 99"):
        figure("first-rejection", "tree", step=99)
    with pytest.raises(ParamError, match="layer = 8: must be a whole number from 0 to 7"):
        figure("h2o", "lives", layer=8)


def test_steps_and_their_time_add_up() -> None:
    trace = open_trace("first-rejection")
    bars = {one.name: list(one.y) for one in figure(trace, "steps").data}
    both = [a + b for a, b in zip(bars["accepted"], bars["the target's own"], strict=True)]
    assert both == [len(step.emitted) for step in trace.steps]
    whole = [sum(phases) for phases in zip(*(one.y for one in figure(trace, "time").data), strict=True)]
    assert whole == pytest.approx([step.wall_us / 1e3 for step in trace.steps])


def test_a_tree_has_every_node_once_with_what_became_of_it() -> None:
    trace = open_trace("first-rejection")
    step = next(
        one for one in trace.steps if one.path and one.extra is not None and one.extra.origin == "residual"
    )
    edges, *marks = figure(trace, "tree", step=step.step).data
    nodes = {one.name: list(one.customdata) for one in marks}
    assert step.draft is not None and nodes["accepted"] == step.path
    assert sorted(x for one in nodes.values() for x in one) == list(range(-1, len(step.draft.tokens)))
    assert list(edges.x).count(None) == len(step.draft.tokens)
    rows = {(x, y) for one in marks for x, y in zip(one.x, one.y, strict=True)}
    assert len(rows) == len(step.draft.tokens) + 1, "no two nodes in one place"


def test_a_distribution_is_the_one_of_the_explanation() -> None:
    step, node = next(decisions("first-rejection", ok=False))
    rows = explain("first-rejection", step, node).rows
    bars = {
        one.name: list(one.y) for one in figure("first-rejection", "distribution", step=step, node=node).data
    }
    assert bars["target, p"] == [row.p for row in rows] and bars["draft, q"] == [row.q for row in rows]
    assert bars["what was left"] == [row.left for row in rows]
    unreached = next(
        (one.step, node)
        for one in open_trace("first-rejection").steps
        if one.draft is not None and one.trials is not None
        for node in range(one.drafted)
        if node not in one.trials.node
    )
    with pytest.raises(ValueError, match="take one that was tested"):
        figure("first-rejection", "distribution", step=unreached[0], node=unreached[1])


def test_lives_are_those_of_the_records() -> None:
    trace = open_trace("h2o")
    cells = figure(trace, "lives", layer=2, head=1).data[0]
    last, held = len(trace.steps) - 1, next(c.held for c in trace.steps[-1].cache if c.lane == "target")
    assert sum(row[last] for row in cells.z) == held == 24
    lines = {one.name: list(one.y) for one in figure(trace, "cache").data}
    assert lines["entries held"][-1] == held < lines["tokens read"][-1]
    assert sum(lines["evicted"]) == sum(
        c.evicted_count for step in trace.steps for c in step.cache if c.lane == "target"
    )


def test_what_a_full_cache_says_is_drawn_as_it_is_recorded() -> None:
    trace = needs_reference()
    lines = {one.name: list(one.y) for one in figure(trace, "missed").data}
    told = [step.cache[0].reference for step in trace.steps]
    assert lines["mean of the heads"] == [pytest.approx(float(x.lost_mass.mean()), abs=2e-6) for x in told]
    assert (
        lines["drift"] == [pytest.approx(float(x.drift.mean()), abs=2e-6) for x in told]
        and max(lines["worst head"]) > 0
    )
    with pytest.raises(ValueError, match="record it with reference=True"):
        figure("h2o", "missed")


def test_exits_show_each_test_and_where_the_step_left() -> None:
    trace = open_trace("early-exit")
    shades, line = figure(trace, "exits").data
    assert list(line.y) == [step.exits[-1].depth for step in trace.steps if step.exits]
    layer, sure, _ = trace.steps[0].exits[-1].tests[0]  # type: ignore[index]
    assert shades.z[list(shades.y).index(layer)][0] == sure


def test_a_canvas_shows_every_confidence_and_every_place_that_was_settled() -> None:
    trace = filled()
    shades, marks = figure(trace, "canvas").data
    fills = [step.detail_of("canvas") for step in trace.steps]
    start = fills[0].start
    assert [x for row in shades.z for x in row if x is not None] == [
        x for fill in fills for x in fill.confidence.tolist()
    ]
    assert sorted(marks.x) == list(range(1, fills[0].length + 1)), "each place is settled once"
    assert list(zip(marks.x, marks.y, strict=True)) == [
        (p - start + 1, i) for i, fill in enumerate(fills) for p in fill.places
    ]
    with pytest.raises(ValueError, match="filled places of a canvas"):
        figure("h2o", "canvas")


def test_a_cascade_shows_its_answers_against_tau_and_the_price_of_both_models() -> None:
    trace = open_trace("no-agreement")
    (record,) = trace.steps[0].details
    assert not record.values["kept"]
    drawing = figure(trace, "cascade")
    answers, prices = drawing.data
    assert list(answers.x) == record.columns["votes"]
    assert drawing.layout.shapes[0].x0 == trace.header.method["router"]["tau"]
    assert [shape == "/" for shape in answers.marker.pattern.shape] == [
        x == "lost" for x in record.columns["outcome"]
    ]
    priced = PassPricer(trace.header)
    records = [trace.prefill, *trace.steps]
    due = [
        sum(row["flops"] for x in records for row in priced.rows(x.passes) if row["lane"] == y)
        for y in ("draft", "target")
    ]
    assert list(prices.x) == [*due, sum(due)] and min(due) > 0
    sure = toys.method(strategy="cascade", router=("answer_confidence", {"tau": 0.0}))
    kept = figure(toys.decode(sure, count=4).sink, "cascade")
    assert kept.data[1].customdata[1] == "not asked" and "is the text" in kept.layout.title.text
    with pytest.raises(ValueError, match="answers of a small model"):
        figure("h2o", "cascade")


def test_a_picture_shows_each_cell_s_level_and_pass() -> None:
    trace = pictured()
    grey, passes = figure(trace, "picture").data
    levels = [toys.LEVELS.index(x) if x in toys.LEVELS else None for x in [0, 2, *trace.end.tokens]]
    assert [x for row in grey.z for x in row] == [*levels, *[None] * 22]
    came = {place - 1: step.step for step in trace.steps for place in step.detail_of("canvas").places}
    assert [x for row in passes.z for x in row] == [came.get(cell) for cell in range(64)]
    plain = toys.decode(count=9, pair=(toys.raster_target(), toys.pair()[1]), prompt=[4]).sink
    assert [x for row in figure(plain, "picture").data[1].z for x in row][:10] == [*range(9), None]
    with pytest.raises(ValueError, match="writes no pictures that could be drawn"):
        figure("h2o", "picture")


def test_a_machine_is_the_run_s_own_or_one_that_is_named() -> None:
    assert "H100" in figure("eagle", "surface", profile=device("h100-sxm")).layout.title.text
    trace = open_trace("eagle")
    assert trace.header.machine is not None and "H100" not in trace.header.machine["name"]
    assert trace.header.machine["name"] in figure("eagle", "roofline").layout.title.text
    trace.header = replace(trace.header, machine=None)
    with pytest.raises(ValueError, match="does not record its machine"):
        figure(trace, "roofline")


def test_a_search_is_drawn_as_it_stood_behind_any_text() -> None:
    small = toys.decode(
        toys.method(strategy=("planned", {"tests": "1\n2", "top_k": 2, "rollouts": 24})), count=4
    ).sink
    for trace, ended in ((open_trace("planned"), False), (small, True)):
        search = search_of(trace)
        assert ({*search.outcomes} != {"open"}) is ended
        for upto in (1, len(search.texts) // 2, len(search.texts)):
            marks = [one for one in figure(trace, "search", node=upto).data if "markers" in one.mode]
            assert sum(len(one.x) for one in marks) == upto
            rewards = [x.reward for x in search.texts[:upto]]
            way = [rewards.index(max(rewards)) + 1]
            while way[-1] > 0:
                way.append(search.parents[way[-1]])
            shut = sum(x and k not in way for k, x in enumerate(search.behind(upto)[0].closed))
            assert sum(len(one.x) for one in marks if one.name == "closed") == shut, (
                "but for those of the best text"
            )
            (best,) = (one for one in marks if one.name == "the best")
            assert len(best.x) == len(way) - 1
        assert (shut > 0) is ended is ("closed: text is full" in str(figure(trace, "search").to_json()))
    with pytest.raises(ParamError, match=r"must be a whole number from 1 to 21\."):
        figure("planned", "search", node=22)
    with pytest.raises(ValueError, match="records a search"):
        figure("h2o", "search")


def test_beams_are_drawn_with_what_was_left() -> None:
    trace = toys.decode(toys.method(strategy=("beam", {"width": 3})), count=6).sink
    marks = {one.name: one for one in figure(trace, "search").data if "markers" in one.mode}
    assert len(marks["left"].x) == sum(len(followed(one).left) for one in trace.steps) > 0
    kept = sum(len(marks[name].x) for name in ("goes on", "the best") if name in marks)
    assert kept == sum(len(followed(one).tokens) for one in trace.steps)
    groups = toys.decode(toys.method(strategy=("diverse_beam", {"width": 4, "groups": 2})), count=6).sink
    for one in (trace, groups):
        marks = {mark.name: mark for mark in figure(one, "search").data if "markers" in mark.mode}
        assert [*marks["the best"].x] == [*range(1, len(one.emitted_ids) + 1)], "one way leads to the text"
    assert any("behind the last" in x for x in marks["left"].customdata)


def test_votes_are_drawn_with_the_most_first() -> None:
    trace = voted()
    vote = trace.steps[-1].detail("voted_texts")
    votes = vote.columns["votes"]
    assert len({*votes}) > 1, "the test needs texts that differ"
    drawing = figure(trace, "matrix")
    shades, mark = drawing.data
    means = [sum(row) / len(row) for row in shades.z]
    assert means == pytest.approx(sorted(votes, reverse=True)) and [*mark.x] == [*mark.y] == [1]
    measure = trace.header.method["strategy"]["similarity"]
    assert (
        drawing.layout.title.text == f"Texts that voted, by the measure {measure}"
        and mark.name == "the run's text"
    )
    assert shades.hovertemplate == "%{customdata[0]}<br>%{customdata[1]}<br>%{z:.3f} alike<extra></extra>"
    assert [text.split("  ")[-1] for text in drawing.layout.yaxis.ticktext] == [
        f"{x:.3f}" for x in sorted(votes)[::-1]
    ]
    last = len(trace.steps) - 1
    assert figure(trace, "matrix", step=last).to_json() == drawing.to_json()
    with pytest.raises(ValueError, match="Step 0 keeps no matrix"):
        figure(trace, "matrix", step=0)
    with pytest.raises(TraceError, match="no step 99"):
        figure(trace, "matrix", step=99)
    with pytest.raises(ValueError, match="keeps a matrix"):
        figure("h2o", "matrix")
