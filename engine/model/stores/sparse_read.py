"""Reading less: which entries the rows of a pass read in a layer, where they do not read all that are held."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..attention.segments import DenseSegment, Segment
from .store import LayerStore


class SparseChoice(NamedTuple):
    """What each row reads of the n + m entries of a layer: runs of `size` consecutive slots, from slot 0 on, each read as
    a whole or not at all; and everything after the last run, slot by slot. A row that may not see an entry does not
    choose it.

    runs: bool [B, H_kv, g, T, U], of committed entries
    rest: bool [B or 1, H_kv or 1, g or 1, T, n + m - U * size]
    """

    runs: Tensor
    rest: Tensor
    size: int = 1


# (layer, its store, queries float [B, H_kv, g, T, D] as its keys are rotated, the pass) -> what is read; None: everything
Select = Callable[[int, LayerStore, Tensor, "SparseRead"], SparseChoice | None]


class SparseRead:
    """State that the layers of one pass share while each chooses what it reads, and the results.

    positions: int64 [B, T] of the rows;  highest: the largest of them
    seen:      bool [B or 1, 1, 1, T, m]: which pending entries each row may see, in the layer that chooses
    shared:    what a layer leaves for the later ones
    bounds:    layer -> pages that had their bounds read to choose
    chosen:    layer -> bool [B, H_kv, U], runs of `size` slots that some row has read, of a layer that did not read all
    """

    def __init__(self, select: Select, positions: Tensor, highest: int, whole: int = 0):
        """whole: rows at positions below it read everything, as those of a prompt do"""
        self.select = select
        self.highest = highest
        self._until = whole
        self._set_positions(positions)
        self.seen = positions.new_empty(0)
        self.shared: Any = None
        self.bounds: dict[int, int] = {}
        self.chosen: dict[int, tuple[Tensor, int]] = {}

    def _set_positions(self, positions: Tensor) -> None:
        self.positions = positions
        self._whole = positions < self._until if self._until else None  # [B, T]

    def prepend_positions(self, positions: Tensor) -> None:
        """From the next layer on, rows at these positions, int64 [B, W], come before the others."""
        self._set_positions(torch.cat([positions, self.positions], 1))

    def segments(self, i: int, store: LayerStore, q: Tensor, mask: Tensor | None) -> list[Segment] | None:
        """The entries of layer i that are read, copied together, and those after the last run; None: all are read. mask: what
        each row may see, as `PassMasks.mask` has it, in a layer with rows that see all that is committed."""
        every = torch.ones(1, 1, q.shape[3], store.n + store.m, dtype=torch.bool, device=q.device)
        self.seen = (every if mask is None else mask)[:, :, None, :, store.n :]
        choice = self.select(i, store, q, self)
        if choice is None:
            return None
        if self._whole is not None:
            rows = self._whole[:, None, None, :, None]
            behind = torch.nn.functional.pad(self.seen, (choice.rest.shape[4] - store.m, 0), value=True)
            choice = SparseChoice(choice.runs | rows, choice.rest | (rows & behind), choice.size)
        some = choice.runs.flatten(2, 3).any(2)  # [B, H_kv, U]: what one row reads is there for all
        self.chosen[i] = some, choice.size
        return _choice_segments(store, choice, some)

    def read_map(self, stores: Sequence[LayerStore]) -> Tensor:
        """bool [L, H_kv, n]: the entries that some row has read in each layer, of sequence 0; those that the pass has written
        count as read. n: committed entries by now, in text order."""
        maps = stores[0].kv.new_ones(len(stores), stores[0].kv.shape[2], stores[0].n, dtype=torch.bool)
        for i, (some, size) in self.chosen.items():
            maps[i, :, : some.shape[2] * size] = some[0].repeat_interleave(size, 1)
        return maps

    def read_entries(self, stores: Sequence[LayerStore]) -> list[list[int]] | None:
        """Committed entries that each layer and KV head has read, of several sequences the most; None: all that are held."""
        if not self.chosen:
            return None
        counts = [store.lengths for store in stores]
        for i, (some, size) in self.chosen.items():
            behind = stores[i].n - some.shape[2] * size
            counts[i] = (some.sum(2).amax(0) * size + behind).tolist()
        return counts


def top_mask(scores: Tensor, count: int) -> Tensor:
    """bool, in the shape of `scores` (float [..., S]): the `count` largest along the last axis, of equal ones the first; never
    one that is -inf."""
    if count >= scores.shape[-1]:
        return scores > -torch.inf
    least = scores.topk(count, -1).values[..., -1:]
    above, equal = scores > least, scores == least
    room = count - above.sum(-1, keepdim=True)
    return (above | (equal & (equal.cumsum(-1) <= room))) & (scores > -torch.inf)


def _choice_segments(store: LayerStore, choice: SparseChoice, some: Tensor) -> list[Segment]:
    """The segments of a choice; some: bool [B, H_kv, U], the runs that a row reads."""
    size, end = choice.size, some.shape[2] * choice.size
    rest = DenseSegment(store.k[:, :, end:], store.v[:, :, end:], mask=choice.rest, first=end)
    taken = gather_chosen(choice.runs, some)
    if taken is None:
        return [rest]
    runs, mask = taken
    slots = (runs[..., None] * size + torch.arange(size, device=some.device)).flatten(2)  # [B, H_kv, W]
    k, v = store.gather_entries(slots)
    return [DenseSegment(k, v, mask=mask.repeat_interleave(size, 4), slots=slots), rest]


def gather_chosen(chosen: Tensor, some: Tensor) -> tuple[Tensor, Tensor] | None:
    """The things read out of U, side by side: their numbers int64 [B, H_kv, W], and which of them each row reads, bool
    [B, H_kv, g, T, W]; None: nothing. chosen: bool [B, H_kv, g, T, U];  some: bool [B, H_kv, U], what any row has chosen."""
    counts = some.sum(2, keepdim=True)
    most = int(counts.max())
    if not most:
        return None
    # those that are read come first
    runs = some.to(torch.int8).argsort(dim=2, descending=True, stable=True)[:, :, :most]
    own = torch.arange(most, device=some.device) < counts
    # a head that reads fewer repeats one of its own; masks hide the repeats
    runs = torch.where(own, runs, runs[:, :, :1])
    at = runs[:, :, None, None].expand(*chosen.shape[:4], most)
    return runs, chosen.gather(4, at) & own[:, :, None, None]
