"""The Hardware page: prices against the cost model, questions that make no sense, and what the page shows of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from browser import Lab
from sizes import first_of
from starlette.testclient import TestClient
from toylab import finished

from decodescope.app.runs.catalogue.examples import shipped_examples
from decodescope.app.runs.run_service import RunService
from decodescope.engine.core.params import ParamError
from decodescope.engine.cost.cost import DTYPE_BITS, cost_of, ops_of, speedup
from decodescope.engine.cost.hardware import DEVICES, HardwareProfile
from decodescope.engine.cost.passes import spec_of
from decodescope.engine.trace import open_trace
from decodescope.lab.cost.pricer import (
    LENGTHS,
    SHAPES,
    SHARES,
    PricedRun,
    Pricer,
    acceptance_for_tau,
    cost_deviation,
)

PAGE = "#ds-page-hardware"
A100 = DEVICES["a100-80g"]


@pytest.fixture(scope="module")
def run() -> PricedRun:
    """The first example: trees of a draft model."""
    trace = open_trace(shipped_examples()[0].path)
    try:
        return PricedRun(trace.header, trace.prefill, list(trace.steps))
    finally:
        trace.close()


def test_published_shapes_have_the_parameters_that_their_makers_name() -> None:
    named = {  # billions
        "qwen2.5-0.5b": 0.494, "tinyllama-1.1b": 1.10, "llama-2-7b": 6.74, "llama-3.1-8b": 8.03, "llama-2-13b": 13.02,
        "llama-2-70b": 68.98,
    }  # fmt: skip
    assert {name: shape.params / 1e9 for name, shape in SHAPES.items()} == pytest.approx(named, rel=0.002)
    for shape in SHAPES.values():
        assert shape.n_heads * shape.head_dim == shape.d_model and shape.n_heads % shape.n_kv_heads == 0


# ---- prices


def test_the_model_s_time_of_a_kind_is_the_sum_over_its_passes(run: PricedRun) -> None:
    machine = HardwareProfile("a machine", 1e11, 1e10, launch_us=3.0)
    rows = {(row["lane"], row["phase"]): row for row in Pricer(run, machine).rows()}
    bits, spec = DTYPE_BITS[run.header.dtype], spec_of(run.header.model)
    checks = [
        (one, step.draft)
        for step in run.steps
        for one in step.passes
        if (one.lane, one.phase) == ("target", "verify")
    ]
    costs = [
        cost_of(spec, one, draft=draft if draft and draft.parents else None, bits=bits)
        for one, draft in checks
    ]
    assert len(checks) > 5 and any(draft and draft.parents for _, draft in checks)
    row = rows[("target", "verify")]
    assert (row["n"], row["flops"], row["bytes"]) == (
        len(costs),
        sum(c.flops for c in costs),
        sum(c.bytes for c in costs),
    )
    assert row["model"] == pytest.approx(sum(machine.time_us(c).us for c in costs) / 1e6)
    assert row["s"] == pytest.approx(sum(one.wall_us for one, _ in checks) / 1e6)


def test_weights_that_a_device_cannot_hold_are_told(run: PricedRun) -> None:
    large, fits = ({"target": SHAPES[name]} for name in ("llama-2-70b", "llama-2-7b"))
    assert any("would not fit" in x for x in Pricer(run, A100, large).assumptions())
    assert not any(
        "would not fit" in x for x in Pricer(run, A100, fits).assumptions() + Pricer(run, A100).assumptions()
    )
    assert f"Figures of {A100.name}: carried over, {A100.source}." in Pricer(run, A100).assumptions()


def test_how_far_the_model_is_off_is_told_with_sign_and_size() -> None:
    kinds = [dict(s=0.5, model=0.2), dict(s=1.5, model=1.8), dict(s=0.0, model=1.0)]
    far = cost_deviation(kinds)
    assert (
        far is not None
        and far.share == pytest.approx(2.0 / 2.0 - 1)
        and (far.least, far.most) == (0.4, pytest.approx(1.2))
    )
    slow = str(cost_deviation(kinds[:1]))
    assert slow.startswith(
        "The model is off by −60 % for this run on its own machine: its passes took 500.0 ms"
    )
    assert (
        "by kind" not in slow and "by kind of pass −60 % to +20 %" in str(far) and "took 2.00 s" in str(far)
    )
    assert cost_deviation([]) is None


def test_a_machine_twice_as_fast_takes_half_the_time_and_changes_no_decision(run: PricedRun) -> None:
    slow = Pricer(run, HardwareProfile("slow", 1e11, 1e10)).record()
    fast = Pricer(run, HardwareProfile("fast", 2e11, 2e10)).record()
    assert fast["token"] == pytest.approx(slow["token"] / 2) and fast["speedup"] == pytest.approx(
        slow["speedup"]
    )
    assert fast["surface"]["grid"] == slow["surface"]["grid"] and fast["measured"] == slow["measured"]


def test_another_type_is_taken_where_the_device_lists_no_peak_and_said(run: PricedRun) -> None:
    assert run.header.dtype == "float32"
    made = Pricer(run, A100)
    assert made.dtype == "float16" and made.passes.bits == 16
    assert any("float16 there" in sentence and "float32" in sentence for sentence in made.assumptions())


def test_a_larger_target_costs_what_its_shape_says(run: PricedRun) -> None:
    own, large = Pricer(run, A100), Pricer(run, A100, {"target": SHAPES["llama-2-7b"]})
    one = next(p for p in run.steps[3].passes if (p.lane, p.phase) == ("target", "verify"))
    cost = cost_of(SHAPES["llama-2-7b"], one, bits=16)
    assert large.pass_us(one) == pytest.approx(A100.time_us(cost, "float16").us)
    assert large.pass_us(one) > 100 * own.pass_us(one) and any(
        "Llama 2 7B" in sentence for sentence in large.assumptions()
    )
    drafts = {row["phase"]: row["model"] for row in own.rows() if row["lane"] == "draft"}
    assert {row["phase"]: row["model"] for row in large.rows() if row["lane"] == "draft"} == drafts, (
        "the draft is its own"
    )
    assert large.record()["speedup"] > own.record()["speedup"], "a draft that is small beside it pays more"


def test_passes_that_leave_layers_out_keep_their_model(run: PricedRun) -> None:
    steps = [replace(step, passes=[replace(p, attn=2) for p in step.passes]) for step in run.steps]
    with pytest.raises(ParamError, match="leave layers out"):
        Pricer(replace(run, steps=steps), A100, {"target": SHAPES["llama-2-7b"]}).rows()


def test_passes_that_tell_what_each_layer_held_or_read_keep_their_model(run: PricedRun) -> None:
    layers = spec_of(run.header.model).n_layers
    for each in ({"held": [8] * layers}, {"read": [[4]] * layers}):
        steps = [
            replace(step, passes=[replace(p, **each) for p in step.passes if p.lane == "target"])
            for step in run.steps
        ]
        with pytest.raises(
            ParamError, match=f"recorded of {layers} layers, and another model has 32: keep the run's own"
        ):
            Pricer(replace(run, steps=steps), A100, {"target": SHAPES["llama-2-7b"]}).rows()
        assert Pricer(replace(run, steps=steps), A100).rows()


def test_the_surface_is_the_formula_and_the_run_stands_where_its_tokens_say(run: PricedRun) -> None:
    made = Pricer(run, A100).surface(Pricer(run, A100).rows())
    for y, share in enumerate(SHARES):
        for x, length in enumerate(LENGTHS):
            assert made["grid"][y][x] == pytest.approx(
                speedup(share, length, made["draft"], made["check"][x]), abs=1e-4
            )
    point = made["point"]
    assert 4 < point["length"] <= 5 and 0 < made["draft"] < 1
    assert (1 - point["share"] ** (point["length"] + 1)) / (1 - point["share"]) == pytest.approx(
        min(run.tau, point["length"] + 1), rel=0.01
    )
    assert acceptance_for_tau(1.0, 4) == pytest.approx(0, abs=1e-6) and acceptance_for_tau(
        5.0, 4
    ) == pytest.approx(1, abs=1e-3)


def test_the_surface_of_the_run_s_own_machine_reads_the_measured_curve(run: PricedRun) -> None:
    machine = HardwareProfile("this machine", 1e11, 1e10, kind="measured")
    curve = {"1": 1000.0, "2": 1100.0, "4": 1300.0, "8": 1700.0, "16": 2500.0}
    head = replace(run.header, machine=machine.record(), pass_us={"target": curve})
    own = replace(run, header=head)
    rows = Pricer(own, machine).rows()
    made = Pricer(own, machine).surface(rows)
    assert made["check"] == pytest.approx([1 + n / 10 for n in LENGTHS])
    spent = sum(row["s"] for row in rows if row["phase"] in ("draft", "catch_up"))
    drafted = sum(step.draft is not None and bool(step.draft.tokens) for step in run.steps)
    assert made["draft"] == pytest.approx(spent * 1e6 / (run.depth * drafted) / 1000.0)
    assert any("passes over 1, 2, 4, 8, 16 rows" in x for x in Pricer(own, machine).assumptions())
    for other in (A100, replace(machine, name="another machine")):
        assert Pricer(own, other).curve is None
    assert Pricer(own, machine, {"target": SHAPES["llama-2-7b"]}).curve is None
    assert Pricer(run, machine).curve is None, "an old header keeps no curve"


def test_operators_of_a_step_add_up_to_its_passes(run: PricedRun) -> None:
    step = run.steps[3]
    rows = Pricer(run, A100).operators(step)
    lanes = {"target": run.header.model, **run.header.lanes}
    for lane in {one.lane for one in step.passes}:
        ops = []
        for one in [p for p in step.passes if p.lane == lane]:
            tree = step.draft if one.phase == "verify" else None
            ops += ops_of(spec_of(lanes[lane]), one, draft=tree, bits=16)
        mine = [row for row in rows if row["lane"] == lane]
        assert sum(row["flops"] for row in mine) == sum(op.flops for op in ops) > 0
        assert sum(row["weights"] + row["kv"] + row["act"] for row in mine) == sum(op.bytes for op in ops)
        assert sum(row["n"] for row in mine) == len(ops)


# ---- questions


def test_a_run_is_priced_at_home_and_elsewhere(client: TestClient) -> None:
    example = shipped_examples()[0].run
    found = client.get(f"/ds/run/{example}/hardware").json()
    assert found["here"]["kind"] == "measured" and found["there"] is None and found["steps"] == found["count"]
    assert len(found["checks"]) == found["count"]
    kinds, steps = {(x["lane"], x["phase"]): x for x in found["worked"]["rows"]}, found["worked"]["steps"]
    assert {(x["lane"], x["phase"]) for x in found["here"]["rows"]} == set(kinds) and 0 < steps[
        "useful_share"
    ] <= 1
    for row in found["here"]["rows"]:
        reached = row["flops"] / row["s"] / found["here"]["peak"]
        assert kinds[row["lane"], row["phase"]]["mfu"] == pytest.approx(reached, rel=1e-3)
    there = client.get(
        f"/ds/run/{example}/hardware", params={"device": "a100-80g", "target": "llama-2-7b"}
    ).json()["there"]
    assert there["name"] == A100.name and any("Llama 2 7B" in sentence for sentence in there["assumptions"])
    own = {"device": "own", "bandwidth": "100", "peak": "2", "launch": "5"}
    there = client.get(f"/ds/run/{example}/hardware", params=own).json()["there"]
    assert (there["bandwidth"], there["peak"], there["launch_us"]) == (1e11, 2e12, 5.0)
    listed = client.get("/ds/hardware").json()
    assert {x["key"] for x in listed["devices"]} == set(DEVICES) and set(SHAPES) <= {
        x["key"] for x in listed["models"]
    }
    assert client.get(f"/ds/run/{example}/operators", params={"step": 2}).json()["rows"]


@pytest.mark.parametrize(
    "asked",
    [
        {"device": "<b>"},
        {"target": "../lab"},
        {"device": "own"},
        {"device": "own", "bandwidth": "nan", "peak": "1"},
        {"device": "own", "bandwidth": "1e99", "peak": "1"},
        {"device": "own", "bandwidth": "-1", "peak": "1"},
        {"device": "own", "bandwidth": "1", "peak": "1", "launch": "x"},
    ],
)
def test_a_question_that_makes_no_sense_is_refused_in_a_sentence(
    client: TestClient, asked: dict[str, str]
) -> None:
    answer = client.get(f"/ds/run/{shipped_examples()[0].run}/hardware", params=asked)
    assert (
        answer.status_code == 422 and answer.json()["error"].endswith(".") and "Traceback" not in answer.text
    )


def test_a_run_without_its_machine_is_priced_on_a_device_only(play: RunService, client: TestClient) -> None:
    channel = finished(play, max_new=8)
    channel.wire.profile = None
    found = client.get(f"/ds/run/{channel.run}/hardware").json()
    assert found["here"] is None and found["there"] is None and found["worked"] is None
    assert (
        "choose a device"
        in client.get(f"/ds/run/{channel.run}/hardware", params={"target": "llama-2-7b"}).json()["error"]
    )
    there = client.get(
        f"/ds/run/{channel.run}/hardware", params={"device": "own", "bandwidth": "1", "peak": "1"}
    ).json()
    assert there["there"]["token"] > 0 and there["here"] is None
    for step in ("99999", "-1", "x", ""):
        assert client.get(f"/ds/run/{channel.run}/operators", params={"step": step}).status_code == 422
    assert client.get(f"/ds/run/{'0' * 16}/hardware").status_code == 404


# ---- the page


@pytest.mark.browser
@pytest.mark.xdist_group("tabs")
class TestThePage:
    """What the page shows."""

    def opened(self, lab: Lab, **more: Any) -> Any:
        """The page with the first example and its prices."""
        page = lab.open(f"/#hardware&run={shipped_examples()[0].run}", ready=False, **more)
        page.wait_for_selector(f"{PAGE} .chart svg:visible")
        page.wait_for_selector(f"{PAGE} aside li")
        return page

    def test_measured_marks_are_filled_modelled_ones_hollow_and_the_step_is_ringed(self, lab: Lab) -> None:
        page = self.opened(lab)
        page.wait_for_selector(f"{PAGE} .chart .mark.other")
        marks = f"{PAGE} .chart .mark"
        assert (
            page.locator(f"{marks}.full:not(.other)").count() >= 3
            and page.locator(f"{marks}.hollow").count() == 0
        )
        assert page.locator(f"{PAGE} .ring").count() == 1
        page.select_option(f"{PAGE} select >> nth=0", "a100-80g")
        page.wait_for_selector(f"{marks}.hollow", state="attached")
        assert "Dashed: A100" in page.inner_text(PAGE) and page.locator(f"{PAGE} .roof.there").count() == 1
        label = page.get_attribute(f"{PAGE} .chart svg", "aria-label")
        assert "measured" in label and "modelled" in label
        heads = page.locator(f"{PAGE} table").first.locator("thead th").all_inner_texts()
        assert {"measured", "model, here", "model, there"} <= set(heads)

    @pytest.mark.nightly
    def test_all_columns_of_the_passes_fit_in_larger_type(self, lab: Lab) -> None:
        page = self.opened(lab, width=1280, height=900)
        page.click(".ds-top .size")
        page.select_option(f"{PAGE} select >> nth=0", "a100-80g")
        page.wait_for_function(f"document.querySelectorAll('{PAGE} table')[0].rows[0].cells.length == 10")
        box = f"document.querySelector('{PAGE} .scroll')"
        assert page.evaluate(f"{box}.scrollWidth <= {box}.clientWidth")

    @pytest.mark.nightly
    def test_the_step_moves_with_the_scrubber_here_and_in_the_lab(self, lab: Lab) -> None:
        page = self.opened(lab)
        for i in (2, 5):
            page.evaluate(
                "([page, i]) => { const s = document.querySelector(page + ' .steps input'); s.value = i; "
                "s.dispatchEvent(new Event('input')); }",
                [PAGE, i],
            )
            page.wait_for_function(
                f"document.querySelector('{PAGE} .roofline h1')?.textContent == 'Step {i}'"
            )
            page.wait_for_function(
                f"document.querySelector('{PAGE}')?.textContent.includes('Step {i}, all passes of')"
            )
        ring = page.get_attribute(f"{PAGE} .ring", "cy")
        page.focus(f"{PAGE} .steps button >> nth=0")
        page.keyboard.press("Enter")
        page.wait_for_function(f"document.querySelector('{PAGE} .roofline h1')?.textContent == 'Step 4'")
        page.wait_for_function(
            f"(document.querySelector('{PAGE} .ring')?.getAttribute('cy') ?? {json.dumps(ring)}) != {json.dumps(ring)}"
        )
        page.click("#ds-tab-lab")
        page.wait_for_selector(".ds h1:text-is('Step 4')")

    @pytest.mark.nightly
    def test_own_figures_are_asked_for_and_a_wrong_one_is_answered_beside_them(self, lab: Lab) -> None:
        page = self.opened(lab)
        assert page.locator(f"{PAGE} .own").is_hidden()
        page.select_option(f"{PAGE} select >> nth=0", "own")
        page.wait_for_selector(f"{PAGE} .bars >> text=your own figures, modelled")
        page.get_by_label("bandwidth, GB/s").fill("0")
        page.keyboard.press("Enter")
        page.wait_for_selector(f"{PAGE} aside .ds-refusal >> text=must lie in")
        page.get_by_label("bandwidth, GB/s").fill("50")
        page.keyboard.press("Tab")
        page.wait_for_selector(f"{PAGE} aside .ds-refusal", state="detached")

    @pytest.mark.nightly
    def test_the_surface_says_where_the_run_stands(self, lab: Lab) -> None:
        page = self.opened(lab)
        mine = page.locator(f"{PAGE} .surface .mine")
        assert mine.count() == 1 and "this run" in mine.get_attribute("aria-label")
        home = page.evaluate(f"fetch('/ds/run/{shipped_examples()[0].run}/hardware').then(x => x.json())")[
            "here"
        ]
        speeds, point = home["surface"], home["surface"]["point"]
        near = [min(range(len(x)), key=lambda k: abs(x[k] - y)) for x, y in
                ((speeds["shares"], point["share"]), (speeds["lengths"], point["length"]))]  # fmt: skip
        assert abs(speeds["grid"][near[0]][near[1]] - home["speedup"]) > 0.1, (
            "the test needs a tree that a chain is not"
        )
        assert float(mine.inner_text()) == pytest.approx(home["speedup"], abs=0.051), (
            "the ring prices the tree that ran"
        )
        assert page.locator(f"{PAGE} .surface tbody td").count() == len(LENGTHS) * len(SHARES)
        slow = page.locator(f"{PAGE} .surface .slow").evaluate_all(
            "all => all.map((x) => Number(x.textContent))"
        )
        assert slow and max(slow) <= 1

    @pytest.mark.nightly
    def test_a_price_elsewhere_stands_beside_the_error_of_the_model_here(self, lab: Lab) -> None:
        page = self.opened(lab)
        assert page.locator(f"{PAGE} .error").count() == 0, "no price of another machine stands here"
        home = page.evaluate(f"fetch('/ds/run/{shipped_examples()[0].run}/hardware').then(x => x.json())")
        rows = home["here"]["rows"]
        share = 100 * (sum(row["model"] for row in rows) / sum(row["s"] for row in rows) - 1)
        said = page.inner_text(f"{PAGE} .off")
        assert said == home["off"] and said.startswith(
            f"The model is off by {share:+.0f} % ".replace("-", "−")
        )
        page.select_option(f"{PAGE} select >> nth=0", "a100-80g")
        page.wait_for_selector(f"{PAGE} .bars .error")
        rows = page.evaluate(f"fetch('/ds/run/{shipped_examples()[0].run}/hardware').then(x => x.json())")[
            "here"
        ]["rows"]
        off = [row["s"] / row["model"] for row in rows]
        said = f"× {min(off):.2f} to × {max(off):.2f} of the model's time"
        assert (
            said in page.inner_text(f"{PAGE} .bars")
            and said in page.inner_text(PAGE).split("When drafting pays")[-1]
        )
        cells = page.locator(f"{PAGE} table").first.locator("td .error").all_inner_texts()
        assert [x.strip() for x in cells] == [f"here × {x:.2f}" for x in off]
        heads = page.locator(f"{PAGE} .bars .over").all_inner_texts()
        assert len(heads) == 2 and all("modelled / modelled" in x for x in heads)

    @pytest.mark.nightly
    def test_the_legend_and_the_menu_stay_in_one_row(self, lab: Lab) -> None:
        page = self.opened(lab, width=1280)
        legend, menu = (
            page.locator(f"{PAGE} .roofline .{name}").bounding_box() for name in ("legend", "ds-save")
        )
        assert abs(legend["y"] + legend["height"] / 2 - menu["y"] - menu["height"] / 2) < 2
        assert legend["x"] + legend["width"] < menu["x"] < menu["x"] + menu["width"] <= 1280 - 360 - 24

    @pytest.mark.nightly
    def test_the_steps_stay_at_the_bottom_of_the_window(self, lab: Lab) -> None:
        page = self.opened(lab)
        for down in (0, 300):
            page.evaluate(f"scrollTo(0, {down})")
            bar = page.locator(f"{PAGE} .steps").bounding_box()
            assert page.evaluate("scrollY") == down and 895 <= bar["y"] + bar["height"] <= 901

    @pytest.mark.nightly
    def test_a_run_that_is_gone_is_said_with_what_to_do(self, lab: Lab) -> None:
        page = lab.open(f"/#hardware&run={'0' * 14}ee", ready=False)
        page.wait_for_selector(
            f"{PAGE} .nothing >> text=This run is not here any more. No run is shown: press Run in the Lab"
        )
        assert page.evaluate("location.hash") == "#hardware" and page.locator(f"{PAGE} .open").is_hidden()
        page.evaluate(f"location.hash = 'hardware&run={shipped_examples()[0].run}'")
        page.wait_for_selector(f"{PAGE} .chart svg:visible")
        assert page.locator(f"{PAGE} .nothing").is_hidden()

    @pytest.mark.nightly
    @pytest.mark.parametrize("width", first_of(390, 900))
    def test_on_a_narrow_page_nothing_is_cut_off(self, lab: Lab, width: int) -> None:
        page = self.opened(lab, width=width)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")
        texts = page.locator(f"{PAGE} .chart text").evaluate_all(
            "all => all.map((x) => x.getBoundingClientRect().right)"
        )
        assert texts and max(texts) <= width
