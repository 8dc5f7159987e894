"""HeadStore: keys and values of a layer with a different number of entries for each KV head, each in its own pages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from ..layers.memory import Memory

HEAD_PAGE = 16  # entries; a head's memory is a multiple of it


class HeadStore:
    """One buffer of all heads. The entries of a head are contiguous: its committed ones, then the m pending ones.

    kv:      float [2, N, D]: keys, then values
    lengths: committed entries of each head, the heads of one sequence after those of the one before; counts: the same as
             int64 [B, H_kv]
    rooms:   slots of each head, in whole pages

    A head reads a slice of the buffer, so nothing is copied to attend. For that, a head that is full moves all of them to a
    new buffer, where each has a page to spare: with one row a pass this happens every sixteen passes.
    """

    def __init__(self, kv: Tensor, lengths: Tensor, memory: Memory, spare: int):
        """From even heads: kv float [2, B, H_kv, S, D], with the first `lengths` (int64 [B, H_kv]) entries of each head kept;
        room for `spare` pending rows."""
        self._shape, self.memory = (lengths.shape[0], lengths.shape[1]), memory
        self.lengths: list[int] = lengths.flatten().tolist()
        self._index: Tensor | None = None
        self.kv = kv.flatten(1, 3)
        self._reallocate(
            [kv.shape[3] * i for i in range(len(self.lengths))],
            0,
            [self.round_to_pages(n + spare) for n in self.lengths],
        )

    @staticmethod
    def round_to_pages(entries: int) -> int:
        """Slots of the pages that hold `entries`, one page at least."""
        return max(1, -(-entries // HEAD_PAGE)) * HEAD_PAGE

    def _reallocate(self, starts: Sequence[int], m: int, rooms: list[int]) -> None:
        """A new buffer in which the heads have `rooms`; in the present one they begin at `starts`, with m pending rows each."""
        new = self.kv.new_zeros(2, sum(rooms), self.kv.shape[2])
        self.memory.take(new)
        begins = [0, *accumulate(rooms)][:-1]
        for old, begin, n in zip(starts, begins, self.lengths, strict=True):
            new[:, begin : begin + n + m] = self.kv[:, old : old + n + m]
        self.kv = new
        self.starts = begins
        self.rooms = rooms
        self._update_counts()

    def _update_counts(self) -> None:
        """Lengths or places have changed."""
        self._free = min(room - n for room, n in zip(self.rooms, self.lengths, strict=True))
        both = torch.tensor([self.lengths, self.starts], device=self.kv.device)
        self.counts, self._starts = both.view(2, *self._shape)
        self._ends = self._starts + self.counts
        self._set_index(None)

    def resize(self, m: int, rooms: list[int]) -> None:
        """Hold `rooms` slots for the heads; moves what is there."""
        old = self.kv
        self._reallocate(self.starts, m, rooms)
        self.memory.give(old)

    def append(self, kv: Tensor, m: int) -> None:
        """Write T rows after the m pending ones: kv float [2, B, H_kv, T, D]."""
        rows = kv.shape[3]
        if m + rows > self._free:
            self.resize(m, [self.round_to_pages(n + m + rows) + HEAD_PAGE for n in self.lengths])
        at = self._ends[..., None] + torch.arange(m, m + rows, device=self._ends.device)
        self.kv.index_copy_(1, at.flatten(), kv.flatten(1, 3))
        self._set_index(None)

    def move_pending(self, source: Tensor, start: int) -> None:
        """Copy the pending rows `source` (int64 [R]) to the pending places start, start + 1, ..."""
        to = torch.arange(start, start + len(source), device=source.device)
        self.move((self._ends[..., None] + source).flatten(), (self._ends[..., None] + to).flatten())

    def move(self, source: Tensor, to: Tensor) -> None:
        """Copy slots of the buffer, int64 [E] each."""
        self.kv.index_copy_(1, to, self.kv.index_select(1, source))
        self._set_index(None)

    def commit(self, count: int) -> None:
        """The first `count` pending rows are committed."""
        self.lengths = [n + count for n in self.lengths]
        self._update_counts()

    def keep(self, source: tuple[Tensor, ...], to: tuple[Tensor, ...], lengths: Tensor) -> None:
        """Copy entries within their heads, (sequence, head, slot) int64 [E] each. Afterwards each head has `lengths` entries
        (int64 [B, H_kv])."""
        self.move(self._starts[source[:2]] + source[2], self._starts[to[:2]] + to[2])
        self.lengths = lengths.flatten().tolist()
        self._update_counts()

    def shrink(self, m: int, spare: int) -> bool:
        """Return memory if more than a page per head is free in addition to `spare` pending rows. True if as much is still
        free."""
        needed = [self.round_to_pages(n + max(m, spare)) for n in self.lengths]
        if sum(self.rooms) - sum(needed) > HEAD_PAGE * len(needed):
            self.resize(m, needed)
        return sum(self.rooms) - sum(self.round_to_pages(n + m) for n in self.lengths) > HEAD_PAGE * len(
            needed
        )

    def reorder(self, order: Tensor, m: int) -> None:
        """Make sequence b a copy of sequence order[b] (int64 [B']), with its m pending rows."""
        heads = self._shape[1]
        chosen = [b * heads + h for b in order.tolist() for h in range(heads)]
        old, rooms = self.kv, [self.rooms[i] for i in chosen]
        self._shape, self.lengths = (len(order), heads), [self.lengths[i] for i in chosen]
        self._reallocate([self.starts[i] for i in chosen], m, rooms)
        self.memory.give(old)

    def head(self, b: int, h: int, m: int) -> Tensor:
        """float [2, n + m, D]: a view of the keys and values of one head."""
        i = b * self._shape[1] + h
        return self.kv[:, self.starts[i] : self.starts[i] + self.lengths[i] + m]

    def padded_copy(self, which: int, n: int, m: int) -> Tensor:
        """float [B, H_kv, n + m, D]: a copy of the keys (which = 0) or values (1): the committed ones of a head, its last one
        again up to slot n, then the pending ones."""
        if self._index is None or self._index.shape[2] != n + m:
            slots, last = torch.arange(max(n, m), device=self.kv.device), (self.counts - 1).clamp(min=0)
            held = self._starts[..., None] + torch.minimum(slots[:n], last[..., None])
            self._set_index(torch.cat([held, self._ends[..., None] + slots[:m]], 2))
        index = self._index
        assert index is not None
        return self.kv[which].index_select(0, index.flatten()).view(*index.shape, self.kv.shape[2])

    def _set_index(self, index: Tensor | None) -> None:
        """Keep the slots of a copy, int64 [B, H_kv, n + m], until entries or places change."""
        if index is not None:
            self.memory.take(index)
        if self._index is not None:
            self.memory.give(self._index)
        self._index = index

    def write(self, which: int, x: Tensor) -> None:
        """Overwrite the committed keys (which = 0) or values (1) with x float [B, H_kv, n, D], as `padded` has them."""
        head, slot = self.present_mask(x.shape[2]).flatten(0, 1).nonzero(as_tuple=True)
        self.kv[which, self._starts.flatten()[head] + slot] = x.flatten(0, 1)[head, slot].to(self.kv.dtype)

    def present_mask(self, n: int) -> Tensor:
        """bool [B, H_kv, n]: whether a head has that many committed entries."""
        present: Tensor = torch.arange(n, device=self.kv.device) < self.counts[..., None]
        return present

    def align_to_slots(self, seen: Tensor, before: int, rows: Sequence[int]) -> Tensor:
        """The weights of a pass for the entries that it saw, by the slots of today, after the pending `rows` were committed.

        seen: [B, H_kv, ..., S], as `padded` has them, `before` committed ones first. Returns [B, H_kv, ..., n], 0 where a head
        has none."""
        n, old = before + len(rows), self.counts[..., None] - len(rows)
        slots, new = torch.arange(n, device=seen.device), before + torch.tensor(rows, device=seen.device)
        at = torch.where(slots < old, slots, new[(slots - old).clamp(0, len(rows) - 1)])  # [B, H_kv, n]
        wide = (*self._shape, *[1] * (seen.dim() - 3), n)
        spread = seen.gather(seen.dim() - 1, at.view(wide).expand(*seen.shape[:-1], n))
        return spread.masked_fill(~self.present_mask(n).view(wide), 0)

    def release(self) -> None:
        """Its memory is about to be returned."""
        self.memory.give(self.kv)
        self._set_index(None)

    def bytes_by_head(self) -> list[int]:
        """Bytes of each head's pages, the sequences together."""
        slot = 2 * self.kv.shape[2] * self.kv.element_size()
        batch, heads = self._shape
        return [slot * sum(self.rooms[b * heads + h] for b in range(batch)) for h in range(heads)]
