"""The wire: what a view is told, and that it is data."""

from __future__ import annotations

import json

import numpy as np
import pytest
from decodescope.engine.trace import Header, Prefill, Step
from decodescope.engine.trace.events import CacheChange, DraftTree, Extra, Pass, Trials
from decodescope.lab.wire import BUDGET, Wire, encode, end_message

HOSTILE = [
    "<script>trap()</script>",
    "<img src=x onerror=trap()>",
    "\"'`${trap()}",
    "{{trap()}}",
    "</script>",
    "&lt;",
    "\u202e",
    "א",
    "\0",
    "\x1b[0m",
    "\x7f",
    "\ud800",
]


def header(**pieces: str | list[str]) -> Header:
    model = {"name": "toy", "vocab": 50, "params": 1234, "rope": {}}
    method = {"strategy": {"name": "draft_verify"}, "acceptance": {"name": "lossless"}}
    return Header(model, method, np.array([1, 2], "<i4"), 7, run="ab" * 8, pieces={"1": "a", "2": " b", **pieces})


def small() -> Step:
    """A tree 0 - (1, 2) under the root: 0 accepted, 1 refused, 2 not reached, a token drawn again."""
    p, q, u = 0.1 + 0.2, 0.7, 1 / 3
    return Step(
        0, 2, 1500.0, 2500.0, [8, 20], ["accepted", "residual"], drafted=3, accepted=1,
        draft_us=500.0, verify_us=1500.0,
        passes=[Pass("target", "verify", 4, 2, 7.25), Pass("draft", "draft", 1, 2, 7.25)],
        cache=[CacheChange("target", 2, 3, 640, 960, 1, np.array([0], "<i4"))],
        path=[0],
        draft=DraftTree([8, 9, 10], [-1, 0, 0], [q, 0.4, 0.2], "iid"),
        trials=Trials([0, 1], [p, 0.1], [p, 0.1], [q, 0.4], [u, 0.9], [p / q, 0.25], [True, False]),
        extra=Extra(20, "residual", 0.4, 0.3, 0.5),
        pieces={"8": "x", "9": ["e2", "96"], "10": "z", "20": "w"},
    )  # fmt: skip


def wire(step: Step, **pieces: str | list[str]) -> Wire:
    made = Wire(header(**pieces))
    made.learn(Prefill(1, wall_us=90.5))
    made.learn(step)
    return made


def test_small_step_as_it_stands_on_the_wire() -> None:
    step = small()
    made = json.loads(encode(wire(step).step(step)))
    assert made["nodes"] == [
        [-1, " b", 2, None, None, None, "root"],
        [0, "x", 8, 0.7, 0.30000000000000004, 0.3333333333333333, "accept", 0.30000000000000004, 0.42857142857142866],
        [1, ["e2", "96"], 9, 0.4, 0.1, 0.9, "reject", 0.1, 0.25],
        [1, "z", 10, 0.2],
        [1, "w", 20, None, 0.2, 0.4, "resample"],
    ]
    assert made["verdict"] == {"path": [0, 1], "first_reject": 2, "tried": [1, 2], "extra": [0.4, 0.3, 0.5]}
    assert made["made"] == [[8, "x", "accept"], [20, "w", "resample"]]
    assert made["sum"] == {"tokens": 2, "passes": 1, "tried": 2, "ok": 1, "drafted": 3, "accepted": 1, "decode": 0.0025}
    assert made["kv"] == [{"lane": "target", "appended": 2, "held": 3, "bytes": 640, "full": 960, "evicted": 1, "gone": [0]}]
    assert (made["kind"], made["i"], made["n"], made["t0"]) == ("step", 0, 2, 0.0015)
    assert made["dt"] == {"draft": 0.0005, "verify": 0.0015, "commit": 0.0, "cache": 0.0, "all": 0.0025}


def test_correction_and_residual_are_both_drawn_again() -> None:
    step = small()
    step.origins[1] = step.extra.origin = "correction"  # type: ignore[union-attr]
    made = wire(step).step(step)
    assert made["nodes"][-1][6] == made["made"][-1][2] == "resample"


def test_the_root_is_the_last_token_before_the_step() -> None:
    first, second = small(), small()
    second.step, second.n, second.pieces = 1, 4, None
    made = wire(first)
    made.learn(second)
    assert made.step(first)["nodes"][0][:3] == [-1, " b", 2]
    assert made.step(second)["nodes"][0][:3] == [-1, "w", 20]
    assert made.brief(second)["sum"]["tokens"] == 4


def test_numbers_keep_every_bit() -> None:
    values = np.random.default_rng(0).random(200).tolist()
    assert json.loads(encode(values)) == values


def test_numbers_that_are_none_become_null() -> None:
    assert json.loads(encode({"a": [float("nan"), float("inf"), 1.0]})) == {"a": [None, None, 1.0]}


def many(count: int) -> Step:
    """A tree of `count` nodes, 6 of which were tried on one path."""
    rng = np.random.default_rng(count)
    step = small()
    parents = [-1, *range(5), *rng.integers(0, 6, count - 6).tolist()]
    q = rng.random(count).tolist()
    six = list(range(6))
    step.draft = DraftTree(rng.integers(100, 4000, count).tolist(), parents, q, "without_replacement")
    step.trials = Trials(six, q[:6], q[:6], q[:6], q[:6], q[:6], [True] * 5 + [False])
    step.path, step.emitted, step.origins = six[:5], [*step.draft.tokens[:5], 20], ["accepted"] * 5 + ["residual"]
    step.drafted, step.accepted = count, 5
    step.pieces = {str(t): " token" for t in step.draft.tokens} | {"20": "w"}
    return step


@pytest.mark.parametrize("count", [24, 64, 128, 600])
def test_a_step_keeps_to_its_budget_and_its_verdict(count: int) -> None:
    step = many(count)
    made = wire(step)
    sent, whole = made.step(step), made.step(step, whole=True)
    assert len(encode(sent)) <= BUDGET + 2 * count, "left-out nodes cost one null each"
    assert count > 64 or len(encode(sent)) <= BUDGET
    assert len(sent["nodes"]) == len(whole["nodes"]) == count + 2
    kept = {i for i, row in enumerate(sent["nodes"]) if row is not None}
    assert {*sent["verdict"]["path"], *sent["verdict"]["tried"], count + 1} <= kept
    assert all(sent["nodes"][i][0] in kept for i in kept if i), "no node without its parent"
    assert sent.get("cut", False) == (len(kept) < count + 2)


def test_hostile_strings_stay_data() -> None:
    for text in HOSTILE:
        step = small()
        step.pieces["20"] = text  # type: ignore[index]
        sent = encode(wire(step).step(step))
        assert b"\n" not in sent and b"\r" not in sent, "a bare line break would end the event"
        got = json.loads(sent)["nodes"][-1][1]
        assert got == text or text == "\ud800"


def test_head_names_model_method_and_prompt() -> None:
    step = small()
    head = wire(step).head()
    assert head["model"] == {"name": "toy", "params": 1234, "vocab": 50}
    assert head["prompt"] == [[1, "a"], [2, " b"]] and head["prompt_tokens"] == 2
    assert head["prefill"] == 90.5e-6 and head["seed"] == 7


def test_end_says_why() -> None:
    from decodescope.engine.trace import End

    assert end_message(End("stop_token", [1, 2], 3, "")) | {"wall": 0} == {
        "kind": "end", "reason": "stop_token", "message": "", "steps": 3, "tokens": 2, "wall": 0,
    }  # fmt: skip


def test_counters_equal_the_summary() -> None:
    from decodescope.engine.trace import Trace
    from decodescope.engine.trace.summary import summarise

    steps = [small(), many(24)]
    steps[1].step, steps[1].n = 1, 4
    trace = Trace([header(), *steps])
    made = Wire(header())
    for step in steps:
        made.learn(step)
    sums, figures = made.brief(steps[1])["sum"], summarise(trace)
    assert sums["tokens"] / sums["passes"] == figures.tau
    assert sums["ok"] / sums["tried"] == figures.acceptance
    assert sums["tokens"] / sums["decode"] == pytest.approx(figures.tokens_per_s)
