"""Merging in a store: weighted sums of keys and values, one head at a time, and the record of the merges."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.methods.policies.h2o import H2O
from decodescope.engine.model.layers.column import MERGED, TOKEN, EntryColumn
from decodescope.engine.model.stores.cache import LayerStore
from decodescope.engine.model.stores.merge import merge_entries
from decodescope.engine.trace import check, open_trace
from tests import toys

B, H, D, N = 2, 2, 4, 9
SPEC = ModelSpec("store", 2, 4, H, D, 16, 16, 11)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_target_becomes_a_weighted_sum_and_the_sources_leave(dtype: torch.dtype) -> None:
    """Several sources go into one target, one into another, and one is dropped; each head has its own."""
    g = torch.Generator().manual_seed(3)
    columns = {"weight": EntryColumn(1.0), "kind": EntryColumn(TOKEN, torch.uint8), "mass": EntryColumn()}
    store = LayerStore(SPEC, 0, batch=B, columns=columns, dtype=dtype)
    store.append(torch.randn(2, B, H, N, D, generator=g).to(dtype), torch.arange(N).expand(B, N))
    store.commit(range(N))
    # slot 0 now holds position 8, so slots differ from positions
    store.evict(torch.tensor([0]).expand(B, H, 1))
    store.column("mass").copy_(torch.rand(B, H, N - 1, generator=g))
    store.evicted, store.merged = [], []
    before, mass = (store.kv.clone().double(), store.column("mass").clone())
    source = torch.tensor([[[1, 2, 5, 7], [0, 3, 4, 6]], [[0, 1, 2, 3], [7, 6, 5, 4]]])
    target = torch.tensor([[[0, 0, 3, 4], [1, 1, 1, 7]], [[4, 5, 5, 6], [0, 1, 1, 1]]])
    weights = torch.rand(B, H, 4, generator=g) + 0.1
    weights[:, :, 3] = 0
    own = torch.ones(B, H, N - 1).scatter(2, target[:, :, :3], 0.25)
    due = {}
    for b in range(B):
        for h in range(H):
            at = store.positions()[b, h].tolist()
            for slot in set(range(N - 1)) - set(source[b, h].tolist()):
                came = [i for i in range(3) if target[b, h, i] == slot]
                kv = before[:, b, h, slot] * float(own[b, h, slot])
                kv = kv + sum(before[:, b, h, source[b, h, i]] * float(weights[b, h, i]) for i in came)
                due[b, h, at[slot]] = (kv, 1.0 + len(came), MERGED if came else TOKEN, mass[b, h, slot])
    places = store.positions()
    merge_entries(store, source, target, weights, own, similarity=weights / 2)
    assert store.n == 4 and len(due) == B * H * 4
    for b in range(B):
        for h in range(H):
            for slot, position in enumerate(store.positions()[b, h].tolist()):
                kv, stands, kind, worth = due[b, h, position]
                assert torch.allclose(
                    store.kv[:, b, h, slot].double(), kv, rtol=1e-2 if dtype == torch.bfloat16 else 1e-6
                )
                assert (
                    store.column("weight")[b, h, slot] == stands and store.column("kind")[b, h, slot] == kind
                )
                assert store.column("mass")[b, h, slot] == worth
    (told,) = store.merged
    assert torch.equal(told.source, places.gather(2, source))
    assert (
        torch.equal(told.target[:, :, :3], places.gather(2, target)[:, :, :3])
        and (told.target[:, :, 3] == -1).all()
    )
    assert torch.equal(told.weight, weights) and torch.equal(told.similarity, weights / 2)
    assert torch.equal(store.evicted[0].long(), places.gather(2, source)), "dropped or merged, they left"


class Folding(H2O):
    """H2O, except that in the first KV head a leaving entry is merged into the newest one."""

    does = frozenset({"evict", "merge"})

    @property
    def name(self) -> str:
        return "h2o"

    def discard(self, store: LayerStore, slots: Tensor) -> None:
        newest = store.positions().argmax(-1, keepdim=True).expand_as(slots)
        weights = torch.full(slots.shape, 0.25)
        weights[:, 1] = 0
        merge_entries(store, slots, newest, weights, torch.ones(slots.shape[0], slots.shape[1], store.n))


def test_the_trace_says_what_became_part_of_what(tmp_path: Path) -> None:
    method = toys.method(drafter=("token_recycling", {"nodes": "16"}))
    method.policy = Folding(heavy=4, recent=4)
    session = toys.decode(method, count=30)
    trace = open_trace(session.sink.save(tmp_path / "run.dstrace"), verify=True)
    assert check(trace).ok
    read, mergers = 0, 0
    for change in [trace.prefill.cache[0], *(step.cache[0] for step in trace.steps)]:
        read += change.appended
        if change.merged is not None:
            gone = [] if change.evicted is None else change.evicted.tolist()
            all_heads = [] if change.evicted_all is None else change.evicted_all.tolist()
            gone += [[i, h, p] for i in range(3) for h in range(2) for p in all_heads]
            assert sorted(row[:3] for row in change.merged.tolist()) == sorted(gone)
            for row, by in zip(change.merged.tolist(), change.merged_by.tolist(), strict=True):
                assert (row[3], by[1]) == ((read - 1, 0.25) if row[1] == 0 else (-1, 0.0))
            mergers += 1
    assert mergers > 10
