"""A tree of texts: every plan reads each entry once, reordering copies none, and attention equals that of each text alone."""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import toys
from followed import followed

from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.cost.cost import cost_of
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.branches import BranchStore, branch_cache
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.model.stores.tree import PLANS, CacheTree, TreePlan
from decodescope.engine.trace import Trace, check

PLANNED = pytest.mark.parametrize("plan", PLANS)


def orders(steps: int, width: int, seed: int = 0) -> list[list[int]]:
    """For each step, the parent of each of the next texts: one text at first, then `width`, often with a common parent."""
    draw, count, drawn = random.Random(seed), 1, []
    for _ in range(steps):
        drawn.append([draw.choice([0, draw.randrange(count)]) for _ in range(width)])
        count = width
    return drawn


@PLANNED
@pytest.mark.parametrize("seed", range(4))
def test_each_pair_of_a_text_and_its_entry_is_covered_once_and_each_entry_is_loaded_once(
    plan: TreePlan, seed: int
) -> None:
    tree, deep = CacheTree(5, torch.device("cpu"), plan, block=16), 0
    for order in orders(60, 5, seed):
        covered: Counter[tuple[int, int]] = Counter()
        loaded = 0
        # each path with its pending entry
        paths = [[*path, tree.used + b] for b, path in enumerate(tree.paths().tolist())]
        for group in tree.groups():
            slots = range(1 << 20)[group.slots] if isinstance(group.slots, slice) else group.slots.tolist()
            readers = range(len(paths)) if group.texts is None else group.texts.tolist()
            loaded += len(slots)
            for row, text in enumerate(readers):
                for i, slot in enumerate(slots):
                    if group.mask is None or group.mask[row, i]:
                        covered[text, slot] += 1
                        assert paths[text][int(group.places[i])] == slot
        assert covered == Counter((b, slot) for b, path in enumerate(paths) for slot in path)
        assert loaded - len(paths) == tree.loaded_entries
        # the formula: each node's entries once, however many texts read them
        assert (
            tree.live_entries
            == len({slot for path in paths for slot in path[:-1]})
            == sum(x.stop - x.first for x in tree.shared_nodes())
        )
        deep = max(deep, len(tree.shared_nodes()))
        tree.grow()
        tree.reorder(order)
        assert len(tree.shared_nodes()) < 2 * len(order) and tree.dead < 16 + tree.live_entries
    assert deep > 4, "the test needs texts that branch at several places"


@PLANNED
def test_groups_take_no_line_of_python_for_an_entry(plan: TreePlan) -> None:
    tree, lines = CacheTree(3000, torch.device("cpu"), plan, block=512), 0
    tree.reorder([0, 0])

    def traced(frame: Any, event: str, arg: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return traced

    sys.settrace(traced)
    try:
        groups = tree.groups()
    finally:
        sys.settrace(None)
    assert len(groups) == {"dense": 1, "node": 3, "flatten": 6}[plan] and lines < 1000


def run(plan: TreePlan | None, spec: Any, width: int = 4, steps: int = 30, needs: Needs | None = None) -> Any:
    """Logits of every step of texts that continue at random, and the cache; plan None: each text has a copy of its own."""
    decoder, cache = toys.decoder(spec, dtype=torch.float64), KVCache(spec, dtype=torch.float64)
    prompt, seen, probed = toys.prompts(1, length=21, seed=3)[0], [], []
    decoder.forward(Feed.causal_chain(prompt, 0), cache)
    cache.commit(range(len(prompt)))
    if plan is not None:
        branch_cache(cache, plan, block=16)
    ids, batch = random.Random(5), 1
    for i, order in enumerate(orders(steps, width)):
        tokens = torch.tensor([[ids.randrange(spec.vocab)] for _ in range(batch)])
        probe = None if needs is None else Probe(needs)
        seen.append(decoder.forward(Feed(tokens, torch.full((batch, 1), len(prompt) + i)), cache, probe))
        probed.append(probe)
        cache.commit([0])
        cache.shrink()
        cache.reorder(torch.tensor(order))
        batch = width
    return seen, cache, probed


WINDOWED = replace(toys.toy_spec(), windows=(12, None, 9))


@PLANNED
@pytest.mark.parametrize("spec", [toys.toy_spec(), WINDOWED], ids=["all", "windows"])
@torch.inference_mode()
def test_every_plan_is_the_attention_of_each_text_over_a_cache_of_its_own(plan: TreePlan, spec: Any) -> None:
    needs = Needs("rows", frozenset(range(spec.n_layers)))
    apart, copies, alone = run(None, spec, needs=needs)
    together, tree, probed = run(plan, spec, needs=needs)
    plainly = run(plan, spec)[0]
    for a, b, c in zip(apart, together, plainly, strict=True):
        assert torch.allclose(a, b, atol=1e-9, rtol=0) and torch.allclose(a, c, atol=1e-9, rtol=0)
    for a, b in zip(alone, probed, strict=True):
        assert all(torch.allclose(a.rows[i], b.rows[i], atol=1e-6) for i in range(spec.n_layers)), (
            "weights stand by position"
        )
    for a, b in zip(copies.layers, tree.layers, strict=True):
        assert torch.allclose(a.k, b.k, atol=1e-9) and torch.allclose(a.v, b.v, atol=1e-9)
        assert torch.equal(a.positions(), b.positions())


@torch.inference_mode()
def test_reordering_moves_no_entry_and_memory_is_that_of_the_entries_that_live() -> None:
    spec = toys.toy_spec()
    _, copies, _ = run(None, spec, width=6)
    _, cache, _ = run("dense", spec, width=6)
    stores: list[BranchStore] = cache.layers
    where = [store.kv.data_ptr() for store in stores]
    stored = sum(store.kv.untyped_storage().nbytes() for store in stores)
    assert stored + cache.tree.memory.held == cache.nbytes == cache.memory.held
    assert (
        all(store.capacity <= 2 * cache.tree.live_entries + 64 for store in stores)
        and cache.nbytes < copies.nbytes / 3
    )
    held = stores[0].kv.clone()
    cache.reorder(torch.tensor([0, 0, 1, 2, 3, 4]))  # one text leaves, with the entries that only it had
    assert [store.kv.data_ptr() for store in stores] == where
    bits, before = (
        x.view(torch.uint8) for x in (stores[0].kv, held)
    )  # room without entries may hold any number
    assert torch.equal(bits, before), "nothing was copied"


def search(plan: str, **more: Any) -> Any:
    strategy = ("beam", {"width": 5, "alpha": 0.5, "attention_plan": plan, "block": 16})
    return toys.decode(toys.method(strategy=strategy, **more), toys.PROMPT * 4, 40)


@PLANNED
def test_a_search_is_that_of_hypotheses_with_caches_of_their_own(plan: str) -> None:
    """If a policy has a budget for everything, each hypothesis has its own copy of the cache."""
    made, copied = search(plan), search(plan, policy=("window", {"window": 4096}))
    assert made.end.tokens == copied.end.tokens and len(set(made.end.tokens)) > 3
    for a, b in zip(made.sink.steps, copied.sink.steps, strict=True):
        mine, other = followed(a), followed(b)
        assert (mine.tokens, mine.parents) == (other.tokens, other.parents)
        assert np.allclose(mine.scores, other.scores, atol=1e-9)
        assert (a.cache[0].held, a.cache[0].full_bytes) == (b.cache[0].held, b.cache[0].full_bytes)
    one, other = made.sink.steps[-1], copied.sink.steps[-1]
    assert one.cache[0].held_bytes < other.cache[0].held_bytes / 3
    read, copy = one.passes[0], other.passes[0]
    assert read.held == copy.held and read.distinct is not None and copy.distinct is None
    entry = 3 * 2 * 2 * 8 * 8  # layers, keys and values, KV heads, features, bytes
    saved = cost_of(toys.SPEC, copy, bits=64).bytes - cost_of(toys.SPEC, read, bits=64).bytes
    assert saved == entry * (5 * read.held - read.distinct) and read.distinct < 2 * read.held


def test_the_trace_says_which_texts_share_what_and_the_check_follows() -> None:
    made = search("node")
    assert check(made.sink).ok, str(check(made.sink))
    told = [step.cache[0] for step in made.sink.steps]
    assert all(x.shared is not None for x in told)
    nodes = told[-1].shared.tolist()
    assert nodes[0][:2] == [-1, 0] and nodes[0][3] == 5 and sum(refs == 1 for *_, refs in nodes) <= 5
    entry = 3 * 2 * 2 * 8 * 8
    assert (
        told[-1].shared_bytes
        == entry * sum((refs - 1) * (stop - first) for _, first, stop, refs in nodes)
        > 0
    )

    def problems(change: Any) -> list[str]:
        trace = Trace()
        trace.header, trace.prefill, trace.end = made.sink.header, made.sink.prefill, made.sink.end
        at = next(i for i, x in enumerate(told) if len(x.shared) > 3)
        step = made.sink.steps[at]
        trace.steps = [*made.sink.steps]
        trace.steps[at] = replace(
            step, cache=[replace(step.cache[0], **change(step.cache[0])), *step.cache[1:]]
        )
        return [x for x in check(trace).problems if "content" not in x]

    def wider(x: Any) -> dict[str, Any]:
        shared = x.shared.copy()
        shared[0, 2] -= 1
        shared[shared[:, 0] == 0, 1] -= 1
        return {"shared": shared}

    assert any("by their origins they do not" in x for x in problems(wider))
    assert any("sharing saves" in x for x in problems(lambda x: {"shared_bytes": x.shared_bytes + 1}))
    assert any(
        "does not follow the one before it" in x
        for x in problems(lambda x: {"shared": x.shared[::-1].copy()})
    )
    assert any("one is missing" in x for x in problems(lambda x: {"shared_bytes": None}))


@pytest.mark.parametrize("plan", ["prefix", *PLANS])
def test_samples_say_that_their_prompt_is_held_once(plan: str) -> None:
    made = toys.decode(
        toys.method(strategy=("samples", {"samples": 4, "attention_plan": plan}), sampler="temperature"),
        count=6,
    )
    alone = toys.decode(toys.method(sampler="temperature"), count=6)
    assert made.end.tokens == alone.end.tokens
    last = made.sink.steps[-1].cache[0]
    prompt = len(toys.PROMPT) - 1
    assert (
        last.shared.tolist() == [[-1, 0, prompt, 4], *[[0, prompt, last.held, 1]] * 4] and check(made.sink).ok
    )
