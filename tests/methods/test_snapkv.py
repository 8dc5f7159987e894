"""SnapKV: the kept set matches the prompt's full attention, the prompt's logits stay, and decoding costs what plain does."""

from __future__ import annotations

from itertools import product

import pytest
import torch
import toys
from sizes import sizes
from voted import best, held, maps, sharp, votes

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.replay.fork import Fork
from decodescope.engine.trace import Trace, check

KNOBS = dict(prompt_budget=6, window=5)


def snapkv(decoder: Decoder, **knobs) -> Lane:
    return Lane("target", decoder, build("policy", "snapkv", {**KNOBS, **knobs}))


def end(n: int) -> list[int]:
    """The window of a prompt of n tokens."""
    return list(range(n - 5, n))


@pytest.mark.parametrize("layout", [4, 2, 1])
@sizes("seeds, lengths", usual=(1, (40,)), full=(4, (12, 25, 40, 90)))
@torch.inference_mode()
def test_kept_set_is_that_of_the_full_maps(
    layout: int, seeds: int, lengths: tuple[int, ...], monkeypatch
) -> None:
    """For any chunking of the prompt, and with its last token in a separate pass."""
    spread = set()
    for seed, length, chunk, pool in product(range(seeds), lengths, (512, 3), ("mean", "max")):
        monkeypatch.setattr("decodescope.engine.decoding.bases.lane.CHUNK", chunk)
        decoder = sharp(seed, n_kv_heads=layout)
        text = toys.prompts(1, length, seed)[0]
        lane = snapkv(decoder, pool=pool, pool_radius=seed % 3 + 1)
        lane.read(text[:-1], compress=False)
        assert lane.cache.fullest_length == length - 1, "the prompt has not ended"
        lane.forward(Feed.causal_chain(text[-1:], length - 1))
        lane.commit([0])
        kept = [
            [best(x, 6) + end(length) for x in votes(full, 5, seed % 3 + 1, pool)]
            for full in maps(decoder, text)
        ]
        assert held(lane) == kept
        spread |= {tuple(row) for heads in kept for row in heads}
    assert len(spread) > 2, "the test needs heads that differ"


@torch.inference_mode()
def test_a_layer_with_a_window_votes_inside_it() -> None:
    decoder = sharp(1, windows=(None, 8))
    text = toys.prompts(1, 30, 1)[0]
    lane = snapkv(decoder)
    lane.read(text)
    assert held(lane) == [
        [best(x, 6) + end(30) for x in votes(full, 5, 2, "mean")] for full in maps(decoder, text)
    ]


def test_prompt_logits_are_those_of_the_full_cache_and_passes_are_fused_behind_it() -> None:
    """Bit for bit; the first written token has read everything, and later passes record nothing."""
    plain = toys.decode(prompt=toys.PROMPT * 3, count=8)
    session = toys.decode(toys.method(policy=("snapkv", KNOBS)), toys.PROMPT * 3, count=8)
    steps, others = session.sink.steps, plain.sink.steps
    assert (steps[0].tops.p == others[0].tops.p).all() and (steps[1].tops.p != others[1].tops.p).any()
    assert [x.passes[0].instrumented for x in steps] == [True, *[None] * 7]
    assert not session.target.needs and session.target.prompt is None
    assert [x.cache[0].held for x in steps] == [11 + i for i in range(8)], "what is written stays"
    assert steps[0].cache[0].evicted_count == 45 - 11


def test_a_short_prompt_is_kept_whole() -> None:
    for length in (1, 3, 11, 12):
        prompt = toys.prompts(1, length, 2)[0]
        session = toys.decode(toys.method(policy=("snapkv", KNOBS)), prompt, count=20)
        assert session.target.cache.fullest_length == min(length, 11) + 19
        assert length > 11 or session.tokens == toys.decode(prompt=prompt, count=20).tokens


def test_a_share_is_divided_and_the_window_takes_half_at_most() -> None:
    for window, due in [(16, (34, 16)), (40, (25, 25)), (1, (49, 1))]:
        policy = build("policy", "snapkv", dict(window=window, budget_share=0.25))
        policy.begin(toys.SPEC, 200)
        assert (
            (policy.prompt_budget, policy.window) == due
            and policy.max_entries(200, 30) == 200
            and policy.max_entries(200, 300) == 350
        )


def test_a_fork_cuts_where_the_prompt_ended() -> None:
    """For any first commit of the run: the entries are those of a run under the policy from its first step on."""
    draft = dict(drafter=("draft_model", dict(max_draft_tokens=4)))
    run = toys.decode(toys.method(**draft), toys.PROMPT * 3, count=30)
    assert len(run.sink.steps[0].emitted) > 1, "the test needs a first commit of several"
    big, small = toys.pair()
    method = toys.method(policy=("snapkv", KNOBS), **draft)
    fork = Fork(
        big,
        run.header,
        list(run.sink.steps),
        4,
        models={**toys.helper_models(), "draft": small},
        method=method,
    )
    fork.sink = Trace()
    while fork.steps < 6:
        fork.step()
    lane = snapkv(big.decoder)
    with torch.inference_mode():
        lane.read(toys.PROMPT * 3)
    for i, (heads, prompt) in enumerate(zip(held(fork.target), held(lane), strict=True)):
        assert [[p for p in row if p < 45] for row in heads] == prompt, i
        assert all(row[-1] == len(fork.target.tokens) - 1 and len(row) == 11 + row[-1] - 44 for row in heads)
    assert not fork.target.needs and check(fork.sink).ok
