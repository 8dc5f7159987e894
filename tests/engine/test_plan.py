"""Plan: a policy's decision for each KV head is in the trace once, and the cache follows it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import toys

from decodescope.engine.trace import check, open_trace

PROMPT = toys.PROMPT * 3
PLANS: dict[str, dict[str, Any]] = {
    "pyramidkv": dict(prompt_budget=6, window=4, beta=6),
    "adakv": dict(prompt_budget=6, window=4),
    "kvzip": dict(sink_tokens=2, prompt_budget=4, window=4),
    "d2o": dict(heavy=8, recent=4),
    "duo_attention": dict(sink_tokens=2, recent=4, retrieval_heads="0.1 2.0"),
    "fastgen": dict(min_recovery=0.5),
}


@pytest.mark.parametrize("name", PLANS)
def test_the_cache_holds_what_was_planned_for_each_head(name: str, tmp_path) -> None:
    run = toys.decode(toys.method(policy=(name, PLANS[name])), PROMPT, count=8)
    first, *later = (step.cache[0] for step in run.sink.steps)
    assert first.plan is not None and all(x.plan is None for x in later) and check(run.sink).ok
    entries, held = first.plan.entries, np.array([x.lengths for x in run.target.cache.layers])
    assert name == "fastgen" or len(set(entries.ravel().tolist())) > 1, (
        "the test needs heads or layers that differ"
    )
    written = sum(x.appended for x in later) if run.method.policy.once else 0
    assert (held == entries + written)[entries >= 0].all() and (entries >= 0).any() == (name != "fastgen")
    assert {"duo_attention": ["retrieval", "streaming"]}.get(name) in (None, first.plan.kinds)
    if first.plan.kind is not None:
        whole = first.plan.kind == (0 if name == "duo_attention" else 4)
        assert ((held == len(PROMPT) + 7) == whole).all() and (
            name == "fastgen" or 0 < whole.sum() < whole.size
        )
    run.sink.save(tmp_path / "x.dstrace")
    again = open_trace(tmp_path / "x.dstrace").steps[0].cache[0].plan
    assert np.array_equal(again.entries, entries) and again.kinds == first.plan.kinds
    assert problems(run.sink, 1) == ("" if name == "fastgen" else "planned"), "a lie is found"


def problems(trace: Any, less: int) -> str:
    """Return "planned" if `check` reports a plan that has `less` fewer entries, else an empty string."""
    steps = trace.steps
    trace.steps = [deepcopy(steps[0]), *steps[1:]]
    entries = trace.steps[0].cache[0].plan.entries
    entries[entries > 0] -= less
    wrong = " ".join(check(trace).problems)
    trace.steps = steps
    return "planned" if "planned" in wrong else ""


def test_who_plans_nothing_says_nothing() -> None:
    run = toys.decode(toys.method(policy=("h2o", dict(heavy=4, recent=4))), PROMPT, count=4)
    assert all(step.cache[0].plan is None for step in run.sink.steps)
