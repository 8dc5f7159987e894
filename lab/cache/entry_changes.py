"""Entry changes: cache entries that were merged into another entry or packed into fewer bits, and extra entries."""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np

from decodescope.engine.trace.records.events import Augmented, CacheChange


class EntryChanges:
    """The entry changes of one run, learned step after step. Other threads may query it meanwhile.
    A row is a layer and KV head, layer by layer.

    bits: bits of a packed number, None where no KV compression packs
    """

    def __init__(self, heads: int, bits: float | None):
        self.heads, self.bits = heads, bits
        self._merges: list[
            np.ndarray
        ] = []  # float64 [M, 6]: step, row, source, target, similarity, weight; one of each step
        self._packs: list[
            tuple[int, int, int, float, float]
        ] = []  # step, first, stop, errors of keys and of values
        self._packing: set[int] | None = None  # layers that it packs; None: all
        self._all = np.zeros((0, 6))
        self._beside: list[tuple[int, Augmented]] = []  # step, what prompt compression added in it
        self._lock = Lock()  # of both

    def learn(self, change: CacheChange, step: int) -> None:
        """Record the changes of a step."""
        if change.merged is not None and change.merged_by is not None and len(change.merged):
            layer, head, source, target = change.merged.astype(np.float64).T
            rows = np.stack(
                [np.full(len(layer), step), layer * self.heads + head, source, target, *change.merged_by.T], 1
            )
            with self._lock:
                self._merges.append(rows[(target >= 0) & (head >= 0) & (head < self.heads)])
        self._beside += [(step, one) for one in change.augmented or []]
        if change.packed is not None:
            p = change.packed
            self._packs.append((step, p.first, p.stop, p.key_error, p.value_error))
            self._packing = None if p.layers is None else set(p.layers) | (self._packing or set())

    def _merges_until(self, i: int) -> np.ndarray:
        """`_merges` up to step i, as one."""
        with self._lock:
            if self._merges:
                self._all, self._merges = np.concatenate([self._all, *self._merges]), []
            merges = self._all
        return merges[: np.searchsorted(merges[:, 0], i, side="right")]

    def sources(self, i: int, row: int | None = None) -> set[int]:
        """The positions of a row (None: of any) that became part of another entry by step i."""
        merges = self._merges_until(i)
        return set((merges if row is None else merges[merges[:, 1] == row])[:, 2].astype(int).tolist())

    def merge_map(self, i: int, rows: int, width: int, columns: int) -> np.ndarray | None:
        """bool [rows, columns], columns of `width` positions: where entries were merged into another entry by step i; None:
        nowhere."""
        merges = self._merges_until(i)
        row, column = merges[:, 1].astype(int), merges[:, 2].astype(int) // width
        good = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
        if not good.any():
            return None
        became = np.zeros((rows, columns), bool)
        became[row[good], column[good]] = True
        return became

    def of(self, position: int, i: int) -> dict[str, Any]:
        """The changes of a position by step i.

        into: [row, target, similarity, weight] of each row in which it was merged into another entry, weight: its share there
        took: [row, sources], the entries that were merged into it
        packed: [step, bits, error of keys, error of values] if it is packed; else None
        """
        merges = self._merges_until(i)
        into = [
            [int(x[1]), int(x[3]), round(x[4], 4), round(x[5], 4)]
            for x in merges[merges[:, 2] == position].tolist()
        ]
        mine = merges[merges[:, 3] == position]
        rows = np.unique(mine[:, 1]).astype(int).tolist()
        took = [[row, mine[mine[:, 1] == row, 2].astype(int).tolist()] for row in rows]
        packed = next(
            ([x[0], self.bits, x[3], x[4]] for x in self._packs if x[0] <= i and x[1] <= position < x[2]),
            None,
        )
        return {"into": into, "took": took, "packed": packed}

    def extra_kv(self, i: int) -> list[dict[str, Any]]:
        """The extra entries after step i, which belong to no token of the text.
        Each has its `form`, the number of text tokens before it (`at`), `entries` per layer and KV head, and `origin`."""
        return [
            {"form": x.form, "at": x.at, "entries": x.entries, "origin": x.origin}
            for k, x in self._beside
            if k <= i
        ]

    def packed_length(self, i: int) -> int:
        """The end of the part that has been packed by step i: the oldest are packed first."""
        return max((stop for step, _, stop, _, _ in self._packs if step <= i), default=0)

    def packed_layers(self, i: int) -> list[int] | None:
        """The layers whose entries are packed by step i; None: all, or none."""
        return sorted(self._packing) if self._packing is not None and self.packed_length(i) else None
