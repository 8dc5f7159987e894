"""What a cache reports is what it holds: every tensor that it can reach is counted once, under every policy and compression."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
import toys
from acting import PARTS, Part, method_with
from sizes import by_turns, first_settings

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.model.stores.shared_prefix import share_prefix
from decodescope.engine.model.stores.uneven import continue_prefix
from decodescope.testing.contracts import memory


@pytest.mark.parametrize(("name", "settings"), by_turns(2, first_settings(toys.variants("policy"))))
def test_under_every_policy(name: str, settings: dict) -> None:
    memory.cache_reports_what_it_holds("policy", name, settings)


@pytest.mark.parametrize(("name", "settings"), by_turns(2, toys.variants("kv_compression")))
def test_under_every_kv_compression(name: str, settings: dict) -> None:
    memory.cache_reports_what_it_holds("kv_compression", name, settings)


def every_lane_reports_what_it_holds(part: Part) -> None:
    session = toys.open_session(method_with(part, warm=False), count=30)
    session.start()
    while not session.is_done:
        session.step()
        for lane in (session.target, *session.lanes.values()):
            memory.check_reported_bytes(lane.cache, lane.decoder, when=lane.name)
            assert lane.cache.memory.held == lane.cache.nbytes <= lane.cache.memory.peak


# trees, prefixes, batches, waiting tokens, and what rows attend to that is no entry
SPECIAL: list[Part] = [
    ("strategy", "beam", dict(width=3, attention_plan="flatten", block=16)),
    ("strategy", "samples", dict(samples=3)),
    ("adaptive_depth", "free", dict(threshold=0.05, min_layers=1, max_pending=2)),
    ("prompt_compression", "compress_then_prompt", {}),
    ("prompt_compression", "ntk_attention", {}),
    ("prompt_compression", "ntk_attention", dict(strength=0.5)),
]


@pytest.mark.parametrize("part", SPECIAL)
def test_with_stores_and_entries_of_other_kinds(part: Part) -> None:
    every_lane_reports_what_it_holds(part)


@pytest.mark.nightly
@pytest.mark.parametrize("part", [x for x in PARTS if x[0] not in ("policy", "kv_compression", "sampler")])
def test_in_every_lane_of_every_part(part: Part) -> None:
    every_lane_reports_what_it_holds(part)


def read_lane(kind: str, name: str, settings: dict) -> Lane:
    """A lane that has read a prompt, after which its policy and its KV compression have acted."""
    parts: dict[str, Any] = {"policy": build("policy", "keep_all"), kind: build(kind, name, settings)}
    lane = Lane("target", toys.pair()[0].decoder, parts["policy"], kv_compression=parts.get("kv_compression"))
    lane.policy.attach_heads(lane.decoder.heads)
    lane.policy.begin(lane.decoder.spec, len(toys.PROMPT) * 2)
    # the lane's own decoder as its draft model
    lane.open = lambda role, needs: Lane(role, lane.decoder, build("policy", "keep_all"), needs=needs)
    lane.read(toys.PROMPT * 2)
    return lane


def widen(lane: Lane) -> None:
    lane.cache.reorder(torch.tensor([0, 0, 0]))


def narrow(lane: Lane) -> None:
    lane.cache.reorder(torch.tensor([1]))


def read_on(lane: Lane) -> None:
    batch = lane.cache.layers[0].batch
    at = torch.full((batch, 1), len(lane.tokens))
    lane.forward(Feed(torch.full((batch, 1), 5), at))
    lane.commit([0])


def guess(lane: Lane) -> None:
    lane.forward(Feed.causal_chain([1, 2, 3], len(lane.tokens)))


CHANGES: list[Callable[[Lane], None]] = [
    guess,
    Lane.rollback,
    read_on,
    widen,
    read_on,
    narrow,
    read_on,
    lambda lane: lane.truncate(21),
    lambda lane: lane.cache.shrink(),
    read_on,
    lambda lane: lane.truncate(3),
    read_on,
    lambda lane: lane.cache.shrink(),
]


@pytest.mark.parametrize(
    ("kind", "name", "settings"),
    by_turns(
        2,
        [
            *(("policy", *x) for x in toys.representatives("policy")),
            *(("kv_compression", *x) for x in toys.representatives("kv_compression")),
        ],
    ),
)
@torch.inference_mode()
def test_behind_every_change_of_a_cache(kind: str, name: str, settings: dict) -> None:
    """Drafts, batches, texts that are cut back, and copies."""
    lane = read_lane(kind, name, settings)
    for i, change in enumerate(CHANGES):
        change(lane)
        memory.check_reported_bytes(lane.cache, lane.decoder, when=f"after change {i}")
        twin = lane.cache.copy()
        memory.check_reported_bytes(twin, lane.decoder, lane.cache, when=f"the copy after change {i}")
        assert twin.nbytes == lane.cache.nbytes == lane.cache.memory.held


def read_plainly(tokens: list[int]) -> KVCache:
    decoder = toys.pair()[0].decoder
    cache = KVCache(decoder.spec, dtype=decoder.dtype)
    decoder.forward(Feed.causal_chain(tokens, 0), cache)
    cache.commit(range(len(tokens)))
    return cache


@torch.inference_mode()
def test_a_prefix_counts_once_however_many_texts_read_it() -> None:
    decoder, prefix = toys.pair()[0].decoder, read_plainly(toys.PROMPT)
    shared = deepcopy(prefix)
    share_prefix(shared, 3)
    tails = [[x.kv[:, :, :, :t].clone() for x in prefix.layers] for t in (2, 5, 0)]
    uneven = continue_prefix(prefix, tails)
    for cache in (shared, uneven):
        before = cache.nbytes
        for at in range(20):
            decoder.forward(Feed(torch.full((3, 1), 5), torch.full((3, 1), 20 + at)), cache)
            cache.commit([0])
            memory.check_reported_bytes(cache, decoder, when=f"after {at} tokens")
        cache.reorder(torch.tensor([2, 2, 0, 1]))
        memory.check_reported_bytes(cache, decoder, when="after reordering")
        assert cache.nbytes > before


def test_what_is_not_reported_is_seen() -> None:
    """The walk finds tensors in attributes, items, partial calls, methods and closures, and counts a storage once."""
    cache, hidden = read_plainly(toys.PROMPT), torch.zeros(8)
    memory.check_reported_bytes(cache)
    ways = [
        hidden,
        {"a": [hidden[2:]]},
        (hidden.view(2, 4),),
        lambda: hidden,
        hidden.__class__.add.__get__(hidden),
        memory.functools.partial(print, hidden),
    ]
    for way in ways:
        cache.layers[0].ranked = way  # type: ignore[assignment] # anything that may hide there
        with pytest.raises(AssertionError, match="are alive; 0 of them need no report"):
            memory.check_reported_bytes(cache)
    cache.layers[0].ranked = ways  # type: ignore[assignment] # as above
    assert memory.alive_bytes(cache) == cache.nbytes + 32
    memory.check_reported_bytes(cache, hidden)
