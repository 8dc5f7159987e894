"""The wire: what a view receives, and that it is data."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import toys

from decodescope.engine import Session
from decodescope.engine.trace import Header, Prefill, Step, Trace
from decodescope.engine.trace.records.events import CacheChange, DraftTree, Extra, Pass, Tops, Trials
from decodescope.lab.wire.messages import build_wire, messages
from decodescope.lab.wire.pass_costs import PassCostEncoder
from decodescope.lab.wire.wire import BUDGET, Wire, encode, end_message

from .runs import known

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
    return Header(
        model, method, np.array([1, 2], "<i4"), 7, run="ab" * 8, pieces={"1": "a", "2": " b", **pieces}
    )


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
        [
            0,
            "x",
            8,
            0.7,
            0.30000000000000004,
            0.3333333333333333,
            "accept",
            0.30000000000000004,
            0.42857142857142866,
        ],
        [1, ["e2", "96"], 9, 0.4, 0.1, 0.9, "reject", 0.1, 0.25],
        [1, "z", 10, 0.2],
        [1, "w", 20, None, 0.2, 0.4, "resample"],
    ]
    assert made["verdict"] == {
        "path": [0, 1],
        "first_reject": 2,
        "tried": [1, 2],
        "ok": [1, 0],
        "extra": [0.4, 0.3, 0.5],
    }
    assert made["made"] == [[8, "x", "accept"], [20, "w", "resample"]]
    assert made["sum"] == {
        "tokens": 2,
        "passes": 1,
        "tried": 2,
        "ok": 1,
        "drafted": 3,
        "accepted": 1,
        "decode": 0.0025,
    }
    assert made["kv"] == [
        {
            "lane": "target",
            "appended": 2,
            "read": 2,
            "held": 3,
            "bytes": 640,
            "full": 960,
            "evicted": 1,
            "gone": [0],
        }
    ]
    assert made["proposal"] == "iid"
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
    step.path, step.emitted, step.origins = (
        six[:5],
        [*step.draft.tokens[:5], 20],
        ["accepted"] * 5 + ["residual"],
    )
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


def test_a_step_says_what_it_and_its_check_cost_in_passes_over_one_row() -> None:
    def sent(**pass_us: dict[str, float]) -> dict[str, Any]:
        head, step = replace(header(), pass_us=pass_us), small()
        made = Wire(head)
        made.learn(step)
        costs = PassCostEncoder(head)
        rows = [
            {"lane": lane, "phase": phase, "rows": rows, "n": n}
            for lane, phase, rows, n in (
                ("target", "verify", 4, 1), ("target", "verify", 3, 3), ("draft", "draft", 4, 1),
                ("target", "verify", 99, 1),
            )
        ]  # fmt: skip
        costs.add_costs(rows)
        return {"step": made.step(step).get("cost"), "passes": [x.get("cost") for x in rows]}

    curve = {"8": 800.0, "1": 500.0, "2": 600.0}
    assert sent(target=curve) == {
        "step": "; 2 tokens in the time of 5.00 plain passes",
        "passes": [" (cost of 1.33 rows)", None, None, None],
    }
    assert sent(draft=curve) == sent(target={"1": 500.0}) == {"step": None, "passes": [None] * 4}


def test_end_says_why() -> None:
    from decodescope.engine.trace import End

    assert end_message(End("stop_token", [1, 2], 3, "")) | {"wall": 0} == {
        "kind": "end", "reason": "stop_token", "message": "", "notes": [], "steps": 3, "tokens": 2, "wall": 0,
    }  # fmt: skip


def test_counters_equal_the_summary() -> None:
    from decodescope.engine.trace import Trace
    from decodescope.engine.trace.query.summary import summarise

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


def laws() -> Tops:
    """The distributions of the root and of node 0; the second row is shorter."""
    p, q = np.array([[0.3, 0.25], [0.1, 0.0]], "<f4"), np.array([[0.7, 0.1], [0.4, 0.0]], "<f4")
    rest = np.array([[0.45, 0.2, 0.3], [0.9, 0.6, 0.5]], "<f4")
    return Tops(
        np.array([-1, 0], "<i4"), np.array([[8, 20], [9, -1]], "<i4"), p, q, rest, np.array([1.5, 2.5], "<f4")
    )


def test_a_step_brings_the_laws_where_a_reader_looks_first_and_all_when_asked() -> None:
    step = small()
    step.tops = laws()
    sent, whole = wire(step).step(step), wire(step).step(step, whole=True)
    assert sent["tops"] == [[1, 2.5, [0.9, 0.6, 0.5], [[9, ["e2", "96"], 0.1, 0.4]]]], (
        "node 1 of the wire: after it one was refused"
    )
    assert sent["few"] and "few" not in whole
    assert whole["tops"][0] == [0, 1.5, [0.45, 0.2, 0.3], [[8, "x", 0.3, 0.7], [20, "w", 0.25, 0.1]]]
    spared = wire(step).step(step, spared=("laws", "passes"))
    assert spared["few"] == ["passes", "laws"] and sent.keys() - spared.keys() == {"tops", "passes"}
    assert all(spared[name] == sent[name] for name in spared.keys() - {"few"}), "all else is the same"
    step.pieces["9"] = "long " * 300  # type: ignore[index]
    assert wire(step).step(step)["tops"] == [], (
        "laws that would fill the message wait until they are asked for"
    )


def test_laws_of_a_run_add_up_to_one_and_keep_every_bit() -> None:
    trace, seen = known("tree"), 0
    for message, step in zip([m for m in messages(trace) if m["kind"] == "step"], trace.steps, strict=True):
        assert step.tops is not None
        for i, (place, _, rest, shown) in enumerate(message["tops"]):
            there = step.tops.ids[i] >= 0
            assert (
                place == step.tops.places[i] + 1 and [x[0] for x in shown] == step.tops.ids[i][there].tolist()
            )
            assert np.array_equal(np.float32([x[2] for x in shown]), step.tops.p[i][there])
            assert sum(x[2] for x in shown) + rest[0] == pytest.approx(1, abs=1e-5)
            seen += 1
    assert seen > 20, "the test needs laws"


def kept_by_replay(steps: list[dict], rows: int) -> list[list[set[int]]]:
    """For each step and row the positions that are still held, from the wire alone."""

    def flat(runs: list) -> set[int]:
        return {p for run in runs for p in (range(run[0], run[1] + 1) if isinstance(run, list) else [run])}

    held: list[set[int]] = [set() for _ in range(rows)]
    made: list[list[set[int]]] = []
    read = 0
    for step in steps:
        change = next(x for x in step["kv"] if x["lane"] == "target")
        for row in held:
            row.update(range(read, change["read"]))
        read = change["read"]
        for lost in (change.get("prompt", {}), change):
            for k, row in enumerate(held):
                row -= flat(lost.get("gone", []))
                row -= flat(lost.get("out", [[]] * rows)[k])
        made.append([set(row) for row in held])
    return made


@pytest.mark.parametrize(
    "policy",
    [
        ("h2o", {"heavy": 3, "recent": 4}),
        ("window", {"window": 6}),
        ("streaming_llm", {"sink_tokens": 2, "recent": 4}),
    ],
)
def test_evictions_on_the_wire_leave_what_the_engine_holds(policy: tuple[str, dict[str, int]]) -> None:
    made = Session(toys.target(), toys.method(policy=policy), toys.PROMPT, max_new_tokens=24)
    made.sink = Trace()
    held: list[list[set[int]]] = []
    for _ in made.stream():
        stores = made.target.cache.layers
        held.append(
            [
                set(head.tolist())
                for store in stores
                for head in store.positions()[0].expand(store.kv.shape[2], -1)
            ]
        )
    steps = [m for m in messages(made.sink) if m["kind"] == "step"]
    assert kept_by_replay(steps, len(held[0])) == held
    assert sum(x["evicted"] for step in steps for x in step["kv"]) > 10, "the test needs evictions"


def test_what_a_pass_has_read_goes_out_where_a_step_is_looked_at() -> None:
    method = toys.method(policy=("quest", {"token_budget": 48, "dense_layers": 1}))
    made = Session(toys.pair()[0], method, toys.prompts(1, 150, seed=5)[0], max_new_tokens=6)
    made.sink = Trace()
    for _ in made.stream():
        pass
    sent, chosen = build_wire(made.sink), [x for x in made.sink.steps if x.cache[0].read is not None]
    assert chosen and not all(x.cache[0].read.all() for x in chosen), (
        "the test needs entries that are not read"
    )
    for step in chosen:
        row, due = sent.step(step, whole=True)["kv"][0], step.cache[0].read
        bits = np.unpackbits(np.frombuffer(base64.b64decode(row["seen"]), np.uint8))[: due.size]
        assert row["read"] == due.shape[2] and (bits.reshape(due.shape) == due).all()
        brief = sent.step(step)
        assert "seen" not in brief["kv"][0] and brief["few"]


def test_evictions_in_large_numbers_wait_until_they_are_asked_for() -> None:
    step, gone = small(), np.random.default_rng(0).permutation(5000)[:3000].astype("<i4")
    step.cache = [CacheChange("target", 2, 3, 640, 960, 3000, gone)]
    sent, whole = wire(step).step(step)["kv"][0], wire(step).step(step, whole=True)["kv"][0]
    assert sent["lost"] and "gone" not in sent and len(encode(wire(step).step(step))) <= BUDGET
    assert "lost" not in whole and kept_by_replay([{"kv": [{**whole, "read": 5000}]}], 1)[0][0] == set(
        range(5000)
    ) - set(gone.tolist())
