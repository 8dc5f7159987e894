"""Samples: each is the text of a separate run, and their prompt is held and read once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import toys
from followed import followed

from decodescope.engine import Session
from decodescope.engine.cost.cost import ops_of
from decodescope.engine.cost.operators import Cost
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.model.stores.shared_prefix import share_prefix
from decodescope.engine.trace import check

HOT = {"sampler": ("temperature", {"temperature": 0.9})}
LONG = toys.prompts(1, length=300, seed=7)[0]


def texts(session: Any) -> list[list[int]]:
    """The samples' texts, reassembled from the trace alone."""
    alive: list[list[int]] = []
    ended: list[tuple[int, list[int]]] = []
    names: list[int] = []
    for step in session.sink.steps:
        b = followed(step)
        before, alive = alive or [[] for _ in range(len(b.tokens) + len(b.ended))], []
        was = names or list(range(len(before)))
        gone = sorted(set(range(len(before))) - set(b.parents))
        assert gone == [parent for parent, *_ in b.ended]
        ended += [(was[parent], [*before[parent], token]) for parent, token, *_ in b.ended]
        alive = [[*before[p], x] for p, x in zip(b.parents, b.tokens, strict=True)]
        names = [was[p] for p in b.parents]
    return [text for _, text in sorted([*ended, *zip(names, alive, strict=True)])]


@pytest.mark.parametrize(
    "sampler", [HOT, {"sampler": "mirostat"}, {}], ids=["drawn", "with a state", "greedy"]
)
def test_each_sample_is_the_text_of_a_run_with_its_own_seed(sampler: dict[str, Any]) -> None:
    made = toys.decode(toys.method(strategy=("samples", {"samples": 4}), **sampler), count=24, seed=5)
    alone = [toys.decode(toys.method(**sampler), count=24, seed=5 + i).end.tokens for i in range(4)]
    assert texts(made) == alone and made.end.tokens == alone[0]
    assert len({*map(tuple, alone)}) == (4 if sampler else 1), "the test needs texts that differ"
    assert check(made.sink).ok, str(check(made.sink))


def test_a_sample_that_ends_leaves_the_batch_and_its_entries_go() -> None:
    alone = [toys.decode(toys.method(**HOT), count=40, seed=i, stop_tokens=[7, 2]).end for i in range(5)]
    made = toys.decode(
        toys.method(strategy=("samples", {"samples": 5}), **HOT), count=40, seed=0, stop_tokens=[7, 2]
    )
    assert texts(made) == [x.tokens for x in alone]
    assert made.end.reason == alone[0].reason and made.end.tokens == alone[0].tokens
    batches = [p.batch for step in made.sink.steps for p in step.passes]
    assert batches[0] == 5 and batches == sorted(batches, reverse=True) and len(set(batches)) > 2, (
        "the test needs ends apart"
    )


@torch.inference_mode()
def test_attention_over_a_shared_prefix_is_that_over_copies_of_it() -> None:
    decoder, spec = toys.decoder(), toys.toy_spec()
    prompt, tails = LONG[:90], torch.tensor(toys.prompts(3, length=4, seed=2))
    caches = [KVCache(spec) for _ in range(2)]
    for cache in caches:
        decoder.forward(Feed.causal_chain(prompt, 0), cache)
        cache.commit(range(len(prompt)))
    caches[0].reorder(torch.zeros(3, dtype=torch.long))
    share_prefix(caches[1], 3)
    for at in range(4):
        places = torch.full((3, 1), len(prompt) + at)
        apart, together = (decoder.forward(Feed(tails[:, at : at + 1], places), cache) for cache in caches)
        assert torch.allclose(apart, together, atol=1e-5, rtol=1e-5)
        for cache in caches:
            cache.commit([0])
    # several rows of each sequence, with a mask
    block = Feed(tails, len(prompt) + 4 + torch.arange(4).expand(3, -1))
    apart, together = (decoder.forward(block, cache) for cache in caches)
    assert torch.allclose(apart, together, atol=1e-5, rtol=1e-5)
    for a, b in zip(caches[0].layers, caches[1].layers, strict=True):
        assert torch.allclose(a.k, b.k, atol=1e-5) and torch.equal(a.positions(), b.positions())


def test_bytes_are_the_prefix_once_and_the_sum_of_the_tails() -> None:
    def held(n: int, count: int) -> tuple[int, int]:
        session = Session(
            toys.pair()[0],
            toys.method(strategy=("samples", {"samples": n}), **HOT),
            LONG,
            max_new_tokens=count,
        )
        session.start()
        prefix = sum(store.prefix.kv.untyped_storage().nbytes() for store in session.target.cache.layers)
        for _ in range(count - 1):
            session.step()
        tails = sum(store.kv.untyped_storage().nbytes() for store in session.target.cache.layers)
        cache = session.target.cache
        assert cache.nbytes == prefix + tails == cache.memory.held <= cache.memory.peak
        return prefix, tails

    page = 3 * 2 * 2 * 16 * 8 * 8  # layers, keys and values, KV heads, entries, features, bytes
    assert held(6, 3) == (held(1, 3)[0], 6 * page) and held(1, 3)[0] >= 300 * page // 16
    assert held(6, 100)[1] == 6 * 8 * page, "tails grow by themselves"


def test_a_pass_is_said_to_read_the_prefix_once() -> None:
    """As counted, the naive pass reads the prefix for every sample."""
    made = toys.decode(toys.method(strategy=("samples", {"samples": 6}), **HOT), prompt=LONG, count=5)
    one = made.sink.steps[-1].passes[0]
    assert (one.batch, one.held, one.shared) == (6, 303, 299)
    shared, naive = (Cost.of(ops_of(toys.SPEC, x, bits=64)) for x in (one, replace(one, shared=None)))
    entry = 3 * 2 * 2 * 8 * 8  # layers, keys and values, KV heads, features, bytes
    assert naive.bytes - shared.bytes == pytest.approx(5 * 299 * entry) and naive.flops == shared.flops
