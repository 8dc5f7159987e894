"""Layers, and KV heads, with different numbers of entries: the logits equal those under a mask.

The record names the numbers, and the price follows them.
"""

from __future__ import annotations

import copy
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
import torch
import toys
from masked import Keep, Masked, hitters

from decodescope.engine import Session
from decodescope.engine.core.component import component
from decodescope.engine.core.probe import Needs
from decodescope.engine.cost.cost import ops_of
from decodescope.engine.cost.passes import PassPricer
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.methods.policies.h2o import H2O
from decodescope.engine.model.forward.feed import AttentionSinks, Feed
from decodescope.engine.model.stores.cache import KVCache, LayerStore
from decodescope.engine.trace import check, frame, open_trace
from decodescope.engine.trace.query.summary import summarise
from decodescope.engine.trace.records.events import Pass
from decodescope.lab.cache.lifetimes import EntryLifetimes
from decodescope.lab.wire.messages import messages

HEAVY = (9, 4, 1)  # entries that layers 0, 1 and 2 keep by their attention, plus the newest RECENT
RECENT = 3


@component
class Pyramid(H2O):
    """Heavy hitters, fewer of them from layer to layer."""

    name = "h2o"  # a reader of the trace finds its zones and knobs by it

    def surplus(self, store: LayerStore) -> int:
        return store.n - HEAVY[store.layer] - RECENT


def policy() -> Pyramid:
    return Pyramid(heavy=max(HEAVY), recent=RECENT)


def masked() -> Masked:
    return Masked(toys.pair()[0].decoder, [[hitters(heavy, RECENT)] * 2 for heavy in HEAVY])


WIDE = ((9, 2), (4, 4), (1, 6))  # entries that each KV head keeps by its attention


@component
class ByHead(H2O):
    """Heavy hitters, with a separate number for each head."""

    name = "h2o"

    def compress(self, cache: KVCache) -> None:
        for store in cache.layers:
            positions = store.positions().expand(store._shape[0], 2, -1)
            keep = positions >= cache.length - RECENT
            for b, h in product(range(store._shape[0]), range(2)):
                heavy = WIDE[store.layer][h]
                old = [s for s, p in enumerate(positions[b, h].tolist()) if 0 <= p < cache.length - RECENT]
                mass, at = store.column("mass")[b, h].tolist(), positions[b, h].tolist()
                keep[b, h, sorted(old, key=lambda s: (-mass[s], at[s]))[:heavy]] = True
            store.keep_where(keep)


@component
class ByPlace(ByHead):
    """Keeps every third, or every other, old entry, and needs no attention."""

    needs = Needs()
    columns = {}  # noqa: RUF012 # a constant of the class
    column = weighs = ""

    def compress(self, cache: KVCache) -> None:
        for store in cache.layers:
            at, every = store.positions().expand(-1, 2, -1), torch.tensor([3, 2])[:, None]
            store.keep_where((at % every == 0) | (at >= cache.length - RECENT))


def third(every: int) -> Keep:
    return lambda held, mass, n: [p for p in held if p % every == 0 or p >= n - RECENT]


def held(lane: Lane, sequence: int = 0) -> list[list[list[int]]]:
    heads = [store.positions()[sequence].expand(2, -1).tolist() for store in lane.cache.layers]
    return [[sorted(p for p in head if p >= 0) for head in layer] for layer in heads]


@pytest.fixture(scope="module")
def session() -> Session:
    """A run with some refused drafts."""
    method = toys.method(drafter=("token_recycling", {"nodes": "16"}))
    method.policy = policy()
    return toys.decode(method, count=40, level="full")


def read_alike(lane: Lane, reference: Masked) -> None:
    """Read a prompt, then blocks with refused nodes, in both: the same logits, the same entries."""
    text = toys.prompts(1, 60, seed=4)[0]
    assert torch.allclose(lane.read(text[:20]), reference.read(text[:20])[-1], atol=1e-10)
    at = 20
    while at < 50:
        block = text[at : at + 1 + at % 3]
        rows = [2 * i for i in range(len(block))]
        logits = lane.forward(tree(block, at))
        lane.commit(rows)
        assert torch.allclose(logits[0, rows], reference.read(block), atol=1e-10)
        assert held(lane) == reference.kept
        at += len(block)


@torch.inference_mode()
def test_layers_of_different_lengths_equal_an_explicit_mask() -> None:
    """The text is read token by token and in blocks with refused nodes."""
    lane, reference = Lane("target", toys.pair()[0].decoder, policy()), masked()
    read_alike(lane, reference)
    assert lane.cache.lengths() == [12, 7, 4] and lane.cache.fullest_length == 12


@pytest.mark.parametrize("sharing", ["two heads a group", "one head a group"])
@pytest.mark.parametrize("kind", [ByHead, ByPlace])
@torch.inference_mode()
def test_heads_of_different_lengths_equal_an_explicit_mask(kind: type[ByHead], sharing: str) -> None:
    """With attention that a policy observes, and with the fused kernel, head by head; also in a layer with a window."""
    shape = (
        dict(n_kv_heads=2, windows=(None, 9, None)) if sharing[:3] == "two" else dict(n_heads=2, n_kv_heads=2)
    )
    decoder = toys.decoder(toys.toy_spec(**shape), toys.LIVELY, torch.float64)
    keep = (
        [[hitters(n, RECENT) for n in heads] for heads in WIDE]
        if kind is ByHead
        else [[third(3), third(2)]] * 3
    )
    lane, reference = Lane("target", decoder, kind(heavy=9, recent=RECENT)), Masked(decoder, keep)
    read_alike(lane, reference)
    assert all(store.heads is not None for store in lane.cache.layers[::2])
    assert lane.cache.nbytes == lane.cache.memory.held < lane.cache.memory.peak


@pytest.mark.parametrize("kind", [ByHead, ByPlace])
@torch.inference_mode()
def test_two_sequences_whose_heads_differ_are_two_single_ones(kind: type[ByHead]) -> None:
    decoder, texts = toys.pair()[0].decoder, toys.prompts(2, 30, seed=7)
    both = Lane("target", decoder, kind(heavy=9, recent=RECENT), batch=2)
    single = [Lane("target", decoder, kind(heavy=9, recent=RECENT)) for _ in texts]
    for i, column in enumerate(zip(*texts, strict=True)):
        logits = both.forward(Feed(torch.tensor(column)[:, None], torch.full((2, 1), i)))
        both.commit([0])
        for b, (lane, token) in enumerate(zip(single, column, strict=True)):
            assert torch.allclose(logits[b, 0], lane.forward(Feed.causal_chain([token], i))[0, 0], atol=1e-9)
            lane.commit([0])
            assert held(both, b) == held(lane)


def tree(block: list[int], at: int) -> Feed:
    """The block as a chain from its first token; each further token has a refused sibling."""
    tokens = [t for token in block[1:] for t in ((token + 5) % 13, token)]
    return Draft(tokens, [2 * (i // 2) - 1 for i in range(len(tokens))]).build_feed(block[0], at)


def test_the_record_says_what_each_layer_holds(session: Session, tmp_path: Path) -> None:
    trace = open_trace(session.sink.save(tmp_path / "run.dstrace"), verify=True)
    report = check(trace)
    assert report.ok and report.counts["cache changes"] == 1 + len(trace.steps), report
    assert sum(step.drafted - step.accepted for step in trace.steps) > 20, "the test needs refused nodes"
    lives, length = EntryLifetimes.of(trace), len(session.tokens) - 1
    due = held(session.target)
    rows = [np.flatnonzero(row).tolist() for row in lives.held_mask(lives.count - 1)]
    assert rows == [heads for layer in due for heads in layer]
    last = trace.steps[-1].cache[0]
    assert last.by_head.tolist() == [[12] * 2, [7] * 2, [4] * 2] and last.held == 12
    assert (
        last.kept_bytes(length) == lives.held_bytes(lives.count - 1) == last.full_bytes * 46 // (6 * length)
    )
    assert [one.held for one in trace.steps[-1].passes] == [[12, 7, 4]]
    assert frame(trace, "passes")["held"].max() == 14, (
        "of the fullest layer: the prompt, before the first cut"
    )
    for before, step in pairwise(trace.steps):
        assert step.fields.attention.shape[-1] == 12 + len(step.emitted)
        padded = (step.fields.positions < 0).sum((1, 2)).tolist()
        assert padded == [0, 10, 16] or before.step == 0


def test_the_record_says_what_each_head_holds(tmp_path: Path) -> None:
    method = toys.method(drafter=("token_recycling", {"nodes": "16"}))
    method.policy = ByHead(heavy=9, recent=RECENT)
    session = toys.decode(method, count=40, level="full")
    trace = open_trace(session.sink.save(tmp_path / "run.dstrace"), verify=True)
    report = check(trace)
    assert report.ok and report.counts["cache changes"] == 1 + len(trace.steps), report
    lives, last = EntryLifetimes.of(trace), trace.steps[-1]
    rows = [np.flatnonzero(row).tolist() for row in lives.held_mask(lives.count - 1)]
    assert rows == [heads for layer in held(session.target) for heads in layer]
    due = [[n + RECENT for n in heads] for heads in WIDE]
    assert last.cache[0].by_head.tolist() == due and last.passes[0].held == due and last.cache[0].held == 12
    sizes = [store.bytes_by_head() for store in session.target.cache.layers]
    assert last.cache[0].head_bytes.tolist() == sizes and last.cache[0].held_bytes == sum(map(sum, sizes))
    figures = summarise(trace)
    assert figures.kv_bytes_peak == session.target.cache.memory.peak > figures.kv_bytes_held
    whole, read = figures.kv_bytes_full, len(session.tokens) - 1
    assert figures.kv_bytes_kept == lives.held_bytes(lives.count - 1) == whole * 44 // (6 * read)
    (kv,) = [message for message in messages(trace) if message["kind"] == "step"][-1]["kv"]
    assert (kv["least"], kv["held"], kv["mean"]) == (4, 12, round(44 / 6, 3))
    assert last.passes[0].max_entries == 12 and PassPricer(trace.header).cost(
        last.passes[0], last.draft
    ).kv_read_bytes == sum(2 * (n + last.passes[0].tokens) * 64 for heads in due for n in heads)
    for i, heads in enumerate(due):  # the map, the weights and their places are those of what each head held
        assert (last.cache[0].mass[i] > 0).sum(1).tolist() == heads
        seen, at = last.fields.attention[i].astype(float), last.fields.positions[i]
        assert (
            np.allclose(seen.sum(-1), 1, atol=1e-2)
            and not seen[np.broadcast_to((at < 0)[:, None, None], seen.shape)].any()
        )


def test_a_pass_costs_what_each_layer_holds(session: Session) -> None:
    spec, trace = toys.SPEC, session.sink
    passes = PassPricer(trace.header)
    step = trace.steps[-1]
    each = [12, 7, 4]
    one = Pass("target", "verify", 1, each, 1.0)
    read = [op.kv_read_bytes for op in ops_of(spec, one, bits=64) if op.name == "attention"]
    assert read == [2 * (n + 1) * 2 * 8 * 8 for n in each]
    assert passes.cost(one).kv_read_bytes == sum(read)
    assert passes.cost(Pass("target", "verify", 1, 12, 1.0)).kv_read_bytes == 3 * read[0]
    by_head = Pass("target", "verify", 2, [[12, 3], [7, 7], [4, 1]], 1.0)
    ops = [op for op in ops_of(spec, by_head, bits=64) if op.name == "attention"]
    assert [op.kv_read_bytes for op in ops] == [2 * (a + b + 4) * 8 * 8 for a, b in by_head.held]
    assert [op.flops for op in ops] == [
        (4 * 8 + 5) * 2 * sum(2 * n + 3 for n in heads) for heads in by_head.held
    ]
    assert by_head.entries == 34 / 6 and by_head.max_entries == 12
    assert passes.cost(step.passes[0], step.draft).kv_read_bytes == sum(
        2 * (n + step.passes[0].tokens) * 128 for n in each
    )


@pytest.mark.parametrize("lie", ["one more", "another head", "no such layer"])
def test_a_lie_about_a_layer_is_found(session: Session, lie: str) -> None:
    trace = copy.deepcopy(session.sink)
    change = trace.steps[5].cache[0]
    if lie == "one more":
        change.by_head[1, 0] += 1
    elif lie == "another head":
        change.evicted[0, 1] ^= 1
    else:
        change.by_head = change.by_head[:2]
    assert any("holds" in str(x) or "hold other" in str(x) for x in check(trace).problems)


def test_places_in_a_cache_are_refused_where_heads_differ() -> None:
    """Places are counted for all heads of a layer together."""

    @component
    class InCache(ByHead):
        sink_places = AttentionSinks(1)

    InCache.name = "h2o"
    lane = Lane("target", toys.pair()[0].decoder, InCache(heavy=9, recent=RECENT))
    with torch.inference_mode():
        lane.read(toys.PROMPT * 2)
        with pytest.raises(
            ValueError, match=r"^layer 0: its KV heads hold different numbers .* \(rope = original\)\.$"
        ):
            lane.forward(Feed.causal_chain([1], len(lane.tokens)))
