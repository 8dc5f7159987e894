"""What passes reached and what stayed: useful work by hand, sums that add up, and shares of a roof."""

from __future__ import annotations

from dataclasses import replace

import pytest
import toys

from decodescope.engine import Session
from decodescope.engine.cost.cost import cost_of
from decodescope.engine.cost.hardware import HardwareProfile, mbu, mfu
from decodescope.engine.cost.passes import Passes
from decodescope.engine.cost.worked import Worked, of_pass, of_step, of_steps
from decodescope.engine.trace import Trace
from decodescope.engine.trace.records.phases import decides

MACHINE = HardwareProfile("a machine", {"float64": 4e9, "float32": 8e9}, 2e9, kind="measured")


def recorded(**parts: object) -> Trace:
    models = {"draft": toys.draft(noise=0.3, seed=toys.LIVELY)} if parts else {}
    session = Session(
        toys.target(seed=toys.LIVELY), toys.method(**parts), toys.PROMPT, models=models, max_new_tokens=24
    )
    session.sink = Trace()
    for _ in session.stream():
        pass
    return session.sink


@pytest.fixture(scope="module")
def drafted() -> Trace:
    return recorded(drafter=("draft_model", {"length": 3}))


def test_plain_decoding_is_useful_throughout() -> None:
    trace = recorded()
    worked = of_steps(Passes(trace.header), trace.steps)
    assert worked.rows == worked.tokens == len([x for step in trace.steps for x in step.emitted]) == 24
    assert worked.kept == worked.useful_share == 1 and worked.reached is None


def test_useful_work_is_the_share_of_checked_rows_that_stayed(drafted: Trace) -> None:
    prices = Passes(drafted.header)
    worked = of_steps(prices, drafted.steps)
    useful = executed = rejected = 0.0
    for step in drafted.steps:
        for one in step.passes:
            spec = prices.specs[one.lane]
            flops = cost_of(
                spec, one, bits=prices.bits or 0, draft=step.draft if decides(one) else None
            ).flops
            executed += flops
            if decides(one):
                useful += flops * len(step.emitted) / one.tokens
                rejected += one.tokens - len(step.emitted)
    assert rejected > 5, "the test needs rejections"
    assert worked.cost.flops == executed and worked.useful == pytest.approx(useful)
    assert (
        worked.useful_share == pytest.approx(useful / executed) and 0 < worked.useful_share < worked.kept < 1
    )  # type: ignore[operator]


def test_steps_add_up_and_a_lane_of_unknown_shape_counts_for_nothing(drafted: Trace) -> None:
    prices = Passes(drafted.header)
    parts = [of_step(prices, step, MACHINE) for step in drafted.steps]
    assert sum(parts, Worked()) == of_steps(prices, drafted.steps, MACHINE)
    bare = Passes(replace(drafted.header, lanes={}))
    assert of_steps(bare, drafted.steps).cost.flops < of_steps(prices, drafted.steps).cost.flops
    assert of_pass(Passes(replace(drafted.header, model={})), drafted.steps[0].passes[-1]) == Worked()


def test_shares_of_a_machine_are_those_of_the_roofline(drafted: Trace) -> None:
    prices = Passes(drafted.header)
    worked, dtype = of_steps(prices, drafted.steps, MACHINE), drafted.header.dtype
    said = worked.record(MACHINE, dtype)
    assert said["mbu"] == pytest.approx(mbu(MACHINE, worked.cost, worked.us, "weights+kv"))
    assert said["mfu"] == pytest.approx(mfu(MACHINE, worked.cost, worked.us, dtype))
    best = sum(
        max(cost.flops / MACHINE.peak(dtype), cost.bytes / MACHINE.bandwidth) * 1e6
        for step in drafted.steps
        for one in step.passes
        for cost in [prices.cost(one, step.draft if decides(one) else None)]
    )
    assert said["reached"] == pytest.approx(best / worked.us)
    assert said["efficiency"] == pytest.approx(said["reached"] * said["useful_share"])
    assert (
        worked.record()["mbu"] is None
        and of_steps(prices, [], MACHINE).record(MACHINE, dtype)["efficiency"] is None
    )
