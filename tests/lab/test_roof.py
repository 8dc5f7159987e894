"""The roofline of a step: prices compared with the cost model, points with the machine's own roof; nothing without a roof."""

from __future__ import annotations

import json
import re
from copy import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
import toys

from decodescope.engine import Session
from decodescope.engine.cost.cost import DTYPE_BITS, cost_of
from decodescope.engine.cost.hardware import HardwareProfile, roof
from decodescope.engine.cost.passes import PassPricer, spec_of
from decodescope.engine.decoding.bases.weights import CalibrationData, bits_of, parse_transform_list
from decodescope.engine.trace import Trace
from decodescope.lab import show
from decodescope.lab.cost.machine import machine_of
from decodescope.lab.figures import roofline
from decodescope.lab.wire.messages import build_wire, messages
from decodescope.lab.wire.wire import Wire, encode

from .drawn import Drawn
from .runs import known

MACHINE = HardwareProfile(
    "a machine",
    {"float64": 4e9, "float32": 8e9},
    2e9,
    cache_bandwidth=6e9,
    cache_bytes=1 << 20,
    kind="measured",
)


def test_a_row_is_the_sum_of_its_passes_at_the_cost_model_s_price() -> None:
    trace = known("tree")
    bits = DTYPE_BITS[trace.header.dtype]
    made = PassPricer(trace.header)
    for step in trace.steps[:8]:
        rows = {(row["lane"], row["phase"]): row for row in made.rows(step.passes, step.draft)}
        assert sum(row["n"] for row in rows.values()) == len(step.passes) > 1
        for (lane, phase), row in rows.items():
            spec = spec_of(trace.header.model if lane == "target" else trace.header.lanes[lane])
            own = [p for p in step.passes if (p.lane, p.phase) == (lane, phase)]
            costs = [
                cost_of(spec, p, bits=bits, draft=step.draft if phase == "verify" else None) for p in own
            ]
            assert row["flops"] == sum(c.flops for c in costs) and row["bytes"] == sum(c.bytes for c in costs)
            assert row["s"] == pytest.approx(sum(p.wall_us for p in own) / 1e6)
            assert row["rows"] == sum(p.tokens * p.batch for p in own)


def test_entries_without_tokens_are_read_too_where_nothing_was_drafted() -> None:
    trace = known("plain")
    made, one = PassPricer(trace.header), replace(trace.steps[3].passes[0], aside=3)
    assert made.cost(one) == cost_of(spec_of(trace.header.model), one, bits=DTYPE_BITS[trace.header.dtype])
    assert made.cost(one).kv_read_bytes > made.cost(replace(one, aside=None)).kv_read_bytes


def made_of(words: str) -> Trace:
    """A run on a model that transforms made from a toy."""
    whole = toys.pair()[0]
    whole = replace(whole, spec=replace(whole.spec, name=f"toy@{words}", weights=words))
    decoder = copy(whole.decoder)
    decoder.spec = whole.spec
    for one in parse_transform_list(words):
        decoder = one.transform(decoder, CalibrationData(lambda: torch.zeros(0, dtype=torch.int64)))
    spec = replace(decoder.spec, bits=bits_of(decoder))
    decoder = copy(decoder)
    decoder.spec = spec
    run = toys.finish_session(
        Session(replace(whole, decoder=decoder, spec=spec), toys.method(), toys.PROMPT, max_new_tokens=6)
    )
    return run.sink  # type: ignore[return-value] # a trace


@pytest.mark.parametrize("words", ["codes bits=3 group=16", "cut_layers skip=a1,f2"])
def test_passes_of_a_model_that_was_made_of_another_have_its_price_too(words: str) -> None:
    trace, whole = made_of(words), toys.pair()[0].spec
    assert spec_of(trace.header.model).original_spec == replace(whole, name="toy", pad_token=None)
    bits, step = DTYPE_BITS[trace.header.dtype], trace.steps[3]
    due = cost_of(whole, step.passes[0], bits=bits)
    row = PassPricer(trace.header).rows(step.passes)[0]
    kept = due.weight_bytes + due.kv_read_bytes + due.kv_write_bytes
    assert row["before"] == {"name": "toy", "flops": due.flops, "bytes": due.bytes, "kept": kept}
    assert row["bytes"] < 0.9 * due.bytes and (row["flops"] == due.flops) == words.startswith("codes")
    assert all(
        "before" not in x for x in PassPricer(known("plain").header).rows(known("plain").steps[0].passes)
    )
    drawing = roofline.figure(MACHINE, trace)
    ways = [x for x in drawing.data if x.name.endswith("toy, at best")]
    assert len(ways) == 2 and all(x.line.dash == "dash" and x.marker.symbol.endswith("-open") for x in ways)
    decoding = ways[1]
    assert decoding.x[0] == pytest.approx(due.flops / due.bytes, rel=0.1) and decoding.x[1] != decoding.x[0]
    assert decoding.y[0] == pytest.approx(roof(MACHINE, [decoding.x[0]], trace.header.dtype)[0] / 1e9)


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_the_point_before_stands_hollow_on_the_roof_and_is_told(driver: Any) -> None:
    trace, drawn = made_of("codes bits=3 group=16"), Drawn(driver)
    data = json.loads(encode(list(messages(trace, profile=MACHINE))))
    drawn.run(
        "(told, i) => { window.view = S.mount(place); told.forEach((one) => view.push(one)); view.seek(i); }",
        data,
        3,
    )
    row = PassPricer(trace.header).rows(trace.steps[3].passes)[0]["before"]
    resident = row["kept"] <= MACHINE.cache_bytes
    best = roof(MACHINE, [row["flops"] / row["bytes"]], trace.header.dtype, resident=resident)[0]
    assert "Hollow: the same pass by toy, at best." in drawn.text(".roof-pane > p.quiet")
    assert re.search(
        r"; by toy [\d.]+ [kM]B, [\d.]+ . ?m?s at best|; by toy ", drawn.text(".roof-pane .reading")
    )
    drawn.page.locator(".roof-pane .tools button").click()
    rows = drawn.cells(".roof-pane .twin tbody tr")
    mine = next(x for x in rows if x[0].endswith("by toy at best") and x[0].startswith("verify"))
    assert float(mine[1]) == pytest.approx(row["flops"] / row["bytes"], abs=0.01)
    assert float(mine[4]) == pytest.approx(1000 * row["flops"] / best, abs=0.01)
    assert not drawn.troubles


def test_a_lane_of_unknown_shape_has_no_price() -> None:
    header = known("chain").header
    step = known("chain").steps[2]
    assert {row["lane"] for row in PassPricer(replace(header, lanes={})).rows(step.passes)} == {"target"}
    assert PassPricer(replace(header, model={}, lanes={})).rows(step.passes) == []
    assert PassPricer(replace(header, dtype="something")).rows(step.passes) == []


def test_a_notebook_s_view_has_a_roofline_when_the_machine_is_given() -> None:
    made = show(known("chain"), profile=MACHINE)
    assert made.views[-1] == "roof" and made.messages[0]["machine"]["name"] == MACHINE.name
    assert "roof" not in show(known("chain")).views


def test_a_machine_is_told_only_when_it_is_given_and_only_for_its_types() -> None:
    trace = known("chain")
    assert build_wire(trace).head()["machine"] is None
    told = build_wire(trace, profile=MACHINE).head()["machine"]
    assert told == machine_of(MACHINE, trace.header.dtype) and told["peak"] == MACHINE.peak(
        trace.header.dtype
    )
    assert machine_of(MACHINE, "int8") is None


def opened(driver: Any, step: int, profile: HardwareProfile | None) -> Drawn:
    made = Drawn(driver)
    data = json.loads(encode(list(messages(known("tree"), profile=profile))))
    made.run(
        "(told, i) => { window.view = S.mount(place); told.forEach((one) => view.push(one)); view.seek(i); }",
        data,
        step,
    )
    return made


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
@pytest.mark.parametrize("cache_bytes", [0, 1 << 30], ids=["from memory", "from the cache"])
def test_the_reading_says_how_far_below_the_roof_and_what_bounds_it(driver: Any, cache_bytes: int) -> None:
    trace, machine = known("tree"), replace(MACHINE, cache_bytes=cache_bytes)
    made = opened(driver, 4, machine)
    step = trace.steps[4]
    row = next(r for r in PassPricer(trace.header).rows(step.passes, step.draft) if r["phase"] == "verify")
    best = roof(machine, [row["flops"] / row["bytes"]], trace.header.dtype, resident=cache_bytes > 0)[0]
    share = 100 * row["flops"] / row["s"] / best
    told = re.fullmatch(
        r"verify, (\d+) rows?: .* moved, .* in .* ms, (\d+) % of roof, bound by ([a-z ]+)",
        made.text(".reading"),
    )
    assert told and int(told[1]) == row["rows"] and abs(int(told[2]) - share) <= 0.51
    below = row["flops"] / row["bytes"] < machine.peak(trace.header.dtype) / (6e9 if cache_bytes else 2e9)
    assert told[3] == (("cache bandwidth" if cache_bytes else "bandwidth") if below else "compute")
    assert made.page.locator("canvas.roof").is_visible()
    made.page.locator(".roof-pane button").click()
    made.settled()
    rows = made.cells(".roof-pane tbody tr")
    assert rows[-1][0].startswith("verify") and rows[-1][-2] == f"{told[2]} %" and len(rows) > 2
    made.close()


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
@pytest.mark.nightly
def test_without_a_machine_no_roof_is_drawn_and_that_is_said(driver: Any) -> None:
    made = opened(driver, 4, None)
    assert "of roof" not in made.text(".reading") and "moved" in made.text(".reading")
    assert not made.page.locator("canvas.roof").is_visible()
    assert "are not recorded" in made.text(".roof-pane")
    made.close()


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
@pytest.mark.nightly
def test_the_tree_stays_on_a_screen_of_900_px(driver: Any) -> None:
    made = opened(driver, 4, MACHINE)
    box = made.page.locator(".tree-pane").bounding_box()
    assert box and box["y"] + box["height"] < 900
    made.close()


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"name": 1},
        {"name": "x", "peak_flops": "fast", "bandwidth": 1},
        {"name": "x", "peak_flops": 1, "bandwidth": -1},
    ],
)
def test_a_damaged_machine_in_a_header_draws_no_roof(said: dict[str, Any]) -> None:
    header = replace(known("chain").header, machine=said)
    assert Wire(header).head()["machine"] is None


def test_a_header_tells_the_machine_that_was_measured() -> None:
    header = replace(known("chain").header, machine=MACHINE.record())
    told = Wire(header).head()["machine"]
    assert told == machine_of(MACHINE, header.dtype) and told["bandwidth"] == 2e9


def test_what_is_packed_behind_a_shortened_prompt_is_priced_so() -> None:
    """Packed entries are counted on the shortened prompt that the target read, not on the prompt as it was given."""
    context, codec = ("gemfilter", dict(prompt_budget=12, kernel=3)), ("kivi", dict(group=4, buffer=4))
    trace = toys.decode(
        toys.method(prompt_compression=context, kv_compression=codec), toys.prompts(1, 60, seed=2)[0], count=8
    ).sink
    made, last = PassPricer(trace.header), trace.steps[-1].passes[-1]
    assert made.read_bits(last) is None, "the header has the prompt as it was given"
    made.learn(trace.prefill)
    bits = made.read_bits(last)
    assert bits is not None and bits < 64 and made.read_bits(trace.prefill.passes[-1]) is None
    one = build_wire(trace).step(trace.steps[-1])["passes"]
    assert one == made.rows(trace.steps[-1].passes, trace.steps[-1].draft)
