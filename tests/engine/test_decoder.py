"""Decoder: each path through it gives the same numbers as the plain one, and its probes record what happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch import Tensor

from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.model.attention import attention
from decodescope.engine.model.forward.attention_block import AttentionBlock
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import AttentionSinks, Feed
from decodescope.engine.model.forward.plain import can_run
from decodescope.engine.model.layers.gates import Gates
from decodescope.engine.model.layers.partial_pass import Skip
from decodescope.engine.model.stores.cache import KVCache
from tests import toys
from tests.brute import brute

TEXT = [*toys.PROMPT, 7, 0, 11, 2, 2, 9, 10, 4]
TREE = Draft([1, 2, 3, 4, 5, 6], [ROOT, ROOT, 0, 1, 1, 4])
WINDOWED = replace(toys.SPEC, windows=(6, None, 4))
SPECS = {"full": toys.SPEC, "windowed": WINDOWED}


def cache_of(decoder: Decoder, tokens: list[int]) -> KVCache:
    """A cache that has read `tokens`."""
    cache = KVCache(decoder.spec, dtype=decoder.dtype)
    decoder.forward(Feed.causal_chain(tokens, 0), cache)
    cache.commit(range(len(tokens)))
    return cache


def rows_of(decoder: Decoder, feed: Feed, cache: KVCache | None, **needs: object) -> tuple[Tensor, Probe]:
    """The logits and the probe of a pass."""
    probe = Probe(Needs(**needs))  # type: ignore[arg-type] # fields of Needs by name
    return decoder.forward(feed, cache, probe), probe


def close(a: Tensor, b: Tensor, atol: float = 1e-4) -> None:
    """Check equality within float32's noise."""
    torch.testing.assert_close(a, b, atol=atol, rtol=1e-4)


def causal(spec: ModelSpec) -> Callable[[int, int, int, int], bool]:
    """Each row sees itself and the rows before it, as far as the layer's window reaches."""
    return lambda layer, head, t, s: s <= t and t - s < (spec.window(layer) or 10**9)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_prefill_equals_brute_force(spec: ModelSpec) -> None:
    decoder = toys.decoder(spec)
    wanted = brute(decoder, TEXT, list(range(len(TEXT))), causal(spec))
    close(decoder.forward(Feed.causal_chain(TEXT, 0), None)[0], wanted)
    close(decoder.forward(Feed.causal_chain(TEXT, 0), KVCache(spec))[0], wanted)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_tree_equals_brute_force(spec: ModelSpec) -> None:
    decoder, n = toys.decoder(spec), len(TEXT)
    feed = TREE.build_feed(8, n)
    positions = [*range(n), *feed.positions[0].tolist()]
    seen = torch.ones(n + 7, n + 7, dtype=torch.bool).tril()
    seen[n:, n:] = TREE.ancestry()

    def sees(layer: int, head: int, t: int, s: int) -> bool:
        return bool(seen[t, s]) and positions[t] - positions[s] < (spec.window(layer) or 10**9)

    wanted = brute(decoder, [*TEXT, 8, *TREE.tokens], positions, sees)[n:]
    close(decoder.forward(feed, cache_of(decoder, TEXT))[0], wanted)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_entries_that_a_head_dropped_are_not_seen(spec: ModelSpec) -> None:
    """Heads and layers keep different entries; then some are evicted outright, so that slots are in no order."""
    decoder, n = toys.decoder(spec), len(TEXT)
    g = torch.Generator().manual_seed(5)
    cache = cache_of(decoder, TEXT)
    for store in cache.layers:
        keep = torch.rand(1, spec.n_kv_heads, n, generator=g) < 0.6
        keep[:, :, -1] = True
        store.keep_where(keep)
        store.evict(torch.tensor([[[0, 2], [1, 0]]]))
    assert any(store.present_mask is not None and not store.present_mask.all() for store in cache.layers)
    held = [
        [set(store.positions()[0, h].tolist()) - {-1} for h in range(spec.n_kv_heads)]
        for store in cache.layers
    ]
    assert len({frozenset(x) for heads in held for x in heads}) == 6, "the guard: every head differs"

    def sees(layer: int, head: int, t: int, s: int) -> bool:
        inside = t - s < (spec.window(layer) or 10**9)
        return s <= t and inside and (t < n or s >= n or s in held[layer][head])

    # the prompt itself was read with everything visible; only the new rows miss what was dropped
    wanted = brute(decoder, [*TEXT, 8, 3], list(range(n + 2)), sees)[n:]
    got = decoder.forward(Feed.causal_chain([8, 3], n), cache)[0]
    close(got, wanted)
    assert (
        got - decoder.forward(Feed.causal_chain([8, 3], n), cache_of(decoder, TEXT))[0]
    ).abs().max() > 1e-2


@pytest.mark.parametrize("attention", ["none", "rows"])
@pytest.mark.parametrize("cap", [None, 9])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_sinks_stand_closer_than_in_the_text(
    spec: ModelSpec, cap: int | None, attention: Literal["none", "rows"]
) -> None:
    """Sinks are directly before the other kept entries, or at a cap; a layer's window counts as rotations do."""
    decoder, n = toys.decoder(spec), len(TEXT)
    cache = cache_of(decoder, TEXT)
    gone = range(3, n - 10)
    for store in cache.layers:
        store.evict(torch.tensor(gone).expand(1, spec.n_kv_heads, -1))
    feed = TREE.build_feed(8, n)
    feed.sinks = AttentionSinks(3, cap)
    positions = [*range(n), *feed.positions[0].tolist()]
    seen = torch.ones(n + 7, n + 7, dtype=torch.bool).tril()
    seen[n:, n:] = TREE.ancestry()

    def away(t: int, s: int) -> int:
        """The distance of row t to entry s."""
        far = positions[t] - positions[s]
        if t < n or positions[s] >= 3:
            return far
        return far - len(gone) if cap is None else min(far, cap)

    def sees(layer: int, head: int, t: int, s: int) -> bool:
        inside = away(t, s) < (spec.window(layer) or 10**9)
        reached = cap is None or t < n or s < 3 or positions[t] - positions[s] < cap
        return bool(seen[t, s]) and inside and reached and (t < n or s not in gone)

    wanted = brute(decoder, [*TEXT, 8, *TREE.tokens], positions, sees, lambda t, s: 100 - away(t, s))[n:]
    close(rows_of(decoder, feed, cache, attention=attention)[0][0], wanted)


def test_sinks_change_nothing_while_nothing_has_left() -> None:
    decoder = toys.decoder()
    one, other = cache_of(decoder, TEXT), cache_of(decoder, TEXT)
    feed = TREE.build_feed(8, len(TEXT))
    wanted = decoder.forward(feed, one)
    for sinks in (AttentionSinks(3), AttentionSinks(3, 100)):
        assert torch.equal(decoder.forward(replace(feed, sinks=sinks), other), wanted)
        other.rollback()


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_rows_see_those_that_are_still_pending(spec: ModelSpec) -> None:
    """As in a draft model: several passes over rows without a verdict."""
    decoder, n = toys.decoder(spec), len(TEXT)
    cache, parts = cache_of(decoder, TEXT), []
    for at, tokens in ((0, [8]), (1, [3, 6, 1]), (4, [5]), (5, [0, 2])):
        parts.append(decoder.forward(Feed.causal_chain(tokens, n + at), cache))
    assert [store.m for store in cache.layers] == [7] * 3
    wanted = decoder.forward(Feed.causal_chain([*TEXT, 8, 3, 6, 1, 5, 0, 2], 0), None)[:, n:]
    close(torch.cat(parts, 1), wanted)


# ---- attention that can be seen


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("what", ["prefill", "tree", "token"])
def test_explicit_attention_equals_the_fused_and_its_rows_sum_to_one(spec: ModelSpec, what: str) -> None:
    decoder, n = toys.decoder(spec), len(TEXT)
    feed = {
        "prefill": Feed.causal_chain(TEXT, 0),
        "tree": TREE.build_feed(8, n),
        "token": Feed.causal_chain([8], n),
    }[what]
    caches = [KVCache(spec) if what == "prefill" else cache_of(decoder, TEXT) for _ in range(2)]
    logits, probe = rows_of(decoder, feed, caches[0], attention="rows")
    close(logits, decoder.forward(feed, caches[1]))
    assert sorted(probe.rows) == [0, 1, 2]
    held = n if what == "prefill" else n + feed.length
    for weights in probe.rows.values():
        assert weights.shape == (1, 2, 2, feed.length, held)
        close(weights.sum(-1), torch.ones(1, 2, 2, feed.length))
    if what == "tree":
        assert not probe.rows[1][0, :, :, 1:, n + 1 :].masked_select(~TREE.ancestry()[1:, 1:]).any()


@pytest.mark.parametrize("tile", [1, 4, 7, 100])
def test_column_sums_are_the_rows_summed_whatever_the_tile(
    tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "TILE", tile)
    decoder = toys.decoder(WINDOWED)
    whole, full = rows_of(decoder, Feed.causal_chain(TEXT, 0), KVCache(WINDOWED), attention="rows")
    feed = Feed.causal_chain(TEXT, 0, logits="last")
    logits, probe = rows_of(decoder, feed, KVCache(WINDOWED), attention="columns")
    close(logits, whole[:, -1:])
    assert not probe.rows
    for i, columns in probe.columns.items():
        close(columns, full.rows[i].sum((2, 3)))
        close(columns.sum(-1), torch.full((1, 2), 2.0 * len(TEXT)))  # one unit per query head and query


def test_attention_is_taken_only_where_it_was_asked_for() -> None:
    decoder = toys.decoder()
    _, probe = rows_of(
        decoder, Feed.causal_chain(TEXT, 0), None, attention="rows", attention_layers=frozenset({1})
    )
    assert list(probe.rows) == [1]


@pytest.mark.parametrize("logits", ["all", "last"])
def test_hidden_states_are_what_enters_a_layer_and_what_the_head_reads(
    logits: Literal["all", "last"],
) -> None:
    decoder = toys.decoder()
    feed = Feed.causal_chain(TEXT, 0, logits=logits)
    made, probe = rows_of(decoder, feed, None, hidden=frozenset({0, 2, "final"}))
    assert probe.hidden.keys() == {0, 2, "final"}
    assert torch.equal(probe.hidden[0], decoder.embed[TEXT][None])
    assert probe.hidden["final"].shape == (1, len(TEXT), 32), (
        "every row, even where only the last is unembedded"
    )
    close(decoder.unembed(probe.hidden["final"])[:, -made.shape[1] :], made)


# ---- partial passes


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_entering_at_a_layer_equals_the_whole_pass(layer: int) -> None:
    decoder = toys.decoder()
    wanted, probe = rows_of(decoder, Feed.causal_chain(TEXT, 0), None, hidden=frozenset({0, 1, 2}))
    feed = replace(Feed.causal_chain(TEXT, 0), enter=layer, states=probe.hidden[layer])
    cache = KVCache(toys.SPEC)
    close(decoder.forward(feed, cache), wanted)
    assert [store.m for store in cache.layers] == [0] * layer + [len(TEXT)] * (3 - layer)


def test_embeddings_can_be_given_for_some_rows() -> None:
    decoder = toys.decoder()
    other = [4, *TEXT[1:-2], 0, TEXT[-1]]
    assert other != TEXT
    given = decoder.embed[TEXT][None]
    marked = torch.tensor([a != b for a, b in zip(TEXT, other, strict=True)])
    assert marked.sum() == 2
    feed = replace(
        Feed.causal_chain(other, 0), embeds=given.where(marked[:, None], torch.nan), embed_rows=marked
    )
    close(decoder.forward(feed, None), decoder.forward(Feed.causal_chain(TEXT, 0), None))


def without(decoder: Decoder, skip: Skip) -> Decoder:
    """The same decoder, with the skipped blocks adding nothing."""
    layers = [
        replace(
            w,
            out=torch.zeros_like(w.out) if i in skip.attn else w.out,
            down=torch.zeros_like(w.down) if i in skip.ffn else w.down,
        )
        for i, w in enumerate(decoder.layers)
    ]
    return Decoder(decoder.spec, decoder.embed, layers, decoder.norm, decoder.head)


@pytest.mark.parametrize(
    "skip",
    [Skip(), Skip(attn=frozenset({1})), Skip(ffn=frozenset({0, 2})), Skip(frozenset({0, 2}), frozenset({2}))],
    ids=["none", "attention", "feed-forward", "both"],
)
def test_a_skipped_block_adds_nothing_and_stores_nothing(skip: Skip) -> None:
    decoder = toys.decoder()
    cache = cache_of(decoder, TEXT)
    plain = cache.copy()
    feed = Feed.causal_chain([8, 3], len(TEXT))
    close(decoder.forward(feed, cache, skip=skip), without(decoder, skip).forward(feed, plain))
    assert [store.m for store in cache.layers] == [0 if i in skip.attn else 2 for i in range(3)]


class LeaveAt:
    """Leaves before layer `at`, and records what it was given."""

    whole = routes = False
    skipped_kv = "propagate"

    def __init__(self, at: int):
        self.at, self.asked, self.read = at, [], None

    def leave(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> bool:
        """True at the chosen layer."""
        self.asked.append(layer)
        self.read = read() if layer == self.at else self.read
        return layer == self.at

    def gate(self, layer: int, before: Tensor, after: Tensor) -> tuple[int, ...]:
        """Leave out no feed-forward block."""
        return ()


def test_an_exit_that_never_leaves_changes_nothing() -> None:
    decoder, never = toys.decoder(), LeaveAt(99)
    plain, exiting = cache_of(decoder, TEXT), cache_of(decoder, TEXT)
    feed = Feed.causal_chain([8], len(TEXT))
    assert torch.equal(decoder.forward(feed, exiting, depth=never), decoder.forward(feed, plain))
    assert never.asked == [0, 1, 2]
    for a, b in zip(exiting.layers, plain.layers, strict=True):
        assert torch.equal(a.kv[:, :, :, : a.n + a.m], b.kv[:, :, :, : b.n + b.m])


def test_an_early_exit_answers_from_its_state_and_fills_the_layers_above() -> None:
    decoder, early = toys.decoder(), LeaveAt(1)
    cache = cache_of(decoder, TEXT)
    whole, feed = cache.copy(), Feed.causal_chain([8], len(TEXT))
    logits = decoder.forward(feed, cache, depth=early)
    assert torch.equal(logits, early.read)
    assert early.asked == [0, 1]
    everything, probe = rows_of(decoder, feed, whole, hidden=frozenset({1}))
    assert not torch.equal(logits, everything)
    assert [store.m for store in cache.layers] == [1, 1, 1]
    assert torch.equal(cache.layers[0].k, whole.layers[0].k)
    assert torch.equal(cache.layers[1].k, whole.layers[1].k), "layer 1 gets the keys of its own input"
    assert not torch.equal(cache.layers[2].k, whole.layers[2].k)
    job = AttentionBlock(decoder.stack, feed, cache, None)
    keys = job.project(2, probe.hidden[1])[:, :, 4:6].transpose(1, 2)  # [1, 1, H_kv, D] -> [1, H_kv, 1, D]
    close(cache.layers[2].k[:, :, -1:], keys)


# ---- batches, types, places


def test_two_sequences_at_once_equal_each_alone() -> None:
    decoder, n = toys.decoder(WINDOWED), len(TEXT)
    texts = [TEXT, TEXT[::-1]]
    cache = KVCache(WINDOWED, batch=2)
    at = torch.arange(n).expand(2, n)
    both = decoder.forward(Feed(torch.tensor(texts), at), cache)
    cache.commit(range(n))
    more = decoder.forward(Feed(torch.tensor([[1], [2]]), torch.full((2, 1), n)), cache)
    for b, text in enumerate(texts):
        alone = KVCache(WINDOWED)
        close(both[b : b + 1], decoder.forward(Feed.causal_chain(text, 0), alone))
        alone.commit(range(n))
        close(more[b : b + 1], decoder.forward(Feed.causal_chain([b + 1], n), alone))


@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float64, 1e-4), (torch.float16, 0.05), (torch.bfloat16, 0.4)], ids=str
)
@pytest.mark.parametrize("attention", ["none", "rows"])
def test_every_type_runs(dtype: torch.dtype, atol: float, attention: str) -> None:
    single = toys.decoder(sharp=1.0)
    decoder = single.to(dtype=dtype)
    wanted = single.forward(Feed.causal_chain([*TEXT, 8, *TREE.tokens[:2]], 0), None)[:, len(TEXT) :]
    cache = cache_of(decoder, TEXT)
    feed = Feed.causal_chain([8, *TREE.tokens[:2]], len(TEXT))
    got = decoder.forward(feed, cache, Probe(Needs(attention=attention)))  # type: ignore[arg-type] # a Literal
    assert cache.layers[0].kv.dtype == dtype
    assert got.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(got.float(), wanted, atol=atol, rtol=0.02)
    assert got.isfinite().all()


def test_a_moved_decoder_keeps_what_belongs_to_it() -> None:
    decoder = toys.decoder()
    tied = Decoder(decoder.spec, decoder.embed, decoder.layers, decoder.norm, decoder.embed)
    tied.usable = 9
    moved = tied.to(dtype=torch.float64)
    assert moved.head is moved.embed
    assert moved.dtype == torch.float64
    logits = moved.forward(Feed.causal_chain(TEXT, 0), None)
    close(logits.float(), tied.forward(Feed.causal_chain(TEXT, 0), None))
    assert logits.shape == (1, len(TEXT), 9), "ids from `usable` on get no logit"


def test_positions_beyond_the_table_make_it_grow() -> None:
    decoder = toys.decoder(replace(toys.SPEC, max_positions=16))
    long = toys.decoder(replace(toys.SPEC, max_positions=512))
    close(
        decoder.forward(Feed.causal_chain(TEXT * 3, 0), None),
        long.forward(Feed.causal_chain(TEXT * 3, 0), None),
    )


def test_layers_that_differ_make_no_plain_pass() -> None:
    decoder, feed = toys.decoder(WINDOWED), Feed.causal_chain([3], len(TEXT))
    assert not can_run(WINDOWED, decoder.gates, feed, cache_of(decoder, TEXT))
    decoder = toys.decoder()
    cache = cache_of(decoder, TEXT)
    assert not can_run(decoder.spec, Gates(), feed, cache), "a gate may stand somewhere"
    assert not can_run(decoder.spec, decoder.gates, replace(feed, sinks=AttentionSinks(2)), cache)
    cache.layers[1].evict_same([2])
    assert not can_run(decoder.spec, decoder.gates, feed, cache), "a layer holds fewer"
