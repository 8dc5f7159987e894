"""KVCache: it commits, drops and evicts exactly what a call asks for, and memory follows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.model.attention.per_head import HEAD_PAGE
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.column import EntryColumn
from decodescope.engine.model.stores.cache import PAGE, KVCache, LayerStore
from tests import toys

H, D = 2, 4
SPEC = ModelSpec("store", 2, 4, H, D, 16, 16, 11)


def rows(start: int, count: int, batch: int = 1) -> tuple[Tensor, Tensor]:
    """kv [2, B, H, count, D] and positions [B, count]; every number encodes its position, head and sequence."""
    at = torch.arange(start, start + count)
    kv = at[:, None] + torch.arange(D) / 8 + torch.arange(H)[:, None, None] * 1000
    kv = kv + torch.arange(batch)[:, None, None, None] * 10_000
    return torch.stack([kv, -kv]), at.expand(batch, count)


def tree(start: int, count: int, path: list[int], batch: int = 1) -> tuple[Tensor, Tensor]:
    """`count` rows: those on `path` continue the text at `start`; the others are next to them, marked by 0.5."""
    at = torch.tensor([start + sum(x < i for x in path) for i in range(count)])
    kv, _ = rows(0, count, batch)
    off = torch.tensor([0.0 if i in path else 0.5 for i in range(count)])
    kv = kv + torch.tensor([[[[1.0]]], [[[-1.0]]]])[..., None] * (at + off - torch.arange(count))[:, None]
    return kv, at.expand(batch, count)


def store(**more: Any) -> LayerStore:
    """An empty store of one layer."""
    return LayerStore(SPEC, 0, **more)


def filled(count: int, **more: Any) -> LayerStore:
    """A store with `count` committed entries."""
    made = store(**more)
    made.append(*rows(0, count, more.get("batch", 1)))
    made.commit(range(count))
    return made


def contents(made: LayerStore, head: int = 0, batch: int = 0) -> list[int]:
    """The positions that a head really holds, ascending, read from its keys; values and recorded positions must agree."""
    k, v = made.k[batch, head, : made.n], made.v[batch, head, : made.n]
    live = (
        torch.ones(made.n, dtype=torch.bool) if made.present_mask is None else made.present_mask[batch, head]
    )
    positions = made.positions().expand(made.kv.shape[1], H, made.n)[batch, head]
    told = k[:, 0] - head * 1000 - batch * 10_000
    assert torch.equal(v, -k)
    assert torch.equal(told[live], positions[live].float())
    return sorted(int(x) for x in told[live])


def storages(made: LayerStore) -> int:
    """Bytes of all storages that a store refers to."""
    tables = [
        made.kv,
        *made.columns.values(),
        *[
            x
            for x in (made._pos, made.heads and made.heads.kv, made.heads and made.heads._index)
            if x is not None
        ],
    ]
    return sum(x.untyped_storage().nbytes() for x in tables)


class Counted(TorchDispatchMode):
    """Counts tensor operations, except views."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops.append(str(func))
        return func(*args, **(kwargs or {}))


# ---- pending rows


def test_commit_keeps_the_named_rows_and_drops_the_others() -> None:
    made = filled(3)
    made.append(*tree(3, 6, [0, 2, 5]))
    assert made.pending_positions().tolist() == [[3, 4, 4, 5, 5, 5]]
    made.commit([0, 2, 5])
    assert (made.n, made.m, made.pending_positions()) == (6, 0, None)
    assert contents(made) == contents(made, head=1) == [0, 1, 2, 3, 4, 5]


def test_rollback_leaves_no_trace() -> None:
    made = filled(5)
    before = made.kv[:, :, :, :5].clone()
    made.append(*rows(5, 4))
    made.append(*rows(9, 2))
    assert made.m == 6
    made.rollback()
    assert (made.n, made.m) == (5, 0)
    assert torch.equal(made.kv[:, :, :, :5], before)


def test_truncate_forgets_positions() -> None:
    made = filled(9)
    made.append(*rows(9, 3))
    made.truncate(6)
    assert (made.n, made.m) == (6, 0)
    made.evict(torch.tensor([[[1], [2]]]))  # slot 1 now holds the newest position, 5
    made.truncate(4)
    assert contents(made, 0) == [0, 2, 3]
    assert contents(made, 1) == [0, 1, 3]


@pytest.mark.parametrize(("start", "count"), [(2, 3), (4, 5), (PAGE - 1, 70)])
def test_what_is_read_in_a_rewound_store_leaves_no_trace(start: int, count: int) -> None:
    held = filled(PAGE, columns={"mass": EntryColumn()})
    held.columns["mass"][:, :, :PAGE] = torch.rand(1, H, PAGE)
    before = held.kv[:, :, :, :PAGE].clone(), held.column("mass").clone()
    with held.rewind(start, count):
        held.append(*rows(500, count))
        assert held.k[0, 0, :, 0].tolist() == [*range(start), *range(500, 500 + count)]
    assert contents(held) == list(range(PAGE)) and held.m == 0
    assert torch.equal(held.kv[:, :, :, :PAGE], before[0]) and torch.equal(held.column("mass"), before[1])


def test_prune_pending_keeps_rows_pending() -> None:
    made = filled(2)
    made.append(*tree(2, 5, [0, 3]))
    made.prune_pending(torch.tensor([0, 3]))
    assert made.pending_positions().tolist() == [[2, 3]]
    made.append(*rows(4, 1))
    made.commit([0, 1, 2])
    assert contents(made) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("wrong", [[0, 3], [-1, 0], [0, 1, 1, 2]], ids=["beyond", "negative", "too many"])
def test_rows_that_are_not_pending_cannot_be_committed(wrong: list[int]) -> None:
    cache = KVCache(SPEC)
    for layer in cache.layers:
        layer.append(*rows(0, 3))
    with pytest.raises(ValueError, match="3 rows are pending"):
        cache.commit(wrong)
    assert all((layer.n, layer.m) == (0, 3) for layer in cache.layers), "a refused commit changes nothing"


def test_a_refused_commit_touches_no_layer() -> None:
    cache = KVCache(SPEC)
    cache.layers[0].append(*rows(0, 3))
    cache.layers[1].append(*rows(0, 2))
    with pytest.raises(ValueError, match="layer 1"):
        cache.commit([0, 1, 2])
    assert [layer.n for layer in cache.layers] == [0, 0]


def test_committing_a_chain_is_no_tensor_operation() -> None:
    cache = KVCache(SPEC, columns={"mass": EntryColumn()})
    for layer in cache.layers:
        layer.append(*rows(0, 8))
    before = [(layer.kv.data_ptr(), layer.kv[:, :, :, :8].clone()) for layer in cache.layers]
    with Counted() as count:
        cache.commit(range(5))
    assert count.ops == []
    assert cache.length == 5
    for layer, (place, content) in zip(cache.layers, before, strict=True):
        assert layer.kv.data_ptr() == place
        assert torch.equal(layer.kv[:, :, :, :8], content)
    with Counted() as count:
        cache.layers[0].append(*rows(5, 4))
        cache.layers[0].commit([0, 2])
    assert count.ops, "the guard: a path with a gap does move"


def test_commit_of_a_tree_path_equals_a_fresh_prefill() -> None:
    decoder = toys.decoder()
    draft = Draft([1, 2, 3, 4, 5], [ROOT, ROOT, 1, 1, 3])
    cache, fresh = (KVCache(decoder.spec) for _ in range(2))
    decoder.forward(Feed.causal_chain(toys.PROMPT, 0), cache)
    cache.commit(range(len(toys.PROMPT)))
    decoder.forward(draft.build_feed(7, len(toys.PROMPT)), cache)
    cache.commit([0, 2, 4, 5])  # the root, then nodes 1, 3, 4
    whole = [*toys.PROMPT, 7, 2, 4, 5]
    decoder.forward(Feed.causal_chain(whole, 0), fresh)
    fresh.commit(range(len(whole)))
    assert cache.length == fresh.length == len(whole)
    for ours, theirs in zip(cache.layers, fresh.layers, strict=True):
        torch.testing.assert_close(ours.k, theirs.k, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(ours.v, theirs.v, atol=1e-4, rtol=1e-4)
        assert torch.equal(ours.positions(), theirs.positions())


# ---- eviction against a brute-force reference


@pytest.mark.parametrize("even", [True, False], ids=["even heads", "uneven heads"])
@pytest.mark.parametrize("seed", range(6))
def test_random_histories_equal_a_reference_of_sets(seed: int, even: bool) -> None:  # noqa: C901, PLR0915
    """Over 160 operations the store equals a reference: per sequence and head a dict position -> column value.

    Where heads keep different numbers of entries, memory is laid out by head. While they are even, it never is.
    """
    g = torch.Generator().manual_seed(seed)

    def pick(n: int) -> int:
        return int(torch.randint(n, (1,), generator=g))

    made = store(batch=2, columns={"mass": EntryColumn(0.5), "words": EntryColumn(1, torch.int32, width=3)})
    made.evicted = []
    held: list[list[dict[int, float]]] = [[{} for _ in range(H)] for _ in range(2)]
    origin = [0, 1]  # the sequence from which each one's numbers come
    done = dict.fromkeys(["commit", "rollback", "evict", "keep", "truncate", "rows", "shrink"], 0)
    length = parted = 0
    for _ in range(160):
        what = [
            "commit",
            "commit",
            "commit",
            "rollback",
            "evict",
            "evict",
            "keep",
            "truncate",
            "rows",
            "shrink",
        ][pick(10)]
        done[what] += 1
        if what in ("commit", "rollback"):
            count = 1 + pick(30)
            path = [i for i in range(count) if pick(3)] if pick(2) else list(range(pick(count + 1)))
            kv, at = tree(length, count, path, 2)
            made.append(kv[:, origin], at)
            if what == "rollback":
                made.rollback()
                continue
            if pick(3) == 0:
                made.prune_pending(torch.tensor(path, dtype=torch.long))
            made.commit(range(len(path)) if made.m == len(path) else path)
            for b, heads in enumerate(held):
                for h, entries in enumerate(heads):
                    entries.update({length + i: 0.5 for i in range(len(path))})
                    for slot, position in enumerate(made.positions().expand(2, H, made.n)[b, h].tolist()):
                        if slot % 2 and position in entries:
                            entries[position] = float(slot + 100 * b + 10 * h)
                            made.column("mass")[b, h, slot] = entries[position]
                            made.column("words")[b, h, slot] = int(entries[position]) + torch.arange(3)
            length += len(path)
        elif what == "evict" and made.n > 2:
            gone = 1 + pick(made.n - 1) if pick(3) else 1
            index = torch.stack(
                [torch.stack([torch.randperm(made.n, generator=g)[:gone] for _ in range(H)])] * 2
            )
            index[1] = index[1].flip(0)
            same = pick(2) == 0
            if same:
                index = index[:1, :1].expand_as(index)
            drop(made, held, torch.zeros(2, H, made.n, dtype=torch.bool).scatter_(2, index, True))
            if same:
                made.evict_same(index[0, 0].tolist())
            else:
                made.evict(index)
        elif what == "keep" and made.n:
            keep = torch.rand(2, H, made.n, generator=g) < 0.8
            keep[:, :, 0] |= ~keep.any(2)
            if even:
                keep = torch.stack([torch.stack([keep[0, 0][torch.randperm(made.n, generator=g)]] * H)] * 2)
                keep[1] = keep[1].flip(1)
            drop(made, held, ~keep)
            made.keep_where(keep)
        elif what == "truncate":
            cuts = range(max(0, length - pick(12)), length + 1)
            length = next(
                x
                for x in cuts
                if not even or len({sum(p < x for p in e) for heads in held for e in heads}) == 1
            )
            made.truncate(length)
            for entries in (e for heads in held for e in heads):
                for position in [x for x in entries if x >= length]:
                    del entries[position]
        elif what == "rows":
            order = [pick(2), pick(2)]
            made.reorder(torch.tensor(order))
            held = [[dict(e) for e in held[b]] for b in order]
            origin = [origin[b] for b in order]
        elif what == "shrink":
            made.shrink()
        assert found(made, origin) == held
        parted += made.heads is not None
        assert made.nbytes() == storages(made) <= made.memory.peak
    assert min(done.values()) > 4, "the test needs every operation"
    assert parted == 0 if even else parted > 80


def drop(made: LayerStore, held: list[list[dict[int, float]]], gone: Tensor) -> None:
    """Remove the slots `gone` (bool [B, H, n]) from the reference."""
    positions = made.positions().expand(2, H, made.n)
    for b, h, slot in gone.nonzero().tolist():
        if positions[b, h, slot] >= 0:
            del held[b][h][int(positions[b, h, slot])]


def found(made: LayerStore, origin: list[int]) -> list[list[dict[int, float]]]:
    """The store's contents in the reference's form; keys and values are compared with the written numbers."""
    positions = made.positions().expand(2, H, made.n)
    live = torch.ones(2, H, made.n, dtype=torch.bool) if made.present_mask is None else made.present_mask
    wanted = positions[..., None] + torch.arange(D) / 8 + torch.arange(H)[:, None, None] * 1000
    wanted = wanted + torch.tensor(origin)[:, None, None, None] * 10_000
    assert torch.equal(made.k[live], wanted[live])
    assert torch.equal(made.v[live], -wanted[live])
    mass, words = made.column("mass"), made.column("words")
    as_written = torch.where(
        mass[..., None] == 0.5, 1, mass.int()[..., None] + torch.arange(3, dtype=torch.int32)
    )
    assert torch.equal(words[live], as_written[live])
    return [
        [
            {
                int(p): float(x)
                for p, x in zip(positions[b, h][live[b, h]], mass[b, h][live[b, h]], strict=True)
            }
            for h in range(H)
        ]
        for b in range(2)
    ]


def test_evict_touches_only_the_holes_and_the_tail() -> None:
    made = filled(50)
    before = made.k.clone()
    made.evict(torch.tensor([[[3, 47], [49, 48]]]))
    same = (made.k == before[:, :, :48]).all(3)[0]
    assert same[0].nonzero().flatten().tolist() == [x for x in range(48) if x not in (3, 47)]
    assert same[1].all(), "dropping the newest moves nothing"
    assert contents(made, 0) == [x for x in range(50) if x not in (3, 47)]


def test_evicted_positions_are_reported_without_dead_ones() -> None:
    made = filled(4)
    made.evicted = []
    made.keep_where(torch.tensor([[[True, True, True, True], [True, False, False, True]]]))
    assert [sorted(x) for x in made.evicted[0][0].tolist()] == [[-1] * 4, [-1, -1, 1, 2]]
    made.evict(torch.tensor([[[0], [3]]]))  # slot 3 of head 1 is already dead
    assert made.evicted[1][0, :, 0].tolist() == [0, -1]


@pytest.mark.parametrize("pending", [0, 1])
def test_what_cannot_be_evicted_is_refused(pending: int) -> None:
    made = filled(4)
    if pending:
        made.append(*rows(4, 1))
        with pytest.raises(ValueError, match="pending"):
            made.keep_where(torch.ones(1, H, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match="cannot evict"):
        made.evict(torch.arange(4 if pending else 5).expand(1, H, -1))


# ---- memory


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bytes_are_those_of_the_formula_and_of_the_storages(dtype: torch.dtype) -> None:
    made = filled(100, batch=3, dtype=dtype, columns={"mass": EntryColumn(), "age": EntryColumn(1.0)})
    S = made.capacity
    assert S % PAGE == 0
    entry = 2 * D * dtype.itemsize + 2 * 4
    assert made.nbytes() == 3 * H * S * entry
    made.evict(torch.zeros(3, H, 1, dtype=torch.long))
    assert made.nbytes() == 3 * H * S * (entry + 4), "positions have become explicit"
    keep = torch.ones(3, H, made.n, dtype=torch.bool)
    keep[0, 0, :5] = False
    made.keep_where(keep)
    made.shrink()
    made.shrink()
    assert made.heads is not None and made.kv.untyped_storage().nbytes() == 0, "heads keep different numbers"
    slots = sum(made.heads.rooms)
    assert slots == sum(-(-n // HEAD_PAGE) * HEAD_PAGE for n in made.heads.lengths) == 96 + 5 * 112
    assert made.nbytes() == slots * 2 * D * dtype.itemsize + 3 * H * S * (2 * 4 + 4)
    assert made.nbytes() == storages(made)


def test_capacity_grows_by_half() -> None:
    made, seen = store(), []
    for at in range(700):
        made.append(*rows(at, 1))
        made.commit([0])
        made.shrink()
        if not seen or seen[-1] != made.capacity:
            seen.append(made.capacity)
    assert seen == [
        16,
        32,
        48,
        80,
        128,
        192,
        288,
        432,
        656,
        992,
    ]  # 1.5 times, in pages; `shrink` leaves growth alone
    assert contents(made) == list(range(700))


def test_half_of_a_heads_entries_are_half_of_its_pages() -> None:
    """Measured from the storages: the other head's pages, and the columns that both heads share, do not change."""
    made = filled(640, columns={"mass": EntryColumn()})
    keep = torch.ones(1, H, 640, dtype=torch.bool)
    keep[0, 0, ::2] = False
    made.keep_where(keep)
    made.shrink()
    made.shrink()  # the prompt's room is returned after the next pass
    whole, before = made.nbytes(), made.bytes_by_head()
    page = HEAD_PAGE * 2 * D * 4
    assert made.heads.kv.untyped_storage().nbytes() == (20 + 40) * page
    keep = made.present_mask.clone()
    keep[0, 0, 40:200] = False
    made.keep_where(keep)
    made.shrink()
    assert made.heads.kv.untyped_storage().nbytes() == (10 + 40) * page and whole - made.nbytes() == 10 * page
    assert [x - y for x, y in zip(before, made.bytes_by_head(), strict=True)] == [10 * page, 0]
    assert sum(made.bytes_by_head()) == made.nbytes() == storages(made)
    assert len(contents(made, 0)) == 160 and len(contents(made, 1)) == 640


def test_memory_by_head_settles() -> None:
    """One head grows and one keeps its budget: buffers move once per page of rows, and little memory is free."""
    made = filled(200)
    keep = torch.ones(1, H, 200, dtype=torch.bool)
    keep[0, 0, 40:] = False
    made.keep_where(keep)
    buffer, moves, free = made.heads.kv, 0, 0
    for at in range(200, 440):
        made.append(*rows(at, 1))
        made.commit([0])
        keep = made.present_mask.clone()
        keep[0, 0, int(made.positions()[0, 0, :41].argmin())] = False
        made.keep_where(keep)
        made.shrink()
        moves, buffer = moves + (made.heads.kv is not buffer), made.heads.kv
        free = max(free, sum(made.heads.rooms) - sum(made.heads.lengths)) if at > 210 else 0
    assert (
        made.heads.lengths == [40, 440]
        and contents(made, 0) == list(range(400, 440))
        and free <= 4 * HEAD_PAGE
    )
    assert 0 < moves <= 2 + 240 // HEAD_PAGE


def test_heads_that_are_full_at_different_times_move_together() -> None:
    made = filled(104)
    keep = torch.ones(1, H, 104, dtype=torch.bool)
    keep[0, 0, 16:] = False
    made.keep_where(keep)
    made.shrink()
    made.shrink()
    buffer, moves = made.heads.kv, 0
    for at in range(104, 264):
        made.append(*rows(at, 1))
        made.commit([0])
        moves, buffer = moves + (made.heads.kv is not buffer), made.heads.kv
    assert made.heads.lengths == [176, 264] and 0 < moves <= 160 // HEAD_PAGE


def test_the_peak_counts_what_stands_side_by_side() -> None:
    made = filled(64)
    before = made.nbytes()
    made.append(*rows(64, 1))
    assert made.memory.peak == before + made.nbytes() > made.nbytes() == storages(made)
    cache = KVCache(SPEC)
    assert cache.nbytes == sum(map(storages, cache.layers)) == cache.memory.held == cache.memory.peak


@pytest.mark.parametrize("even", [True, False])
def test_what_is_written_over_entries_is_read_again(even: bool) -> None:
    made = filled(5, batch=2)
    keep = torch.ones(2, H, 5, dtype=torch.bool)
    keep[1, 1, :] = even
    made.keep_where(keep)
    due = made.k * 2
    made.write(0, due)
    made.append(*rows(5, 1, batch=2))
    assert (made.heads is None) is even and torch.equal(made.v[:, :, 5], -made.k[:, :, 5])
    for head in ((0, 0), (0, 1), (1, 0)):
        assert torch.equal(made.k[head][:5], due[head]) and torch.equal(made.v[head][:5], -due[head] / 2)


def test_heads_that_differ_are_reordered_with_what_is_pending() -> None:
    made = filled(9, batch=2, columns={"mass": EntryColumn()})
    keep = torch.ones(2, H, 9, dtype=torch.bool)
    keep[1, 0, :4] = False
    made.keep_where(keep)
    made.append(*rows(9, 2, batch=2))
    made.reorder(torch.tensor([1, 1, 0]))
    made.commit([0, 1])
    assert made.k.shape == (3, H, 11, D) and made.heads.lengths == [7, 11, 7, 11, 11, 11]
    assert [sorted(set(x) - {-1}) for x in made.positions()[:, 0].tolist()] == [[*range(4, 11)]] * 2 + [
        [*range(11)]
    ]
    assert (made.k[0][made.present_mask[0]] - made.k[1][made.present_mask[1]]).unique().tolist() == [0.0]
    made.truncate(0)
    assert made.heads is None and made.n == 0, "a text that begins anew is read by even heads"
    made.append(*rows(0, 3, batch=3))
    made.commit(range(3))
    assert contents(made, 1, 2) == [0, 1, 2] and made.nbytes() == storages(made)


def test_eviction_returns_memory() -> None:
    made = filled(1000, columns={"mass": EntryColumn()})
    full = made.nbytes()
    made.shrink()
    assert made.capacity == 1008, "nothing was dropped"
    made.evict(torch.arange(900).expand(1, H, 900))
    made.shrink()  # the prompt was the widest pass since the last call; otherwise it would be smaller still
    made.shrink()
    assert made.capacity <= 192
    assert made.nbytes() < full / 4
    assert contents(made) == list(range(900, 1000))


def test_what_one_eviction_frees_is_returned_once_the_prompts_last_chunk_is_behind() -> None:
    """The policy acts once, after the prompt. The next pass is narrow, so the chunk's room is returned too; growth stays."""
    made = store(columns={"mass": EntryColumn()})
    for at in (0, 512):
        made.append(*rows(at, 512))
        made.commit(range(512))
    made.evict(torch.arange(1000).expand(1, H, 1000))
    made.shrink()
    seen = []
    for at in range(1024, 1224):
        made.append(*rows(at, 1))
        made.commit([0])
        made.shrink()
        if not seen or seen[-1] != made.capacity:
            seen.append(made.capacity)
    assert seen == [32, 48, 80, 128, 192, 288]
    assert contents(made) == list(range(1000, 1224))


def test_trees_do_not_make_memory_go_up_and_down() -> None:
    """With a budget of 256 entries and a tree of 80 nodes at every step, the capacity settles."""
    made = filled(1000)
    made.evict(torch.arange(744).expand(1, H, 744))
    made.shrink()
    capacities = []
    for step in range(40):
        made.append(*rows(1000 + 3 * step, 81))
        made.commit([0, 1, 2])
        oldest = made.positions().topk(3, largest=False).indices
        made.evict(oldest)
        made.shrink()
        capacities.append(made.capacity)
    assert len(set(capacities[2:])) == 1
    assert capacities[-1] <= 256 + 81 + 2 * PAGE


# ---- beams, copies


def test_rows_reorders_and_widens() -> None:
    made = filled(5, batch=2, columns={"mass": EntryColumn()})
    made.column("mass")[1] = 7.0
    made.append(*rows(5, 2, batch=2))
    made.reorder(torch.tensor([1, 1, 0]))
    assert made.k.shape == (3, H, 7, D)
    assert made.pending_positions().shape == (3, 2)
    made.commit([1])
    assert made.column("mass")[:, 0, 0].tolist() == [7.0, 7.0, 0.0]
    assert (made.k[0] - made.k[2]).unique().tolist() == [10_000.0]
    made.append(*rows(6, 1, batch=3))
    made.commit([0])
    assert made.positions().shape == (3, 1, 7)
    made.evict(torch.tensor([0, 2, 4])[:, None, None].expand(3, H, 1))
    assert [made.positions()[b, 0].sort().values.tolist() for b in range(3)] == [
        [1, 2, 3, 4, 5, 6],
        [0, 1, 3, 4, 5, 6],
        [0, 1, 2, 3, 5, 6],
    ]


def test_a_copy_shares_nothing() -> None:
    cache = KVCache(SPEC)
    for layer in cache.layers:
        layer.append(*rows(0, 3))
    cache.commit(range(3))
    other = cache.copy()
    other.layers[0].kv.zero_()
    other.truncate(1)
    assert contents(cache.layers[0]) == [0, 1, 2]
    assert (cache.length, cache.fullest_length, other.length) == (3, 3, 1)
