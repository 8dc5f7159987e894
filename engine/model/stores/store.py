"""LayerStore: the keys and values of one layer, and the columns that travel with each entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec

from ..attention.per_head import HeadStore
from ..attention.segments import DenseSegment, Segment
from ..layers.column import EntryColumn, expand_index
from ..layers.commit_plan import CommitPlan, are_pending
from ..layers.memory import Memory
from .pages import PageBounds

PAGE = 16  # entries; capacities are multiples of it


def plan_hole_moves(slots: Sequence[int], n: int) -> tuple[list[int], list[int]]:
    """The holes that dropping `slots` of n leaves before what is kept, and the newest slots that move there, one each."""
    kept, dropped = n - len(slots), set(slots)
    return [slot for slot in slots if slot < kept], [slot for slot in range(kept, n) if slot not in dropped]


class LayerStore:
    """K/V of one layer. The first `n` slots are committed; the next `m` are pending, awaiting a verdict.

    kv:       float [2, B, H_kv, S, D]: keys, then values; S is the capacity
    heads:    keys and values once KV heads hold different numbers of entries; S of `kv` is then 0, and n counts the entries
              of the head that holds most: `present` marks the slots of the others that are empty
    columns:  name -> [B, H_kv, S], or [B, H_kv, S, width]: what a policy knows about each entry (attention mass, ...)

    While nothing has been evicted slot i holds position i, and no position is stored. Eviction makes them explicit, and
    fills the holes with the newest entries: slots are in no order, and `positions` holds their positions.
    """

    def __init__(
        self,
        spec: ModelSpec,
        layer: int,
        *,
        batch: int = 1,
        columns: Mapping[str, EntryColumn] | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        memory: Memory | None = None,
    ):
        self.layer, self.memory = layer, Memory(memory)
        self.heads: HeadStore | None = None
        heads = spec.kv_at(layer)
        self._shape = (batch, heads, spec.head_dim)
        self._fill = {name: x.fill for name, x in (columns or {}).items()}
        self.kv = torch.empty(2, batch, heads, PAGE, spec.head_dim, dtype=dtype, device=device)
        self.columns = {name: x.table(batch, heads, PAGE, device) for name, x in (columns or {}).items()}
        self._pos: Tensor | None = None  # int32 [B, H_kv, S], once something was evicted
        self._pending: Tensor | None = None  # int64 [B, m]: positions of the pending rows
        self._widest = 0  # most rows that were pending since the last `shrink`
        self._freed = False  # entries were dropped and their memory has not all been returned
        self._bounds: PageBounds | None = None  # once they were asked for
        self.n = self.m = 0
        self.missing: int | None = None  # first position of the text that never gets an entry here
        self._origin: float | None = None  # what to enter in the column "origin" where heads differ
        self.evicted: list[Tensor] | None = (
            None  # a list: positions int [B, H_kv, e] that left are added (-1: none)
        )
        self.merged: list[Any] | None = None  # a list: what `merge` does is added
        self.ranked: list[Any] | None = (
            None  # a list: what entries were worth at the last cut, where a policy ranks them
        )
        self.memory.take(*(table for table, _ in self._tables()))

    @property
    def batch(self) -> int:
        """Sequences, B."""
        return self._shape[0]

    @property
    def capacity(self) -> int:
        """Slots for which memory is held, those of the fullest head where heads differ."""
        return self.kv.shape[3] if self._pos is None else self._pos.shape[2]

    @property
    def k(self) -> Tensor:
        """float [B, H_kv, n + m, D]: the keys, committed and pending; a view, or a copy where heads differ."""
        return (
            self.kv[0, :, :, : self.n + self.m]
            if self.heads is None
            else self.heads.padded_copy(0, self.n, self.m)
        )

    @property
    def v(self) -> Tensor:
        """float [B, H_kv, n + m, D]: the values, committed and pending; a view, or a copy where heads differ."""
        return (
            self.kv[1, :, :, : self.n + self.m]
            if self.heads is None
            else self.heads.padded_copy(1, self.n, self.m)
        )

    def write(self, which: int, x: Tensor) -> None:
        """Overwrite the committed keys (which = 0) or values (1) with x float [B, H_kv, n, D]."""
        if self.heads is None:
            self.kv[which, :, :, : self.n] = x
        else:
            self.heads.write(which, x)

    def gather_entries(self, slots: Tensor) -> Tensor:
        """float [2, B, H_kv, U, D]: keys and values of the entries `slots` (int64 [B, H_kv, U]); no other one is read."""
        assert self.heads is None and not self.is_segmented, (
            "entries are read apart where all heads hold as many, in one tensor"
        )
        rows, capacity = self.kv.shape[1] * self.kv.shape[2], self.kv.shape[3]
        at = slots.flatten(0, 1) + capacity * torch.arange(rows, device=slots.device)[:, None]
        return self.kv.flatten(1, 3).index_select(1, at.flatten()).view(2, *slots.shape, self.kv.shape[4])

    def bounds(self) -> Tensor:
        """float [2, B, H_kv, U, D]: of each channel of the keys in the U pages that are full of committed entries, the smallest
        and the largest number. Kept from the first call on. Nothing was evicted (`in_order`)."""
        assert self.in_order, "a page is one of the text"
        if self._bounds is None:
            self._bounds = PageBounds(self.k, PAGE, self.memory)
        return self._bounds.bounds_of(self.k[:, :, : self.n])

    @property
    def is_segmented(self) -> bool:
        """True if its entries are attended to in several segments rather than as `k` and `v`."""
        return False

    def segments(self, mask: Tensor | None) -> list[Segment]:
        """The segments, committed and pending entries; mask: bool [B or 1, H_kv or 1, T, n + m], as one of a Segment."""
        return [DenseSegment(k=self.k, v=self.v, mask=mask)]

    @property
    def in_order(self) -> bool:
        """True if slot i still holds position i: nothing was ever evicted, and all was committed in the text's order."""
        return self._pos is None

    @property
    def present_mask(self) -> Tensor | None:
        """bool [B, H_kv, n]: False after the last entry of a head; None: all heads hold as many."""
        return None if self.heads is None else self.heads.present_mask(self.n)

    @property
    def lengths(self) -> list[int]:
        """Committed entries of each KV head, of sequence 0."""
        heads = self._shape[1]
        return [self.n] * heads if self.heads is None else self.heads.lengths[:heads]

    def positions(self) -> Tensor:
        """int64 [B, H_kv, n]: the original position of each committed slot, -1 where a head holds none; one head represents all
        while in order."""
        if self._pos is None:
            return torch.arange(self.n, device=self.kv.device).expand(self._shape[0], 1, self.n)
        pos, present = self._pos[:, :, : self.n].long(), self.present_mask
        return pos if present is None else pos.masked_fill(~present, -1)

    def column(self, name: str) -> Tensor:
        """[B, H_kv, n], or [B, H_kv, n, width]: a view of a column over the committed entries."""
        return self.columns[name][:, :, : self.n]

    def _tables(self) -> list[tuple[Tensor, int]]:
        """Every per-entry tensor with the axis of its slots."""
        tables = [(self.kv, 3)] if self.heads is None else []
        return tables + [(x, 2) for x in (*self.columns.values(), self._pos) if x is not None]

    def _resize(self, slots: int) -> None:
        """Hold memory for exactly `slots` entries (rounded up to pages); moves what is there."""
        slots = -(-slots // PAGE) * PAGE
        used = self.n + self.m

        def moved(old: Tensor, axis: int) -> Tensor:
            new = old.new_empty(*old.shape[:axis], slots, *old.shape[axis + 1 :])
            new.narrow(axis, 0, used).copy_(old.narrow(axis, 0, used))
            self.memory.take(new)
            self.memory.give(old)
            return new

        if self.heads is None:
            self.kv = moved(self.kv, 3)
        self.columns = {name: moved(x, 2) for name, x in self.columns.items()}
        if self._pos is not None:
            self._pos = moved(self._pos, 2)

    def append(self, kv: Tensor, positions: Tensor) -> None:
        """Write T pending rows: kv float [2, B, H_kv, T, D] at original `positions` (int64 [B, T])."""
        start, m = self.n + self.m, self.m
        self.reserve(positions)
        if self.heads is None:
            self.kv.narrow(3, start, kv.shape[3]).copy_(kv)
        else:
            self.heads.append(kv, m)

    def reserve(self, positions: Tensor) -> None:
        """Make room for T pending rows at original `positions` (int64 [B, T]). The caller writes their keys and values into the
        slots of `kv` from n + m on, as these were before."""
        start, rows = self.n + self.m, positions.shape[1]
        if start + rows > self.capacity:
            self._resize(max(start + rows, self.capacity * 3 // 2))
            self._freed = False  # nothing was free
        if self.heads is None:
            if self._pos is not None:
                self._pos[:, :, start : start + rows] = positions[:, None]
            for name, table in self.columns.items():
                table[:, :, start : start + rows] = self._fill[name]
        self._pending = positions if self.m == 0 else torch.cat([self._pending, positions], 1)  # type: ignore[list-item] # set while m > 0
        self.m += rows
        self._widest = max(self._widest, self.m)

    def pending_positions(self) -> Tensor | None:
        """int64 [B, m]: original positions of the pending rows; None when there are none."""
        return self._pending if self.m else None

    def newest_rows(self, rows: int) -> Tensor:
        """float [2, B, H_kv, rows, D]: keys and values of the newest pending rows, a copy or a view."""
        end = self.n + self.m
        if type(self) is LayerStore and self.heads is None:
            return self.kv[:, :, :, end - rows : end]
        return torch.stack([self.k[:, :, end - rows :], self.v[:, :, end - rows :]])

    def mark_origin(self, origin: int, rows: int, which: Tensor | None = None) -> None:
        """Enter in the column "origin" how the newest `rows` pending ones were made; which: int64 [E], those of them alone."""
        first = self.n + self.m - rows
        if self.heads is not None:
            self._origin = origin
        elif which is None:
            self.columns["origin"][:, :, first : first + rows] = origin
        else:
            self.columns["origin"][:, :, first + which] = origin

    def _move(self, moving: CommitPlan) -> None:
        if self.heads is not None:
            return self.heads.move_pending(moving.rows, moving.first)
        first = self.n + moving.first
        for table, axis in self._tables():
            for to, row in enumerate(moving.few, first):
                table.select(axis, to).copy_(table.select(axis, self.n + row))
            if not moving.few:
                table.narrow(axis, first, moving.count).copy_(table.index_select(axis, moving.slots(self.n)))

    def commit(self, rows: Sequence[int]) -> None:
        """Keep the pending rows `rows`, in ascending order, and drop the other pending ones.

        They continue the text: their positions follow each other and what was committed before, as those of a path in a tree
        do. In a store that tracks positions (`track_positions`) they may have any position. A prefix of the pending rows moves
        nothing. Raises ValueError if a row is not pending.
        """
        self.check_pending(rows)
        self.keep(rows, CommitPlan.of(rows, self.kv.device))

    def keep(self, rows: Sequence[int], moving: CommitPlan | None) -> None:
        """`commit` of rows that are pending; `moving` says which of them move."""
        if moving is not None:
            self._move(moving)
        if self.heads is not None:
            self._enter(self.heads, rows)
        self.n += len(rows)
        self.m = 0
        self._pending = None

    def _enter(self, heads: HeadStore, rows: Sequence[int]) -> None:
        """Positions and columns of the pending `rows` after what each head holds."""
        assert self._pending is not None and self._pos is not None
        at = heads.counts[..., None] + torch.arange(len(rows), device=self.kv.device)  # [B, H_kv, R]
        self._pos.scatter_(2, at, self._pending[:, None, list(rows)].expand(at.shape).int())
        for name, table in self.columns.items():
            fill = self._origin if name == "origin" and self._origin is not None else self._fill[name]
            table.scatter_(2, expand_index(at, table, 2), fill)
        self._origin = None
        heads.commit(len(rows))

    def check_pending(self, rows: Sequence[int]) -> None:
        """Raise ValueError if one of `rows`, ascending, is not pending."""
        if not are_pending(rows, self.m):
            raise ValueError(
                f"layer {self.layer}: rows {rows[0]} to {rows[-1]} cannot be kept, {self.m} rows are pending."
            )

    def prune_pending(self, rows: Tensor) -> None:
        """Keep only the pending rows `rows` (int64 [R], ascending), which stay pending."""
        self._move(CommitPlan(0, rows, self.kv.device))
        assert self._pending is not None
        self._pending, self.m = self._pending[:, rows], len(rows)

    def rollback(self, keep: int = 0) -> None:
        """Drop the pending rows after the first `keep`."""
        if self._pending is not None and keep < self.m:
            self.m, self._pending = keep, self._pending[:, :keep] if keep else None

    def release(self) -> None:
        """Drop every pending row; the next `shrink` returns what they took."""
        self.rollback()
        self._widest, self._freed = 0, True

    @contextmanager
    def rewind(self, start: int, rows: int) -> Iterator[None]:
        """The store as it was when it held `start` entries, for at most `rows` further rows; on leaving they are forgotten and
        what they overwrote is back. Nothing was evicted (`in_order`), and nothing is pending."""
        assert self._pos is None and self.m == 0 and start <= self.n, (
            "entries are in order, and none is pending"
        )
        n, over = self.n, min(rows, self.n - start)
        before = [table.narrow(axis, start, over).clone() for table, axis in self._tables()]
        self.n = start
        try:
            yield
        finally:
            self.rollback()
            self.n = n
            if self._bounds is not None:
                self._bounds.truncate(start)
            for (table, axis), old in zip(self._tables(), before, strict=True):
                table.narrow(axis, start, over).copy_(old)

    def track_positions(self) -> None:
        """From here on keep the position of each entry: what is committed need not continue the text."""
        pos = self._position_table()
        if self._pending is not None and self.heads is None:
            pos[:, :, self.n : self.n + self.m] = self._pending[:, None]

    def mark_missing(self, position: int) -> None:
        """It gets no entry of the text's `position` and perhaps of some after it."""
        self.missing = position if self.missing is None else min(position, self.missing)
        self.track_positions()

    def _position_table(self) -> Tensor:
        if self._pos is None:
            batch, heads, _ = self._shape
            self._pos = torch.zeros(batch, heads, self.capacity, dtype=torch.int32, device=self.kv.device)
            self._pos[:, :, : self.n] = torch.arange(self.n, dtype=torch.int32, device=self.kv.device)
            self.memory.take(self._pos)
        return self._pos

    def evict(self, index: Tensor) -> None:
        """Drop the committed slots `index` (int64 [B, H_kv, e], e different slots per head); `shrink` returns memory.

        The e newest slots close the holes: 2 e rows are touched, however many are kept. Nothing may be pending. Where heads
        differ, a slot after the last of a head names no entry.
        """
        gone = index.shape[2]
        if gone == 0:
            return
        if self.m or gone > self.n:
            raise ValueError(
                f"layer {self.layer}: cannot evict {gone} of {self.n} entries with {self.m} pending."
            )
        if self.heads is not None:
            stays = torch.ones(*self._shape[:2], self.n, dtype=torch.bool, device=index.device)
            return self.keep_where(stays.scatter_(2, index, False))
        pos = self._position_table()
        if self.evicted is not None:
            self.evicted.append(pos.gather(2, index))
        kept = self.n - gone
        if gone == 1:
            holes, tail = index, torch.full_like(index, kept)
        else:
            holes = index.sort(dim=2).values  # those below `kept` come first
            dropped = torch.zeros(*index.shape[:2], gone + 1, dtype=torch.bool, device=index.device)
            dropped.scatter_(2, torch.where(holes < kept, gone, holes - kept), True)
            # the survivors come first
            tail = dropped[:, :, :gone].to(torch.int8).argsort(dim=2, stable=True) + kept
        # rank by rank: survivor r goes to hole r; after the last survivor both lists name the same dropped slots
        for table, axis in self._tables():
            at, to = expand_index(tail, table, axis), expand_index(holes, table, axis)
            table.scatter_(axis, to, table.gather(axis, at))
        self.n, self._freed = kept, True

    def evict_same(self, slots: Sequence[int]) -> None:
        """Drop the committed slots `slots`, different ones, the same in every sequence and head: `evict` for what is
        known without asking the device, in a third of the operations."""
        if not slots:
            return
        if self.m or len(slots) > self.n:
            raise ValueError(
                f"layer {self.layer}: cannot evict {len(slots)} of {self.n} entries with {self.m} pending."
            )
        if self.heads is not None:
            return self.evict(torch.tensor(slots, device=self.kv.device).expand(*self._shape[:2], -1))
        pos = self._position_table()
        if self.evicted is not None:
            self.evicted.append(pos[:, :, list(slots)])
        kept, (holes, tail) = self.n - len(slots), plan_hole_moves(slots, self.n)
        for table, axis in self._tables() if holes else []:
            if len(holes) == 1:
                table.select(axis, holes[0]).copy_(table.select(axis, tail[0]))
            else:
                to, at = (torch.tensor(x, device=table.device) for x in (holes, tail))
                table.index_copy_(axis, to, table.index_select(axis, at))
        self.n, self._freed = kept, True

    def keep_where(self, keep: Tensor) -> None:
        """Keep the committed slots marked in `keep` (bool [B, H_kv, n]); heads may keep different numbers, and each then has
        memory for what it holds. Nothing may be pending.

        The newest slots of a head close its holes.
        """
        if self.m:
            raise ValueError(f"layer {self.layer}: cannot evict with {self.m} rows pending.")
        pos = self._position_table()
        if (present := self.present_mask) is not None:
            keep = keep & present
        lengths = keep.sum(2)
        most = int(lengths.max())
        slot, even = torch.arange(self.n, device=keep.device), bool((lengths == most).all())
        if self.evicted is not None:
            stays = keep if present is None else keep | ~present
            self.evicted.append(pos[:, :, : self.n].masked_fill(stays, -1))
        # as many in a head as survivors after them
        holes = (~keep & (slot < lengths[..., None])).nonzero(as_tuple=True)
        tail = (keep & (slot >= lengths[..., None])).nonzero(as_tuple=True)
        for table, axis in self._tables():
            by_entry = table.movedim(0, -1) if axis == 3 else table  # [B, H_kv, S, ...]
            by_entry[holes] = by_entry[tail]
        if self.heads is not None:
            self.heads.keep(tail, holes, lengths)
        elif not even:
            old, self.kv = self.kv, self.kv[:, :, :, :0].clone()
            self.heads = HeadStore(old, lengths, self.memory, self._widest)
            self.memory.give(old)
        if most == 0 and self.heads is not None:  # a new text begins
            self.heads.release()
            self.kv, self.heads = self.kv.new_empty(*self.kv.shape[:3], self.capacity, self._shape[2]), None
            self.memory.take(self.kv)
        self.n, self._freed = most, True

    def truncate(self, length: int) -> None:
        """Forget every entry at position >= `length`, and what is pending."""
        self.rollback()
        if self.missing is not None and length <= self.missing:
            self.missing = None
        if self._bounds is not None:
            self._bounds.truncate(length)
        if self._pos is None or (length <= 0 and self.heads is None):
            self._freed |= length < self.n
            self.n = min(self.n, max(length, 0))
            return
        inside = self._pos[:, :, : self.n] < length
        if not bool(inside.all()):
            self.keep_where(inside)

    def shrink(self) -> None:
        """Return memory, once entries were dropped, when two pages more are free than the widest recent pass needs.

        What a wide pass holds back, such as a prompt's last chunk, is returned by a later call. Where nothing was
        dropped the free slots are those that growing by half has just made.
        """
        if self._freed:
            used = self.n + self.m
            needed = used + self._widest
            if self.capacity - needed >= 2 * PAGE:
                self._resize(max(needed, 1))
            more = self.heads is not None and self.heads.shrink(self.m, self._widest)
            self._freed = more or self.capacity - used >= 2 * PAGE
        self._widest = self.m

    def reorder(self, order: Tensor) -> None:
        """Make sequence b a copy of sequence order[b] (int64 [B']): beam search's reordering and widening."""
        before = [table for table, _ in self._tables()]
        self._shape = (len(order), *self._shape[1:])
        self.kv = self.kv.index_select(1, order)
        self.columns = {name: x.index_select(0, order) for name, x in self.columns.items()}
        self._pos = None if self._pos is None else self._pos.index_select(0, order)
        self._pending = None if self._pending is None else self._pending.index_select(0, order)
        self.memory.take(*(table for table, _ in self._tables()))
        self.memory.give(*before)
        if self.heads is not None:
            self.heads.reorder(order, self.m)
        if self._bounds is not None:
            self._bounds.reorder(order)

    def nbytes(self) -> int:
        """Bytes of the storages that this layer really holds."""
        return self.memory.held

    def bytes_by_head(self) -> list[int]:
        """`nbytes` by KV head: its pages, and an even part of the tables that all of them share."""
        shared = self.nbytes() if self.heads is None else self.nbytes() - sum(self.heads.bytes_by_head())
        own = [0] * self._shape[1] if self.heads is None else self.heads.bytes_by_head()
        return [x + shared // len(own) for x in own]
