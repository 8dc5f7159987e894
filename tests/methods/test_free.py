"""FREE: tokens that left at the one exit wait, continue together, and leave the states that the whole model leaves."""

from __future__ import annotations

import pytest
import torch
import toys
from leaving import DEEP

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.method import MethodError
from decodescope.engine.trace import check

FIRST, COUNT = 2, 40
POLICIES = [("keep_all", {}), ("h2o", dict(heavy=6, recent=6)), ("tova", dict(cache_size=12))]


def run(max_pending: int = 3, threshold: float = 0.05, **parts: object) -> toys.Session:
    settings = dict(min_layers=FIRST, threshold=threshold, max_pending=max_pending)
    return toys.decode(
        toys.method(adaptive_depth=("free", settings), **parts), pair=(DEEP, DEEP), count=COUNT
    )


def due(tokens: list[int], depth: int) -> int:
    """The likeliest token after `tokens` before layer `depth`, from a pass over the whole text."""
    x = DEEP.decoder.states_before(Feed.causal_chain(tokens, 0), None, depth)[0, -1]
    return int(DEEP.decoder.unembed(DEEP.decoder.apply_norm(x)).argmax())


@pytest.mark.parametrize("most", [1, 3, 64])
@torch.inference_mode()
def test_every_token_is_that_of_a_whole_pass_at_its_depth_and_the_end_flushes(most: int) -> None:
    session = run(most)
    text, waits, longest, depths, forced = list(toys.PROMPT), 0, 0, set(), 0
    for step in session.sink.steps:
        one = next(x for x in step.passes if x.phase == "verify")
        (left,) = step.exits
        assert step.emitted == [due(text, left.depth)], "what waited has made no difference"
        if left.depth == FIRST:
            waits += 1
        else:
            assert one.joined == ([[FIRST, waits]] if waits else None)
            forced += not left.tests
            assert bool(left.tests) == (waits < most), "a pass asks unless there is no room"
            waits = 0
        assert waits <= most
        longest, text = max(longest, waits), text + step.emitted
        depths.add(left.depth)
    assert depths == {FIRST, 6} and longest == most if most < 64 else longest > 3, (
        "the test needs tokens that wait"
    )
    assert not most < 64 or forced
    assert (
        not session.target.deferred_tokens
        and toys.matches_fresh_reading(session.target, 1e-12)
        and check(session.sink).ok
    )
    flushes = [x for step in session.sink.steps for x in step.passes if x.phase == "flush"]
    assert [x.tokens for x in flushes] == ([waits] if waits else [])


@pytest.mark.parametrize("policy", POLICIES, ids=lambda x: x[0])
@pytest.mark.parametrize("drafter", ["none", "prompt_lookup"])
def test_what_waits_goes_on_before_entries_are_moved(policy: tuple, drafter: str) -> None:
    session = run(5, policy=policy, drafter=drafter)
    assert check(session.sink).ok and not session.target.deferred_tokens
    phases = [x.phase for step in session.sink.steps for x in step.passes]
    assert any(x.depth == FIRST for step in session.sink.steps for x in step.exits) and "flush" in phases
    if policy[0] != "keep_all":
        assert all(x.joined is None for step in session.sink.steps for x in step.passes), (
            "nobody waits beyond a commit"
        )


@pytest.mark.parametrize("threshold", [0.0, 0.05])
def test_checked_it_is_plain_decoding(threshold: float) -> None:
    plain = toys.decode(toys.method(), pair=(DEEP, DEEP), count=COUNT)
    drafter = (
        "early_exit",
        dict(max_draft_tokens=4, criterion=f"free min_layers=2 threshold={threshold} max_pending=2"),
    )
    session = toys.decode(toys.method(drafter=drafter), pair=(DEEP, DEEP), count=COUNT)
    assert session.tokens == plain.tokens and check(session.sink).ok and not session.target.deferred_tokens


SELECTS = {
    "quest": ("quest", dict(token_budget=48, dense_layers=1)),
    "tidal_decode": ("tidal_decode", dict(top_k=20, selection_layer=2, reselection_layer=4)),
}


@pytest.mark.parametrize("policy", SELECTS)
@torch.inference_mode()
def test_what_waited_reads_what_it_would_have_read_at_once(policy: str) -> None:
    """Compared with a lane with the same policy that runs all layers for one token after the other."""
    name, knobs = SELECTS[policy]
    method = toys.method(
        adaptive_depth=("free", dict(min_layers=FIRST, threshold=0.05, max_pending=3)), policy=(name, knobs)
    )
    session = toys.decode(method, toys.PROMPT * 6, pair=(DEEP, DEEP), count=COUNT, level="full")
    assert check(session.sink).ok and not session.target.deferred_tokens
    passes = [x for step in session.sink.steps for x in step.passes]
    assert any(x.joined and x.read and sum(map(sum, x.read)) < sum(x.held) * 2 for x in passes), (
        "the test needs a choice"
    )
    chosen = build("policy", name, knobs)
    asked, text = len(toys.PROMPT) * 6, session.tokens[:-1]
    chosen.begin(DEEP.spec, asked)
    lane = Lane("target", DEEP.decoder, chosen)
    lane.read(text[:asked])  # its last token, too, sees all entries
    assert session.sink.steps[0].exits[0].depth == FIRST, "the test needs a last token that goes on later"
    for at in range(asked, len(text)):
        lane.forward(Feed.causal_chain([text[at]], at))
        lane.commit([0])
    for mine, fresh in zip(session.target.cache.layers, lane.cache.layers, strict=True):
        assert mine.n == fresh.n and torch.allclose(
            mine.kv[:, :, :, : mine.n], fresh.kv[:, :, :, : fresh.n], atol=1e-12
        )
    whole = toys.decode(toys.method(), text, pair=(DEEP, DEEP), count=1).target.cache.layers
    deep = [
        torch.equal(a.kv[:, :, :, : a.n], b.kv[:, :, :, : a.n])
        for a, b in zip(lane.cache.layers, whole, strict=True)
    ]
    assert not all(deep), "reading less makes a difference"


def test_a_policy_that_chooses_below_the_exit_for_all_layers_is_refused() -> None:
    method = toys.method(
        adaptive_depth=("free", dict(min_layers=3)), policy=("tidal_decode", dict(selection_layer=2))
    )
    with pytest.raises(
        MethodError, match=r"^under free tokens go on from layer 3, and tidal_decode chooses in layer 2 "
    ):
        toys.decode(method, pair=(DEEP, DEEP), count=1)
