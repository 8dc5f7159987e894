"""Useful work of passes: computed by hand, sums that add up, and shares of a roof."""

from __future__ import annotations

from dataclasses import replace

import pytest
import toys

from decodescope.engine import Session
from decodescope.engine.cost.cost import cost_of
from decodescope.engine.cost.hardware import HardwareProfile, mbu, mfu
from decodescope.engine.cost.passes import PassPricer
from decodescope.engine.cost.utilization import (
    Utilization,
    pass_utilization,
    step_utilization,
    steps_utilization,
)
from decodescope.engine.trace import Trace
from decodescope.engine.trace.records.phases import is_deciding_pass

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
    return recorded(drafter=("draft_model", {"max_draft_tokens": 3}))


def test_plain_decoding_is_useful_throughout() -> None:
    trace = recorded()
    worked = steps_utilization(PassPricer(trace.header), trace.steps)
    assert worked.rows == worked.tokens == len([x for step in trace.steps for x in step.emitted]) == 24
    assert worked.kept_share == worked.useful_share == 1 and worked.roofline_share is None


def test_useful_work_is_the_share_of_checked_rows_that_stayed(drafted: Trace) -> None:
    prices = PassPricer(drafted.header)
    worked = steps_utilization(prices, drafted.steps)
    useful = executed = rejected = 0.0
    for step in drafted.steps:
        for one in step.passes:
            spec = prices.specs[one.lane]
            flops = cost_of(
                spec, one, bits=prices.bits or 0, draft=step.draft if is_deciding_pass(one) else None
            ).flops
            executed += flops
            if is_deciding_pass(one):
                useful += flops * len(step.emitted) / one.tokens
                rejected += one.tokens - len(step.emitted)
    assert rejected > 5, "the test needs rejections"
    assert worked.cost.flops == executed and worked.useful == pytest.approx(useful)
    assert (
        worked.useful_share == pytest.approx(useful / executed)
        and 0 < worked.useful_share < worked.kept_share < 1
    )  # type: ignore[operator]


def test_steps_add_up_and_a_lane_of_unknown_shape_counts_for_nothing(drafted: Trace) -> None:
    prices = PassPricer(drafted.header)
    parts = [step_utilization(prices, step, MACHINE) for step in drafted.steps]
    assert sum(parts, Utilization()) == steps_utilization(prices, drafted.steps, MACHINE)
    bare = PassPricer(replace(drafted.header, lanes={}))
    assert (
        steps_utilization(bare, drafted.steps).cost.flops
        < steps_utilization(prices, drafted.steps).cost.flops
    )
    assert (
        pass_utilization(PassPricer(replace(drafted.header, model={})), drafted.steps[0].passes[-1])
        == Utilization()
    )


def test_shares_of_a_machine_are_those_of_the_roofline(drafted: Trace) -> None:
    prices = PassPricer(drafted.header)
    worked, dtype = steps_utilization(prices, drafted.steps, MACHINE), drafted.header.dtype
    said = worked.record(MACHINE, dtype)
    assert said["mbu"] == pytest.approx(mbu(MACHINE, worked.cost, worked.us, "weights+kv"))
    assert said["mfu"] == pytest.approx(mfu(MACHINE, worked.cost, worked.us, dtype))
    best = sum(
        max(cost.flops / MACHINE.peak(dtype), cost.bytes / MACHINE.bandwidth) * 1e6
        for step in drafted.steps
        for one in step.passes
        for cost in [prices.cost(one, step.draft if is_deciding_pass(one) else None)]
    )
    assert said["reached"] == pytest.approx(best / worked.us)
    assert said["efficiency"] == pytest.approx(said["reached"] * said["useful_share"])
    assert (
        worked.record()["mbu"] is None
        and steps_utilization(prices, [], MACHINE).record(MACHINE, dtype)["efficiency"] is None
    )
