"""The description of a model, on the page and as a chart: bytes and bits of the header, removed parts, heads by KV head."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import toys
from sizes import thinned

from decodescope.engine.core.params import ParamError
from decodescope.engine.cost.passes import spec_of
from decodescope.engine.decoding.bases.weights import (
    MATRICES,
    CalibrationData,
    bits_of,
    format_transform_list,
    parse_transform_list,
)
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.layers.matrix import Matrix, unpack
from decodescope.engine.trace import Trace, TraceError
from decodescope.engine.trace.records.weight_reports import Made
from decodescope.lab import show
from decodescope.lab.charts import CHARTS
from decodescope.lab.figures.model import matrix_cells
from decodescope.lab.views.bundle import needed_parts
from decodescope.lab.wire.model_build import encode_models

from .drawn import Drawn, told
from .runs import known

KINDS = {
    "plain": "",
    "few bits": "int4 group=32",
    "a head of its own": "int8 include_lm_head=true",
    "heads": "head_sensitivity cut_share=0.25 calibration_tokens=64",
    "blocks": "cut_layers skip=a1,f2",
    "both": "head_sensitivity cut_share=0.4 calibration_tokens=64+int8",
}
TEXT = CalibrationData(
    lambda: toys.torch.randint(toys.SPEC.vocab, (256,), generator=toys.torch.Generator().manual_seed(3))
)
OPEN = """(all) => { place.replaceChildren(); window.view = S.mount(place, { views: ['text', 'model', 'time'] });
all.forEach((one) => view.push(one)); view.seek(0); }"""
PANE = ".model-pane"


@cache
def made(kind: str) -> tuple[Decoder, Trace]:
    """The toy after the transforms of a kind, and a run that records it as its model."""
    decoder = toys.decoder().pack_weights()
    for one in parse_transform_list(KINDS[kind]):
        decoder = one.transform(decoder, TEXT)
    spec = replace(
        decoder.spec, weights=KINDS[kind], bits=bits_of(decoder), name=f"toy@{KINDS[kind]}".rstrip("@")
    )
    return decoder, run(spec.record())


def run(*models: dict[str, Any]) -> Trace:
    """A finished run whose header records these models, the draft's last."""
    trace = copy(known("plain"))
    trace.header = replace(
        trace.header, model=models[0], lanes={"draft": models[1]} if len(models) > 1 else {}
    )
    return trace


def held(weight: Any) -> int:
    """Bytes of a matrix, from its storages."""
    parts = weight.parts.values() if isinstance(weight, Matrix) else [weight]
    return sum(x.numel() * x.element_size() for x in parts)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_are_those_of_the_storages_and_add_up(kind: str) -> None:
    decoder, trace = made(kind)
    model = encode_models(trace.header)["target"]
    drawn = list(matrix_cells(model))
    for i, layer in enumerate(decoder.layers):
        own = {x.name: x for x in drawn if x.row == f"L{i}"}
        for name in MATRICES:
            weight = getattr(layer, name)
            shape = () if weight is None else tuple(weight.shape)
            there = own[name].shape[0] * own[name].shape[1]
            assert (own[name].shape == shape) if there else not sum(shape[:1]) * sum(shape[1:]), name
            assert own[name].bytes == pytest.approx(held(weight) if there else 0, abs=0.01)
    ends = {x.name: x.bytes for x in drawn if not x.row.startswith("L")}
    assert ends["embedding"] == held(decoder.embed) and ends["head"] == pytest.approx(
        held(decoder.unembedding), abs=0.01
    )
    assert sum(x.bytes for x in drawn) + model["rest"] == pytest.approx(model["bytes"], abs=1)
    assert sum(x.bytes + x.gone + x.saved for x in drawn) + model["rest"] <= model["dense"] + 1
    assert model["changed"] == (kind != "plain") == (model["bytes"] < model["dense"])
    assert [sum(model["kinds"][k]["groups"]) for k in model["layers"]] == [
        decoder.spec.heads_at(i) for i in range(3)
    ]
    assert needed_parts(told(trace)[:1]) == ({"model"} if kind != "plain" else set())


def test_cuts_are_uneven_and_blocks_are_gone() -> None:
    heads, blocks = (made(kind)[1].header.model for kind in ("heads", "blocks"))
    assert any(len({*groups}) > 1 for groups in heads["groups"]), "the test needs uneven groups"
    gone = [
        (x.row, x.name)
        for x in matrix_cells(encode_models(made("blocks")[1].header)["target"])
        if not x.bytes
    ]
    assert (
        gone == [("L1", "qkv"), ("L1", "out"), ("L2", "gate_up"), ("L2", "down")] and blocks["widths"][2] == 0
    )


def test_a_trace_that_tells_no_shape_has_none() -> None:
    trace = run({})
    assert encode_models(trace.header) == {} == told(trace)[0]["built"]
    with pytest.raises(ValueError, match="does not record what its model is made of"):
        CHARTS["model"].draw(trace)
    assert encode_models(replace(trace.header, model=made("plain")[1].header.model, dtype="something")) == {}
    for wrong in ({"widths": [3]}, {"groups": [[1], [-1], [2]]}):
        record = made("heads")[1].header.model | wrong
        with pytest.raises(TraceError, match="cut as none can be"):
            spec_of(record)
        assert "target" not in encode_models(run(record).header)


@pytest.mark.parametrize("kind", KINDS)
def test_the_chart_has_the_header_s_numbers(kind: str) -> None:
    trace = made(kind)[1]
    drawn = list(matrix_cells(encode_models(trace.header)["target"]))
    drawing = CHARTS["model"].draw(trace)
    bars = [one for one in drawing.data if one.type == "bar"]
    cut = {one.name: sum(one.x) * 2**20 for one in bars if one.name in ("gone", "saved by fewer bits")}
    assert sum(sum(one.x) for one in bars if one.name not in cut) * 2**20 == pytest.approx(
        sum(x.bytes for x in drawn)
    )
    assert cut.get("gone", 0) == pytest.approx(sum(x.gone for x in drawn))
    assert cut.get("saved by fewer bits", 0) == pytest.approx(sum(x.saved for x in drawn))
    for one in (one for one in bars if one.name not in cut):
        assert {*one.text} <= {f"{round(x.bits, 2):g}" for x in drawn}
    marks = {one.name: len(one.x) for one in drawing.data if one.type == "scatter"}
    spec = spec_of(trace.header.model)
    assert marks["query head"] == sum(map(spec.heads_at, range(3)))
    assert marks["query head"] + marks.get("query head, gone", 0) == 3 * spec.n_heads


def test_the_model_that_was_changed_is_drawn_unless_another_role_is_named() -> None:
    trace = run(made("plain")[1].header.model, made("few bits")[1].header.model)
    assert "toy@int4" in CHARTS["model"].draw(trace).layout.title.text
    assert "toy@" not in CHARTS["model"].draw(trace, role="target").layout.title.text
    with pytest.raises(ParamError, match="target"):
        CHARTS["model"].draw(trace, role="large")
    widget = show(trace, views=["text", "model"])
    assert "modelView" in widget._esm and "modelView" in show(made("plain")[1], views=["model"])._esm


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
@pytest.mark.parametrize("kind", thinned(2, [x for x in KINDS if x != "plain"]))
def test_parts_are_as_long_as_their_bytes_and_heads_stand_by_kv_head(drawn: Drawn, kind: str) -> None:
    trace = made(kind)[1]
    model = encode_models(trace.header)["target"]
    drawn.run(OPEN, told(trace))
    layers = drawn.page.locator(f"{PANE} .layer")
    assert layers.count() == 3 + len(model["ends"])
    px = drawn.run("() => document.querySelector('.model-pane .bytes').clientWidth")
    sizes = layers.evaluate_all("""all => all.map((row) => ['.piece:not(.cut)', '.cut.piece', '.spare'].map((x) =>
      [...row.querySelectorAll('.bytes > ' + x)].reduce((sum, one) => sum + one.getBoundingClientRect().width, 0)))""")
    due = [[sum(getattr(x, what) for x in matrix_cells(model) if x.row == row) for what in ("bytes", "gone", "saved")]
           for row in dict.fromkeys(x.row for x in matrix_cells(model))]  # fmt: skip
    most = max(sum(row) for row in due[:3])
    for shown, row in zip(sizes, due, strict=True):
        assert shown == pytest.approx([px * x / most for x in row], abs=3), "one scale for all rows"
    kv = layers.evaluate_all("""all => all.map((row) => [...row.querySelectorAll('.kv:not(.lost)')].map((x) =>
      x.querySelectorAll('.head:not(.cut)').length))""")
    assert kv[:3] == [model["kinds"][k]["groups"] for k in model["layers"]]
    lost = drawn.page.locator(f"{PANE} .head.cut").count()
    assert lost == 3 * 4 - sum(map(sum, kv))
    drawn.page.get_by_role("button", name="Show as table").last.click()
    rows = drawn.cells(f"{PANE} .twin tbody tr")
    assert [row[3] for row in rows[:-1]] == [
        f"{round(x.bits, 2):g}" if x.bytes else "–" for x in matrix_cells(model)
    ]


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_keys_lead_from_part_to_part_and_each_says_what_it_is(drawn: Drawn) -> None:
    drawn.run(OPEN, told(made("blocks")[1]))
    first = drawn.page.locator(f"{PANE} .layer button").first
    first.click()
    assert "qkv of layer 0" in drawn.text(f"{PANE} .part-card h3") and "32 bits each" in drawn.text(
        f"{PANE} .part-card"
    )
    before = drawn.page.evaluate("() => view.at")
    for key in ("ArrowDown", "ArrowRight"):
        drawn.page.keyboard.press(key)
    assert "out of layer 1" in drawn.text(f"{PANE} .part-card h3") and "It is gone" in drawn.text(
        f"{PANE} .part-card"
    )
    for _ in range(9):
        drawn.page.keyboard.press("ArrowRight")
    assert "gone" in drawn.text(f"{PANE} .part-card h3") and "4 query heads are gone" in drawn.text(
        f"{PANE} .part-card"
    )
    drawn.page.keyboard.press("ArrowUp")
    assert "Layer 0, KV head 0" in drawn.text(f"{PANE} .part-card h3") or "KV head 1" in drawn.text(
        f"{PANE} .part-card h3"
    )
    assert drawn.page.evaluate("() => view.at") == before, "arrow keys there are no steps"
    assert drawn.page.locator(f"{PANE} .layers button[tabindex='0']").count() == 1


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
@pytest.mark.nightly
def test_a_plain_model_s_pane_is_closed_and_holds_nothing_until_it_is_opened(drawn: Drawn) -> None:
    drawn.run(OPEN, told(made("plain")[1]))
    assert drawn.page.locator(PANE).is_visible() and not drawn.page.locator(f"{PANE} .layers").count()
    drawn.page.locator(f"{PANE} summary").click()
    drawn.settled()
    drawn.page.locator(f"{PANE} .layers").wait_for()
    assert (
        drawn.page.locator(f"{PANE} .piece.bits-5").count() == 3 * 4 + 2
        and not drawn.page.locator(f"{PANE} .cut").count()
    )
    drawn.run(OPEN, told(run({})))
    assert "does not record what its model is made of" in drawn.text(PANE)
    assert not drawn.page.locator(f"{PANE} details").is_visible()


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_two_models_are_shown_by_turns_and_a_narrow_page_has_room(driver: Any) -> None:
    made_ = Drawn(driver, width=390)
    made_.run(OPEN, told(run(made("both")[1].header.model, made("few bits")[1].header.model)))
    roles = made_.page.locator(f"{PANE} .switch button")
    assert (
        roles.all_inner_texts() == ["target", "draft"]
        and roles.nth(0).get_attribute("aria-pressed") == "true"
    )
    assert made_.page.evaluate("() => document.documentElement.scrollWidth") <= 390
    roles.nth(1).click()
    made_.settled()
    assert (
        not made_.page.locator(f"{PANE} .cut").count() and made_.page.locator(f"{PANE} .piece.bits-3").count()
    )
    made_.close()


# ---- findings of transforms


@cache
def reported(weights: str) -> tuple[Any, Trace]:
    """The toy as `load` makes it, and a run whose header records the findings of the transforms."""
    decoder, rows = toys.decoder().pack_weights(), []
    for one in parse_transform_list(weights):
        before, decoder = decoder, one.transform(decoder, TEXT)
        rows.append((one, before, Made(format_transform_list([one]), findings=TEXT.take_findings())))
    spec = replace(decoder.spec, weights=weights, bits=bits_of(decoder))
    trace = run(spec.record())
    trace.header = replace(trace.header, reports={"target": [x for *_, x in rows]})
    return rows, trace


TWICE = "head_sensitivity cut_share=0.25 calibration_tokens=64+head_sensitivity cut_share=0.4 calibration_tokens=64+int8"
SEARCH = "evopress attention_blocks=1 ffn_blocks=1 generations=3 offspring=2 first_stage_tokens=64 last_stage_tokens=64"


def test_heads_that_were_cut_in_two_turns_stand_where_they_were_in_the_whole_model() -> None:
    """The second transform numbers the heads of the model that the first one left.

    That model has its KV heads ordered by size; this test follows them by their own weights.
    """
    rows, trace = reported(TWICE)
    model = encode_models(trace.header)["target"]
    whole, last = toys.decoder().pack_weights(), rows[-1][1]
    wide, moved = toys.SPEC.head_dim, 0
    for i, row in enumerate(model["there"]):
        left = [h for h, there in enumerate(row) if there]
        columns = [
            unpack(whole.layers[i].out)[:, h * wide : (h + 1) * wide] for h in range(toys.SPEC.n_heads)
        ]
        cut = unpack(last.layers[i].out)
        here = [h for h, one in enumerate(columns) if any(toys.torch.equal(one, cut[:, k * wide : (k + 1) * wide])
                for k in range(last.spec.heads_at(i)))]  # fmt: skip
        assert left == here
        moved += sum(row[:2]) < sum(row[2:])
    assert moved, "the test needs a layer whose KV heads changed places"
    orders = [x for x in model["findings"] if x["word"] == "Order"]
    assert len(orders) == 2
    for i, row in enumerate(model["there"]):
        gone = [any(x["values"][i][h] is not None for x in orders) for h in range(toys.SPEC.n_heads)]
        assert gone == [not x for x in row]


def test_what_does_not_fit_the_shape_is_not_drawn() -> None:
    _, trace = reported(TWICE)
    header = replace(trace.header, model={k: x for k, x in trace.header.model.items() if k != "groups"})
    assert encode_models(header)["target"]["there"] is None
    first = trace.header.reports["target"][0]
    assert encode_models(replace(trace.header, reports={"target": [first]}))["target"]["there"] is None
    plain = encode_models(replace(trace.header, reports=None))["target"]
    assert plain["there"] is None and plain["findings"] == []


def test_charts_have_what_was_found() -> None:
    _, trace = reported(TWICE)
    there, gone = (one for one in CHARTS["model"].draw(trace).data if one.type == "scatter")
    model = encode_models(trace.header)["target"]
    score = next(x for x in model["findings"] if x["word"] == "Score")["values"]
    flat = [score[i][h] for i, row in enumerate(model["there"]) for h, x in enumerate(row) if x]
    assert list(there.marker.color) == flat and len(gone.x) == sum(
        not x for row in model["there"] for x in row
    )
    with pytest.raises(ValueError, match="recorded its rounds"):
        CHARTS["rounds"].draw(trace)
    rows, trace = reported(SEARCH)
    (line,) = CHARTS["rounds"].draw(trace, role="target").data
    assert list(line.y) == rows[0][2].findings["divergence"].values and "Best list: a" in line.customdata[-1]


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
@pytest.mark.nightly
def test_a_part_says_what_was_found_of_it(drawn: Drawn) -> None:
    rows, trace = reported(TWICE)
    drawn.run(OPEN, told(trace))
    model = encode_models(trace.header)["target"]
    cells = drawn.page.locator(f"{PANE} .layer .head")
    gone = cells.evaluate_all("all => all.map((x) => x.classList.contains('cut'))")
    assert gone == [not x for row in model["there"] for x in row]
    cells.nth(gone.index(True)).click()
    card = drawn.text(f"{PANE} .part-card")
    assert "It is gone" in card and "Score" in card and "Order" in card
    drawn.page.locator(f"{PANE} .layer .piece").first.click()
    error = rows[-1][2].findings["error"].values[0][0]
    assert f"Error {float(f'{error:.4g}'):g}: the norm of what a matrix lost" in drawn.text(
        f"{PANE} .part-card"
    )
    rows, trace = reported(SEARCH)
    drawn.run(OPEN, told(trace))
    values = rows[0][2].findings["divergence"].values
    drawn.page.locator(f"{PANE} .rounds-pane input").fill("0")
    said = drawn.text(f"{PANE} .rounds-pane output")
    assert said.startswith("Round 0.") and f"{float(f'{values[0]:.4g}'):g}" in said and "Best list" in said
    assert drawn.page.locator(f"{PANE} polyline").get_attribute("points").count(",") == len(values)
    assert not drawn.page.locator(f"{PANE} .earlier").is_visible()
    again = copy(trace)
    again.header = replace(
        trace.header, reports={"target": [replace(trace.header.reports["target"][0], kept=True)]}
    )
    drawn.run(OPEN, told(again))
    assert drawn.text(f"{PANE} .earlier").endswith(
        f"an earlier load had left it: {trace.header.reports['target'][0].weights}."
    )
