"""Scissorhands: its bits equal a recount of the rows, bursts keep the budget, and recent entries never leave."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
import torch
import toys

from decodescope.engine.core.component import build
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import KVCache

L, H = 3, 2


def lane(**settings: Any) -> Lane:
    return Lane("target", toys.pair()[0].decoder, build("policy", "scissorhands", settings))


def held(made: Lane) -> list[list[list[int]]]:
    return [store.positions()[0].expand(H, -1).sort(1).values.tolist() for store in made.cache.layers]


def step(made: Lane, root: int, path: list[int], wrong: int) -> None:
    """Read a draft that branches at every node, with one branch refused, and commit the path."""
    tokens = [t for token in path for t in (wrong, token)]
    parents = [p for i in range(len(path)) for p in [2 * i - 1] * 2]
    made.forward(Draft(tokens, parents).build_feed(root, len(made.tokens)))
    made.commit([0, *(2 * i + 2 for i in range(len(path)))])


class Recount:
    """The result from the rows alone: for each layer, head and entry the verdicts of the last rows that saw it, by row."""

    def __init__(self, window: int):
        self.rows: deque[int] = deque(maxlen=window)  # positions of the last rows
        self.below: dict[
            tuple[int, int, int], set[int]
        ] = {}  # (layer, head, position) -> rows that found it below uniform

    def add(self, layer: int, row: int, weights: list[list[float]], entries: list[list[int]]) -> None:
        """Add weights [H][n] of a row over the entries at the positions `entries` [H][n]."""
        if row not in self.rows:
            self.rows.append(row)
        for h in range(H):
            seen = [(p, w) for p, w in zip(entries[h], weights[h], strict=True) if p <= row]
            for p, w in seen:
                if w < 1 / len(seen):
                    self.below.setdefault((layer, h, p), set()).add(row)

    def counter(self, layer: int, head: int, position: int) -> int:
        return len(self.below.get((layer, head, position), set()) & set(self.rows))


@pytest.mark.parametrize("window", [5, 8, 13])
@torch.inference_mode()
def test_the_bits_are_a_recount_of_the_rows_and_choose_who_leaves(window: int) -> None:
    """Over a prompt and drafts with refused nodes: counters, kept sets and bursts, all from recorded rows."""
    made, recount = lane(pivotal_entries=9, recent=3, window=window, drop_share=0.5), Recount(window)
    text = toys.prompts(1, 80, seed=5)[0]
    probe = Probe(Needs("rows"))
    made.decoder.forward(Feed.causal_chain(text[:20], 0), KVCache(toys.SPEC, dtype=torch.float64), probe)
    for row in range(20):
        for layer in range(L):
            recount.add(layer, row, probe.rows[layer][0].mean(1)[:, row].tolist(), [list(range(20))] * H)
    due: list[list[list[int]]] = []
    sawed = []

    def watch(lane: Lane, rows: list[int], before: list[int]) -> None:
        due.clear()
        n = lane.cache.length
        for layer, store in enumerate(lane.cache.layers):
            at = store.positions()[0].expand(H, -1).tolist()
            seen = lane.attention(layer, rows, before)[0].mean(1)  # [H_kv, R, n]
            for i in range(len(rows)):
                recount.add(layer, n - len(rows) + i, seen[:, i].tolist(), at)
        for layer, store in enumerate(lane.cache.layers):
            due.append([])
            for h, entries in enumerate(store.positions()[0].expand(H, -1).tolist()):
                gone = -(-max(0, store.n - 12) // 6) * 6
                old = sorted(
                    (p for p in entries if p < n - 3), key=lambda p: (-recount.counter(layer, h, p), -p)
                )
                due[-1].append(sorted(set(entries) - set(old[:gone])))

    made.read(text[:20])
    assert [len(x) for heads in held(made) for x in heads] == [8] * L * H, "20 - 2 bursts of 6"
    made.watch, at, bursts = watch, 20, 0
    while at < 70:
        before = made.cache.fullest_length
        count = at % 3
        step(made, text[at], text[at + 1 : at + 1 + count], wrong=(text[at] + 5) % 13)
        at += 1 + count
        bursts += made.cache.fullest_length < before
        sawed.append(made.cache.fullest_length)
        assert held(made) == due and made.cache.fullest_length <= 12
        for layer, store in enumerate(made.cache.layers):
            counters = made.policy.counters(store)[0]
            for h, entries in enumerate(store.positions()[0].expand(H, -1).tolist()):
                assert counters[h].tolist() == [recount.counter(layer, h, p) for p in entries]
                assert set(range(at - 3, at)) <= set(entries), "what is recent stays"
    assert bursts > 4 and max(sawed) > 10 and min(sawed) < 9
    assert any(a != b for a, b in zip(held(made)[0], held(made)[1], strict=True)), (
        "the test needs heads that differ"
    )


@torch.inference_mode()
def test_with_room_for_all_nothing_leaves() -> None:
    made = lane(pivotal_entries=50, recent=10, window=8)
    made.read(toys.prompts(1, 40)[0])
    for at in range(20):
        step(made, at % 13, [], 0)
    assert held(made) == [[list(range(60))] * H] * L
    step(made, 1, [], 0)
    assert made.cache.fullest_length == 31, "the 61st entry brings a burst of half the budget"


def test_a_share_keeps_something_pivotal() -> None:
    for pivotal, recent, due in [(118, 10, (23, 2)), (1, 60, (1, 24))]:
        policy = build(
            "policy", "scissorhands", dict(pivotal_entries=pivotal, recent=recent, budget_share=0.25)
        )
        policy.begin(toys.SPEC, 100)
        assert (policy.pivotal_entries, policy.recent) == due
