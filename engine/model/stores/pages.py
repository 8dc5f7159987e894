"""PageBounds: of each channel of the keys in a page, the smallest and the largest number; and a score that none exceeds."""

from __future__ import annotations

import torch
from torch import Tensor

from ..layers.memory import Memory


class PageBounds:
    """Of the whole pages of a layer that holds its text in order. Nothing is computed twice: `upto` adds what has come.

    table: float [2, B, H_kv, P, D], room for P pages: smallest, then largest
    """

    def __init__(self, keys: Tensor, page: int, memory: Memory):
        """Of no page yet; keys: as `upto` is given them;  page: entries of one."""
        self.page = page
        self.memory = memory
        self._whole = 0
        self.table = keys.new_empty(2, *keys.shape[:2], 0, keys.shape[3])

    def bounds_of(self, keys: Tensor) -> Tensor:
        """float [2, B, H_kv, U, D]: smallest and largest of the U whole pages of the committed keys float [B, H_kv, n, D]."""
        before, due = self._whole, keys.shape[2] // self.page
        if due > before:
            if due > self.table.shape[3]:
                self._grow(max(due, self.table.shape[3] * 3 // 2))
            pages = keys[:, :, before * self.page : due * self.page].unflatten(2, (due - before, self.page))
            self.table[:, :, :, before:due] = torch.stack(pages.aminmax(dim=3))
            self._whole = due
        return self.table[:, :, :, :due]

    def _grow(self, pages: int) -> None:
        old = self.table
        self.table = old.new_empty(*old.shape[:3], pages, old.shape[4])
        self.table[:, :, :, : self._whole] = old[:, :, :, : self._whole]
        self.memory.take(self.table)
        self.memory.give(old)

    def truncate(self, length: int) -> None:
        """Forget pages with an entry at position >= `length`."""
        self._whole = min(self._whole, length // self.page)

    def reorder(self, order: Tensor) -> None:
        """Make sequence b a copy of sequence order[b] (int64 [B'])."""
        old, self.table = self.table, self.table.index_select(1, order)
        self.memory.take(self.table)
        self.memory.give(old)


def score_bound(q: Tensor, least: Tensor, most: Tensor) -> Tensor:
    """float [..., T, U]: a number that no product of a query q (float [..., T, D]) with a key between `least` and `most`
    (float [..., U, D] each) exceeds: each channel's share is the larger of the two at its ends."""
    return q.clamp(min=0) @ most.mT + q.clamp(max=0) @ least.mT
