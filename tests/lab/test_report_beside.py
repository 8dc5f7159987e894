"""Reports for another machine, as a gate beside another report, and as a flat dictionary of numbers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import toys

from decodescope.engine.core.params import ParamError
from decodescope.engine.cost.cost import PassShape, pass_ops
from decodescope.engine.cost.hardware import device
from decodescope.engine.trace import Trace
from decodescope.lab import report
from decodescope.lab.reports.changes import check_ratio
from decodescope.lab.reports.deployed_clock import DeployedClock, Deployment
from decodescope.lab.reports.metrics import report_metrics
from decodescope.lab.reports.report import AcceptanceReport
from decodescope.lab.reports.step_clock import AdviceData, StepCost

PROMPTS = 12


@cache
def runs(length: int, prompts: int = PROMPTS) -> tuple[Trace, ...]:
    """A toy's runs over some prompts, with drafts of that length."""
    method = toys.method(drafter=("draft_model", {"max_draft_tokens": length}))
    return tuple(toys.decode(method, prompt=ids, count=24).sink for ids in toys.prompts(prompts, 6))


@cache
def counted(length: int, prompts: int = PROMPTS) -> AcceptanceReport:
    """The report over them."""
    return report(runs(length, prompts))


def test_a_gate_fails_where_the_method_is_surely_worse_and_not_for_noise() -> None:
    short, long = counted(1), counted(4)
    assert long.tau > short.tau * 1.1, "the toy's drafts are accepted often enough to tell"
    worse = check_ratio(long, short, 0.97)
    assert worse.failed and worse.ratio == pytest.approx(short.tau / long.tau) and worse.high < 1
    better = check_ratio(short, long, 0.97)
    assert not better.failed and better.ratio == pytest.approx(1 / worse.ratio)
    same = check_ratio(short, short, 0.97)
    assert not same.failed and (same.low, same.ratio, same.high) == (1, 1, 1)
    assert "worse than the limit of 0.97" in str(worse) and "within" in str(same)
    noise = replace(worse, high=1.02)
    assert not noise.failed and "more prompts" in str(noise)


def test_a_gate_without_prompts_in_common_is_refused() -> None:
    with pytest.raises(ValueError, match="have 4 prompts in common, and 5 are needed"):
        check_ratio(counted(1), counted(4, 4), 0.97)


def test_a_pass_on_another_machine_costs_what_the_cost_model_says_of_it() -> None:
    header = runs(4)[0].header
    steps = [StepCost(3, (1, 1, 1), 2, 4, True, 60.0, 200.0, 50.0)] * 20
    seen = AdviceData(cycles=steps, held=[40])
    machine = device("h100-sxm")
    clock = DeployedClock(header, seen, Deployment(machine, 16))
    spec = toys.target().spec

    def price(rows: int, batch: int) -> float:
        bits = {"weight_bits": clock.bits, "act_bits": clock.bits, "kv_bits": clock.bits}
        return machine.time_us(
            pass_ops(spec, PassShape(rows, 40, batch=batch, logits=rows, **bits)), clock.dtype
        ).us

    assert clock.verify_us(4) == price(4, 16) > DeployedClock(header, seen, Deployment(machine)).verify_us(4)
    assert clock.verify_us(2.5) == pytest.approx((price(2, 16) + price(3, 16)) / 2)
    assert clock.rest == 0 and clock.draft_us(3) == 3 * clock.each > 0
    assert "H100 SXM, 16 texts at a time" in clock.source and "not measured" in clock.source


def test_advice_for_another_machine_keeps_what_was_accepted_and_says_what_it_is() -> None:
    here, there = report(runs(4)), report(runs(4), machine="h100-sxm", sequences=16)
    assert (there.tau, there.depths, there.accepted) == (here.tau, here.depths, here.accepted)
    assert [x.tokens for x in there.curve] == [x.tokens for x in here.curve]
    assert [x.step_us for x in there.curve] != [x.step_us for x in here.curve]
    assert there.clock is None and there.payoff == "" and there.deployment.startswith("H100 SXM, 16 texts")
    assert any("cost model" in x for x in there.notes) and there.record()["deployment"] == there.deployment
    with pytest.raises(ParamError, match="No machine 'abacus'"):
        report(runs(4), machine="abacus")


def test_metrics_are_flat_numbers_that_agree_with_the_report() -> None:
    found = counted(4)
    metrics = report_metrics(found)
    assert all(isinstance(x, float) for x in metrics.values())
    assert metrics["tokens_per_pass"] == found.tau and metrics["acceptance"] == found.accepted / found.drafted
    assert [metrics[f"acceptance.depth.{k}"] for k in (1, 2, 3, 4)] == [x.share for x in found.depths]
    assert sum(x for name, x in metrics.items() if name.startswith("drafts.")) == found.steps
    assert metrics["speed.length.4"] == pytest.approx(1)
