"""Passes that run part of the model: work is charged where it runs, an answer is computed once, and tests are priced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import toys
from torch import Tensor

from decodescope.engine.core.component import build
from decodescope.engine.cost.cost import PassShape, exit_test, ops_of, pass_ops
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import ExecutedLayers, Skip
from decodescope.engine.trace import check
from decodescope.engine.trace.records.exits import Exit, check_exit
from decodescope.engine.trace.records.passes import Pass

DEEP = toys.model(toys.decoder(toys.toy_spec(n_layers=6), 3, torch.float64))


class Gate:
    """Reads before each layer, leaves before `at`, and skips the feed-forward blocks `closed` after layer 1."""

    whole = routes = False

    def __init__(self, at: int = 99, closed: tuple[int, ...] = (), gap: str = "propagate"):
        self.skipped_kv = gap
        self.at, self.closed, self.seen = at, closed, dict[int, tuple[Tensor, Tensor]]()

    def leave(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> bool:
        read()
        return layer == self.at

    def gate(self, layer: int, before: Tensor, after: Tensor) -> tuple[int, ...]:
        self.seen[layer] = before, after
        return self.closed if layer == 1 else ()


def opened() -> Lane:
    lane = Lane("target", DEEP.decoder, build("policy", "keep_all"))
    with torch.inference_mode():
        lane.read(toys.PROMPT)
    return lane


@torch.inference_mode()
def test_a_gate_leaves_out_blocks_further_up_as_a_plan_does_that_names_them_before() -> None:
    lane, feed, ran = opened(), Feed.causal_chain([5], len(toys.PROMPT)), ExecutedLayers()
    gate = Gate(closed=(3, 4))
    gated = lane.decoder.forward(feed, lane.cache, depth=gate, ran=ran)
    lane.rollback()
    planned = lane.decoder.forward(feed, lane.cache, skip=Skip(ffn=frozenset({3, 4})))
    assert torch.equal(gated, planned)
    assert (ran.attn, ran.ffn, ran.filled) == ([*range(6)], [0, 1, 2, 5], [])
    assert sorted(gate.seen) == ran.ffn and all(not torch.equal(*pair) for pair in gate.seen.values())


@torch.inference_mode()
def test_the_logits_of_an_exit_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lane, feed, calls = opened(), Feed.causal_chain([5], len(toys.PROMPT)), []
    plain = type(lane.decoder).unembed
    monkeypatch.setattr(
        type(lane.decoder), "unembed", lambda self, x: calls.append(x.shape) or plain(self, x)
    )
    lane.decoder.forward(feed, lane.cache, depth=Gate(at=3))
    assert len(calls) == 4, "in front of the layers 0 to 3, and the answer is the last of these"


@torch.inference_mode()
def test_a_pass_says_which_sub_layers_it_ran() -> None:
    lane, feed = opened(), Feed.causal_chain([5], len(toys.PROMPT))
    lane.take_passes()
    for skip in (None, Skip(ffn=frozenset({3})), Skip(frozenset({0, 5}), frozenset({4, 5})), Skip()):
        lane.forward(feed, skip=skip)
        lane.rollback()
    assert [(x.attn, x.ffn) for x in lane.take_passes()] == [
        (None, None),
        (None, [0, 1, 2, 4, 5]),
        ([1, 2, 3, 4], 4),
        (None, None),
    ]


def test_tests_are_priced_but_not_the_one_whose_logits_are_the_answer() -> None:
    spec, head = (
        DEEP.spec,
        Exit(4, "softmax_max", [[2, 0.1, 0.9], [3, 0.2, 0.9], [4, 0.95, 0.9]], asks="head"),
    )
    left = Pass("target", "verify", 2, 10, 1.0, attn=4, ffn=4, propagated=2)
    without = ops_of(spec, left)
    left.record_exit_tests(head)
    tests = ops_of(spec, left)[len(without) :]
    assert tests == [exit_test(spec, "head", layer=i, rows=2) for i in (2, 3)]
    stayed = Pass("target", "verify", 1, 10, 1.0)
    stayed.record_exit_tests(replace(head, depth=6, asks="cosine"))
    priced = ops_of(spec, stayed)
    assert [x.name for x in priced[len(pass_ops(spec, PassShape(1, 10))) :]] == ["exit_test"] * 3
    assert tests[0].flops > priced[-1].flops


def test_recorded_passes_of_an_exit_rule_name_their_tests_and_check_derives_the_exit() -> None:
    trace = toys.decode(
        toys.method(adaptive_depth=("confidence_exit", {"threshold": 0.3, "min_layers": 1})),
        pair=(DEEP, DEEP),
    ).sink
    for step in trace.steps:
        assert (
            step.passes[0].tests == [int(layer) for layer, *_ in step.exits[0].tests]
            and step.passes[0].asks == "head"
        )
    assert check(trace).ok and check(trace).counts["exits"] == len(trace.steps)
    trace.steps[3].exits[0].depth += 1
    assert any("by its tests it is" in problem for problem in check(trace).problems)


@pytest.mark.parametrize(
    ("left", "wrong"),
    [
        (
            Exit(6, "entropy", [[2, 0.5, 0.4], [3, 0.3, 0.4]], below=True, asks="head"),
            "6 layers ran, but by its tests it is 3",
        ),
        (Exit(3, "x", [[2, 0.5, 0.4], [3, 0.5, 0.4]], asks="head"), "by its tests it is 2"),
        (Exit(3, "x", [[3, 0.5, 0.6], [2, 0.5, 0.4]], asks="head"), "do not rise below 6"),
        (Exit(3, "x", [[3, 0.5]]), "not layer, score and bound"),
    ],
)
def test_a_wrong_exit_is_found(left: Exit, wrong: str) -> None:
    assert any(wrong in problem for problem in check_exit(left, 6))
    assert not list(check_exit(Exit(2, "hash"), 6)), "a rule that asks nothing leaves no test behind"
