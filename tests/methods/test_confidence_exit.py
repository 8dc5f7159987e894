"""Confidence exit: never leaving is plain decoding; a lower threshold never leaves later; no layer lacks an entry."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import toys
from torch.utils.flop_counter import FlopCounterMode

from decodescope.engine import MethodError
from decodescope.engine.core.component import build
from decodescope.engine.cost.cost import ops_of
from decodescope.engine.cost.operators import OperatorPrices
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.base import unit_rms_norm
from decodescope.engine.trace import check

DEEP = toys.model(toys.decoder(toys.toy_spec(n_layers=6, heads=("exits",)), 3, torch.float64))
EXITS = DEEP.decoder.heads["exits"]
KNOBS = {"softmax_max": {}, "softmax_diff": {}, "state": {}, "meta": {"heads": "exits"}}
CRITERIA = list(KNOBS)


def leaving(count: int = 30, **settings):
    return toys.decode(
        toys.method(adaptive_depth=("confidence_exit", {"min_layers": 1, **settings})),
        count=count,
        pair=(DEEP, DEEP),
    )


@pytest.mark.parametrize("criterion", CRITERIA)
def test_threshold_above_every_confidence_is_plain_decoding(criterion: str) -> None:
    session = leaving(criterion=criterion, threshold=1.01, **KNOBS[criterion])
    plain = toys.decode(count=30, pair=(DEEP, DEEP))
    assert session.end.tokens == plain.end.tokens
    assert all(
        torch.equal(a.kv[:, :, :, : a.n], b.kv[:, :, :, : b.n])
        for a, b in zip(session.target.cache.layers, plain.target.cache.layers, strict=True)
    )
    assert all(step.exits[0].depth == 6 and step.passes[0].attn is None for step in session.sink.steps)


@pytest.mark.parametrize("criterion", CRITERIA)
@torch.inference_mode()
def test_lower_threshold_never_leaves_later(criterion: str) -> None:
    """On a fixed text with exact keys and values."""
    lane = Lane("target", DEEP.decoder, build("policy", "keep_all"))
    lane.read(toys.PROMPT)
    seen = set()
    for token in range(13):
        depths = []
        for threshold in [x / 20 for x in range(21)]:
            knobs = {"criterion": criterion, "threshold": threshold, "min_layers": 1, **KNOBS[criterion]}
            rule = build("adaptive_depth", "confidence_exit", knobs)
            rule.attach_lane(lane)
            rule.begin(DEEP.spec)
            feed = Feed.causal_chain([token], len(lane.tokens))
            lane.forward(feed, skip=rule.plan(0, feed), depth=rule)
            lane.rollback()
            depths.append(rule.take_exit().depth)
        assert depths == sorted(depths)
        assert depths[0] == (2 if criterion == "state" else 1), (
            "state has nothing to compare at its first test"
        )
        seen |= set(depths)
    assert len(seen) > 3, "the test needs exits at several depths"


@pytest.mark.parametrize(
    "settings", [dict(threshold=0.3), dict(threshold=0.0, interval=2), dict(criterion="state", threshold=0.0)]
)
def test_layers_that_did_not_run_get_entries_and_the_trace_says_so(settings: dict) -> None:
    session = leaving(**settings)
    assert {store.n for store in session.target.cache.layers} == {len(session.tokens) - 1}
    left = 0
    for step in session.sink.steps:
        depth, one = step.exits[0].depth, step.passes[0]
        left += depth < 6
        assert (one.attn, one.ffn, one.propagated) == (
            (depth, depth, 6 - depth) if depth < 6 else (None, None, None)
        )
        tests = step.exits[0].tests
        assert all(c < bound for _, c, bound in tests[:-1]), "it goes on until a confidence reaches the bound"
        assert depth == 6 or (tests[-1][0] == depth and tests[-1][1] >= tests[-1][2])
    assert left > 5 and check(session.sink).ok


@torch.inference_mode()
def test_exit_is_a_truncated_model_with_the_same_head_and_propagated_entries() -> None:
    lane = Lane("target", DEEP.decoder, build("policy", "keep_all"))
    lane.read(toys.PROMPT)
    rule = build("adaptive_depth", "confidence_exit", {"threshold": 0.0, "min_layers": 3})
    rule.begin(DEEP.spec)
    feed = Feed.causal_chain([5], len(lane.tokens))
    logits = lane.forward(feed, skip=rule.plan(0, feed), depth=rule)
    short = toys.decoder(toys.toy_spec(n_layers=6), 3, torch.float64)
    short.layers, short.spec = short.layers[:3], toys.toy_spec(n_layers=3)
    assert torch.allclose(
        logits[0], short.forward(Feed.causal_chain([*toys.PROMPT, 5], 0), None)[0, -1:], atol=1e-10
    )
    assert {store.m for store in lane.cache.layers} == {1}


def test_threshold_relaxes_with_the_position() -> None:
    rule = build(
        "adaptive_depth", "confidence_exit", dict(threshold=0.8, threshold_decay=4.0, decay_horizon=100)
    )
    rule.begin(DEEP.spec)
    feed = Feed.causal_chain([5], 0)
    bounds = [(rule.plan(at, feed), rule.bound(2))[1] for at in (0, 10, 100, 10_000)]
    assert bounds[0] == 0.8 and bounds == sorted(bounds, reverse=True) and abs(bounds[-1] - 0.72) < 1e-9


def test_least_confident_row_decides_for_a_draft() -> None:
    parts = dict(
        adaptive_depth=("confidence_exit", {"threshold": 0.5, "min_layers": 1}),
        drafter=("prompt_lookup", {"ngram": 1}),
    )
    session = toys.decode(toys.method(**parts), count=30, pair=(DEEP, DEEP))
    assert check(session.sink).ok and not session.header.lossless


def test_layers_that_always_run_are_fewer_than_the_model_has() -> None:
    with pytest.raises(MethodError, match=r"confidence_exit.min_layers = 6: .* choose at most 5\."):
        leaving(count=1, min_layers=6)


def entering(lane: Lane, token: int) -> list[torch.Tensor]:
    """The states [1, 1, d] of `token` after the prompt that enter layers 0 to 5 and the last norm."""
    found = []
    for layer in range(7):
        found.append(
            lane.decoder.states_before(Feed.causal_chain([token], len(lane.tokens)), lane.cache, layer)
        )
        lane.rollback()
    return found


@torch.inference_mode()
def test_trained_exits_read_a_state_through_their_norm_and_map_in_tests_and_in_the_answer() -> None:
    lane = Lane("target", DEEP.decoder, build("policy", "keep_all"))
    lane.read(toys.PROMPT)
    left = set()
    for token in range(13):
        states = entering(lane, token)
        for criterion, threshold in (("softmax_max", 0.35), ("meta", 0.5)):
            knobs = dict(criterion=criterion, threshold=threshold, min_layers=1, heads="exits")
            rule = build("adaptive_depth", "confidence_exit", knobs)
            rule.attach_lane(lane)
            rule.begin(DEEP.spec)
            feed = Feed.causal_chain([token], len(lane.tokens))
            logits = lane.forward(feed, skip=rule.plan(0, feed), depth=rule)
            lane.rollback()
            took = rule.take_exit()
            for layer, score, _ in took.tests:
                y = unit_rms_norm(states[int(layer)], EXITS.norm[int(layer) - 1])
                read = lane.decoder.unembed(y + y @ EXITS.down[int(layer) - 1].T @ EXITS.up[int(layer) - 1].T)
                said = (unit_rms_norm(states[int(layer)]) * EXITS.sure[int(layer) - 1]).sum() + EXITS.bias[
                    int(layer) - 1
                ]
                due = said.sigmoid() if criterion == "meta" else read.softmax(-1).max()
                assert score == pytest.approx(float(due), abs=1e-6)
            if took.depth < 6:
                assert torch.allclose(logits, read, atol=1e-9)
                left.add((criterion, took.depth))
    assert len({depth for _, depth in left}) > 1 and len({criterion for criterion, _ in left}) == 2


def test_the_maps_of_trained_exits_are_priced_as_they_run() -> None:
    """Compared with torch's count of products: of the maps, and of the whole pass without softmax and pointwise operations."""
    rank = EXITS.shape["rank"]
    with FlopCounterMode(display=False) as counted:
        EXITS(torch.zeros(3, DEEP.spec.d_model, dtype=torch.float64), 2)
    price = OperatorPrices(DEEP.spec, 3, 1, 16, 16, 16, dequant=False)
    assert counted.get_total_flops() == sum(x.flops for x in price.exit_map(2, rank) if x.name != "exit_add")
    for criterion, threshold in (("softmax_max", 0.5), ("meta", 0.5), ("meta", 1.01)):
        session = leaving(criterion=criterion, threshold=threshold, heads="exits")
        assert check(session.sink).ok
        for step in session.sink.steps:
            one, left = step.passes[0], step.exits[0]
            maps = [op for op in ops_of(DEEP.spec, one) if op.name == "exit_down"]
            read = (
                [int(layer) for layer, *_ in left.tests]
                if criterion == "softmax_max"
                else [left.depth] * (left.depth < 6)
            )
            assert (one.rank, [op.layer for op in maps]) == (rank, read)
    assert all(x.rank is None for step in leaving().sink.steps for x in step.passes)


def test_an_oracle_leaves_at_the_first_layer_that_names_the_token_of_all_layers() -> None:
    session = leaving(criterion="oracle")
    plain = toys.decode(count=30, pair=(DEEP, DEEP))
    depths, lane = [], Lane("target", DEEP.decoder, build("policy", "keep_all"))
    for step in session.sink.steps:
        (left,), ahead = step.exits, step.passes[0]
        assert (ahead.phase, ahead.attn) == ("search", None), (
            "all layers ran for the oracle, and the trace says so"
        )
        assert [score for _, score, _ in left.tests] == [0.0] * (len(left.tests) - 1) + [
            float(left.depth < 6)
        ]
        assert left.whole == step.emitted, (
            "greedy text goes on with the token of all layers, read on the same entries"
        )
        depths.append(left.depth)
    assert len(set(depths)) > 2 and check(session.sink).ok
    step = next(x for x in session.sink.steps if x.exits[0].depth < 6 and len(x.exits[0].tests) > 1)
    left, passes = step.exits[0], step.passes
    for lie in ([(left.whole[0] + 1) % 13], [], [*left.whole, 1], None):
        step.exits = [replace(left, whole=lie)]
        wrong = any("full depth" in x for x in check(session.sink).problems)
        assert wrong == (lie is not None), "what nobody says cannot be wrong"
    step.exits, step.passes = [left], passes[1:]
    assert any("look ahead" in x for x in check(session.sink).problems)
    step.passes = passes
    with torch.inference_mode():  # the first step again, with each layer run by hand
        lane.read(toys.PROMPT[:-1])
        best = [
            int(lane.decoder.unembed(lane.decoder.apply_norm(x)).argmax())
            for x in entering(lane, toys.PROMPT[-1])
        ]
    assert depths[0] == next((i for i in range(1, 6) if best[i] == best[6]), 6)
    assert session.end.tokens[0] == plain.end.tokens[0]


def test_full_entries_leave_decisions_as_the_only_error_and_an_oracle_without_it_is_plain_decoding() -> None:
    plain = toys.decode(count=30, pair=(DEEP, DEEP))
    session = leaving(criterion="oracle", kv_source="full")
    assert session.end.tokens == plain.end.tokens
    assert min(step.exits[0].depth for step in session.sink.steps) < 6, "the test needs exits"
    lossy = leaving(threshold=0.3, kv_source="full")
    with torch.inference_mode():
        lane = Lane("target", DEEP.decoder, build("policy", "keep_all"))
        lane.read(lossy.tokens[:-1])
    for mine, fresh in zip(lossy.target.cache.layers, lane.cache.layers, strict=True):
        assert torch.allclose(mine.kv[:, :, :, : mine.n], fresh.kv[:, :, :, : fresh.n], atol=1e-9)
    assert any(step.exits[0].depth < 6 for step in lossy.sink.steps) and lossy.end.tokens != plain.end.tokens
    assert all(step.passes[0].attn is None for step in lossy.sink.steps) and check(lossy.sink).ok


def test_each_exit_may_have_a_threshold_of_its_own() -> None:
    never = leaving(thresholds="1.01,0.0")
    assert {step.exits[0].depth for step in never.sink.steps} == {2}
    assert [bound for *_, bound in never.sink.steps[0].exits[0].tests] == [1.01, 0.0]


def test_what_asks_for_more_than_there_is_is_refused() -> None:
    with pytest.raises(
        MethodError, match=r"criterion = meta asks trained exits: set heads = exits, or choose softmax_max\."
    ):
        leaving(count=1, criterion="meta")
    bare = toys.model(toys.decoder(toys.toy_spec(n_layers=6, heads=()), 3, torch.float64))
    with pytest.raises(
        MethodError,
        match=r"has no heads/exits: .* -m decodescope\.training\.exits .* or choose confidence_exit.heads = none\.",
    ):
        toys.decode(
            toys.method(adaptive_depth=("confidence_exit", {"heads": "exits"})), count=1, pair=(bare, bare)
        )
    drafting = toys.method(
        drafter=("early_exit", {"criterion": "confidence_exit criterion=oracle min_layers=1"})
    )
    with pytest.raises(MethodError, match=r"criterion = oracle reads all layers first"):
        toys.decode(drafting, count=1, pair=(DEEP, DEEP))
