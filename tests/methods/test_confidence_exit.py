"""Confidence exit: never leaving is plain decoding; a lower threshold never leaves later; no layer misses an entry."""

from __future__ import annotations

import pytest
import torch
import toys

from decodescope.engine import MethodError
from decodescope.engine.core.component import build
from decodescope.engine.decoding.lane import Lane
from decodescope.engine.model.feed import Feed
from decodescope.engine.trace import check

DEEP = toys.model(toys.decoder(toys.shaped(n_layers=6), 3, torch.float64))
CRITERIA = ["softmax_max", "softmax_diff", "state"]


def leaving(count: int = 30, **settings):
    return toys.decode(toys.method(depth=("confidence_exit", {"first": 1, **settings})), count=count, pair=(DEEP, DEEP))


@pytest.mark.parametrize("criterion", CRITERIA)
def test_threshold_above_every_confidence_is_plain_decoding(criterion: str) -> None:
    session = leaving(criterion=criterion, threshold=1.01)
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
            rule = build("depth", "confidence_exit", {"criterion": criterion, "threshold": threshold, "first": 1})
            rule.begin(DEEP.spec)
            feed = Feed.causal([token], len(lane.tokens))
            lane.forward(feed, skip=rule.plan(0, feed), depth=rule)
            lane.rollback()
            depths.append(rule.took().depth)
        assert depths == sorted(depths)
        assert depths[0] == (2 if criterion == "state" else 1), "state has nothing to compare at its first test"
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
        assert (one.attn, one.ffn, one.propagated) == ((depth, depth, 6 - depth) if depth < 6 else (None, None, None))
        tests = step.exits[0].tests
        assert all(c < bound for _, c, bound in tests[:-1]), "it goes on until a confidence reaches the bound"
        assert depth == 6 or (tests[-1][0] == depth and tests[-1][1] >= tests[-1][2])
    assert left > 5 and check(session.sink).ok


@torch.inference_mode()
def test_exit_is_a_truncated_model_with_the_same_head_and_propagated_entries() -> None:
    lane = Lane("target", DEEP.decoder, build("policy", "keep_all"))
    lane.read(toys.PROMPT)
    rule = build("depth", "confidence_exit", {"threshold": 0.0, "first": 3})
    rule.begin(DEEP.spec)
    feed = Feed.causal([5], len(lane.tokens))
    logits = lane.forward(feed, skip=rule.plan(0, feed), depth=rule)
    short = toys.decoder(toys.shaped(n_layers=6), 3, torch.float64)
    short.layers, short.spec = short.layers[:3], toys.shaped(n_layers=3)
    assert torch.allclose(logits[0], short.forward(Feed.causal([*toys.PROMPT, 5], 0), None)[0, -1:], atol=1e-10)
    assert {store.m for store in lane.cache.layers} == {1}


def test_threshold_relaxes_with_the_position() -> None:
    rule = build("depth", "confidence_exit", dict(threshold=0.8, decay=4.0, horizon=100))
    rule.begin(DEEP.spec)
    feed = Feed.causal([5], 0)
    bounds = [(rule.plan(at, feed), rule.bound(2))[1] for at in (0, 10, 100, 10_000)]
    assert bounds[0] == 0.8 and bounds == sorted(bounds, reverse=True) and abs(bounds[-1] - 0.72) < 1e-9


def test_least_confident_row_decides_for_a_draft() -> None:
    parts = dict(depth=("confidence_exit", {"threshold": 0.5, "first": 1}), drafter=("prompt_lookup", {"ngram": 1}))
    session = toys.decode(toys.method(**parts), count=30, pair=(DEEP, DEEP))
    assert check(session.sink).ok and not session.header.lossless


def test_layers_that_always_run_are_fewer_than_the_model_has() -> None:
    with pytest.raises(MethodError, match=r"confidence_exit.first = 6: .* choose at most 5\."):
        leaving(count=1, first=6)
