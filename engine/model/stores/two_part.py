"""TailStore: a layer's cache with its first entries elsewhere, in another form, and its newest in its own tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ..layers.commit_plan import CommitPlan
from .store import LayerStore


class TailStore(LayerStore):
    """Base of stores in which `kv` holds the entries from `before` on, pending ones included; `n` counts all. Nothing may be
    evicted, and no policy has columns."""

    @property
    def older_entries(self) -> int:
        """Number of entries stored elsewhere."""
        raise NotImplementedError

    def read_older(self, which: int) -> list[Tensor]:
        """float [B, H_kv, ., D]: the keys (which = 0) or values (1) stored elsewhere, piece by piece, made by this call."""
        raise NotImplementedError

    @property
    def k(self) -> Tensor:
        """float [B, H_kv, n + m, D]: all keys; those stored elsewhere are copied for this call."""
        return self._read(0)

    @property
    def v(self) -> Tensor:
        """float [B, H_kv, n + m, D]: all values; those stored elsewhere are copied for this call."""
        return self._read(1)

    def _read(self, which: int) -> Tensor:
        older, tail = self.read_older(which), self.kv[which, :, :, : self.n - self.older_entries + self.m]
        return torch.cat([*older, tail], 2) if older else tail

    @contextmanager
    def _tail(self) -> Iterator[None]:
        """Inside, the store is that of the entries in `kv`."""
        before = self.older_entries
        self.n -= before
        try:
            yield
        finally:
            self.n += before

    def append(self, kv: Tensor, positions: Tensor) -> None:
        with self._tail():
            super().append(kv, positions)

    def keep(self, rows: Sequence[int], moving: CommitPlan | None) -> None:
        with self._tail():
            super().keep(rows, moving)

    def prune_pending(self, rows: Tensor) -> None:
        with self._tail():
            super().prune_pending(rows)

    def shrink(self) -> None:
        with self._tail():
            super().shrink()


def slice_mask(mask: Tensor | None, first: int, stop: int) -> Tensor | None:
    """A mask [..., S] for the entries first to stop - 1."""
    return None if mask is None else mask[..., first:stop]
