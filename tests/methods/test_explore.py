"""Explore, then exploit: canvases tried side by side, the winner, and the cases in which it is the threshold rule."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
import toys
from filling import filled, fills

from decodescope.engine import Method, Session
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check
from decodescope.engine.trace.details.exploration import settled_bits

COUNT = 22
KNOBS = {"tau": 0.9, "later_block_margin": 0.05, "min_sure_places": 6}
START = len(toys.PROMPT)


def masked(selector: str, knobs: dict[str, Any], sampler: Any = "greedy", **strategy: Any) -> Method:
    return toys.method(strategy=("masked", strategy), unmasking=(selector, knobs), sampler=sampler)


def decoded(method: Method, prompt: list[int] | None = None, **more: Any) -> Session:
    return filled(
        Session(toys.bidirectional_target(), method, prompt or toys.PROMPT, max_new_tokens=COUNT, **more)
    )


@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
@pytest.mark.parametrize("sampler", ["greedy", ("temperature", {"temperature": 0.9})])
def test_one_try_one_block_and_no_exploring_are_the_threshold(cache: str, sampler: Any) -> None:
    for tau in (0.4, 0.8):
        knobs = {"tau": tau, "candidates": 1, "parallel_blocks": 1, "min_sure_places": 0}
        both = ("explore", knobs), ("threshold", {"tau": tau})
        one, other = (decoded(masked(*x, sampler, block=8, cache=cache), seed=3) for x in both)
        assert one.end.tokens == other.end.tokens
        assert [(f.places, f.rules, f.count, f.columns["bars"].tolist()) for f in fills(one)] == [
            (f.places, f.rules, f.count, f.columns["bars"].tolist()) for f in fills(other)
        ]
        assert [x.tokens for s in one.sink.steps for x in s.passes] == [
            x.tokens for s in other.sink.steps for x in s.passes
        ]


@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
@torch.inference_mode()
def test_canvases_side_by_side_are_read_as_each_alone(cache: str) -> None:
    """Each try is read again by a separate pass over the same entries, and gives the same logits."""
    method = masked("explore", {**KNOBS, "candidates": 3}, block=7, cache=cache)
    session = Session(toys.bidirectional_target(), method, toys.PROMPT, max_new_tokens=COUNT)
    forward, compared = session.target.forward, 0

    def watched(feed: Feed, *rest: Any) -> torch.Tensor:
        nonlocal compared
        logits = forward(feed, *rest)
        if feed.visible is not None:
            canvases = feed.tokens.view(3, -1)
            assert int((canvases != canvases[0]).any(0).sum()) == 1, "they differ in one place"
            for k, rows in enumerate(canvases):
                session.target.rollback()
                alone = forward(Feed(rows[None], feed.positions[:, : len(rows)], highest=feed.highest), *rest)
                asked = torch.tensor(feed.rows).view(3, -1)
                torch.testing.assert_close(
                    logits[0].view(*asked.shape, -1)[k], alone[0, asked[0]], atol=1e-9, rtol=0
                )
                assert (asked[k] == asked[0] + k * len(rows)).all()
            session.target.rollback()
            logits = forward(feed, *rest)
            compared += 1
        return logits

    session.target.forward = watched  # type: ignore[method-assign]
    for _ in session.stream():
        pass
    assert compared > 3, "the test needs passes over several canvases"


def test_rows_are_those_of_all_canvases_and_exploring_takes_no_pass_of_its_own() -> None:
    session = decoded(masked("explore", {**KNOBS, "candidates": 3}, block=8))
    explored = [step for step in session.sink.steps if step.detail_of("canvas").explored]
    assert len(explored) > 3 and len(explored) < len(session.sink.steps)
    for step in session.sink.steps:
        tried = step.detail_of("canvas").explored
        assert [x.tokens for x in step.passes] == [(START + COUNT) * (3 if tried else 1)]


def test_the_most_uncertain_place_is_explored_and_the_best_canvas_stands() -> None:
    session = decoded(masked("explore", {**KNOBS, "candidates": 4, "gain": 2.0}, block=11))
    others = 0
    for before, fill in zip(fills(session), fills(session)[1:], strict=False):
        tried = fill.explored
        if tried is None:
            continue
        left = {
            p: e
            for p, e in zip(before.open, before.columns["entropy"], strict=True)
            if p not in before.places
        }
        edge = before.edge or before.block[1]
        assert left[tried.place] == max(e for p, e in left.items() if p < edge)
        assert (
            tried.place in fill.places
            and fill.rules[fill.places.index(tried.place)] == "explored"
            and fill.count == 0
        )
        sure = (tried.confidence[tried.won] >= fill.columns["bars"][fill.open != tried.place]).sum()
        assert sure == tried.sure[tried.won] == len(fill.places) - 1, "the canvas that won decides"
        scores = [np.log(c) + 2.0 * n for c, n in zip(tried.chance.astype(float), tried.sure, strict=True)]
        assert tried.won == int(np.argmax(scores))
        others += tried.won > 0
    assert others > 0, "the test needs a canvas that won with another token than the likeliest"


def test_a_place_that_would_end_the_text_is_no_gain() -> None:
    session = decoded(masked("explore", {**KNOBS, "candidates": 2}, block=22), stop_tokens=[])
    ends = sorted({int(x) for f in fills(session) if f.explored for x in f.explored.candidate.ravel()})
    counted = 0
    for fill in fills(
        decoded(masked("explore", {**KNOBS, "candidates": 2}, block=22), stop_tokens=ends[: len(ends) // 2])
    ):
        if fill.explored is not None:
            bars = fill.columns["bars"][fill.open != fill.explored.place]
            reach = (fill.explored.confidence >= bars).sum(1)
            counted += int((reach > np.array(fill.explored.sure)).sum())
    assert counted > 0, "the test needs a token that ends the text and is sure"


def test_places_behind_the_block_are_filled_beside_it_by_a_higher_bar() -> None:
    session = decoded(
        masked(
            "explore",
            {"tau": 0.5, "later_block_margin": 0.2, "parallel_blocks": 2, "min_sure_places": 0},
            block=5,
        )
    )
    beyond = 0
    for fill in fills(session):
        edge = fill.edge or fill.block[1]
        assert fill.block[1] - fill.block[0] <= 10 and all(p >= edge for p in fill.places if p >= edge)
        for place, rule in zip(fill.places, fill.rules, strict=True):
            c = fill.confidence[fill.open.tolist().index(place)]
            assert rule == "best" or c >= np.float32(0.5 if place < edge else 0.7)
            beyond += place >= edge and rule == "sure"
    assert beyond > 0, "the test needs a commit behind the block"
    wide = decoded(
        masked(
            "explore",
            {"tau": 0.5, "later_block_margin": 0.0, "parallel_blocks": 9, "min_sure_places": 0},
            block=5,
        )
    )
    whole = decoded(masked("threshold", {"tau": 0.5}, block=22))
    assert wide.end.tokens == whole.end.tokens, "all blocks at once under one bar are one block"


def test_a_pass_without_exploring_settles_no_more_bits_than_its_bar_leaves() -> None:
    """Places that reach tau settle at most log2(1 / tau) bits; the place that is always committed may exceed the bound."""
    more = 0
    for fill in fills(decoded(masked("explore", KNOBS, block=11))):
        column = dict(zip(fill.open.tolist(), fill.confidence.tolist(), strict=True))
        sure = [column[p] for p, rule in zip(fill.places, fill.rules, strict=True) if rule == "sure"]
        bound = len(sure) * np.log2(1 / np.float32(KNOBS["tau"]))
        assert settled_bits(np.array(sure, np.float32)) <= bound + 1e-6
        more += settled_bits(np.array([column[p] for p in fill.places], np.float32)) > bound
    assert more > 3


CHANGES = [
    ("won", lambda x: 1 - x, "and the scores are|not the one that won"),
    ("sure", lambda x: [n + 1 for n in x], "and bars and confidences give"),
    ("scores", lambda x: x[::-1].copy() + 3, "and the scores are"),
    ("chance", lambda x: x[::-1].copy(), "the likeliest first|not the one that won"),
    ("tokens", lambda x: [x[0], x[0]], "does not name different tokens"),
    ("place", lambda x: x + 100, "records other open places"),
]


@pytest.mark.parametrize(("name", "change", "said"), CHANGES)
def test_an_exploration_that_does_not_follow_is_told(name: str, change: Any, said: str) -> None:
    session = decoded(masked("explore", {**KNOBS, "candidates": 2}, block=22))
    tried = next(fill.explored for fill in fills(session) if fill.explored and len(fill.open) > 4)
    setattr(tried, name, change(getattr(tried, name)))
    problems = check(session.sink).problems
    assert any(re.search(said, x) for x in problems), problems


def test_exploring_elsewhere_or_not_at_all_is_told() -> None:
    session = decoded(masked("explore", {**KNOBS, "candidates": 2}, block=22))
    fill = next(fill for fill in fills(session) if fill.explored)
    fill.explored = None
    assert any(
        "it explores the place None, and by the pass before" in x for x in check(session.sink).problems
    )


def test_a_branch_in_the_midst_of_exploring_has_the_same_future() -> None:
    method = masked(
        "explore", {**KNOBS, "candidates": 2}, ("temperature", {"temperature": 0.9}), block=11, cache="dual"
    )
    session = Session(toys.bidirectional_target(), method, toys.PROMPT, max_new_tokens=COUNT)
    while session.step().detail_of("canvas").explored is None:
        pass
    twin = session.branch()
    for one in (session, twin):
        for _ in one.stream():
            pass
    assert twin.tokens == session.tokens
