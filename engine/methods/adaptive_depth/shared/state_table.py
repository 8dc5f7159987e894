"""A table of states by key, with a limit in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

K = TypeVar("K", bound=Hashable)


class StateTable(Generic[K]):
    """States float [d] by key, in one tensor that grows up to the limit.

    If there is no room, the least recently used key leaves. A table with no rows holds nothing.
    """

    def __init__(self, most: int, like: Tensor) -> None:
        """most: bytes;  like: a state [d]."""
        self.rows = most // (like.numel() * like.element_size())
        self._states = like.new_empty(0, len(like))
        self._slot: OrderedDict[K, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._slot)

    @property
    def nbytes(self) -> int:
        """Bytes taken for states."""
        return self._states.nbytes

    def states(self, keys: Sequence[K], work: Callable[[list[K]], Tensor]) -> tuple[Tensor, list[bool]]:
        """Return the states [T, d] of T keys, and whether each was in the table; `work` computes the missing ones [n, d], each
        once.
        """
        there = [key in self._slot for key in keys]
        missing = list(dict.fromkeys(key for key, known in zip(keys, there, strict=True) if not known))
        old = [i for i, known in enumerate(there) if known]
        states = self._states.new_empty(len(keys), self._states.shape[1])
        if old:
            states[old] = self._states[[self._slot[keys[i]] for i in old]]
            for i in old:
                self._slot.move_to_end(keys[i])
        if missing:
            fresh, place = work(missing), {key: i for i, key in enumerate(missing)}
            new = [i for i, known in enumerate(there) if not known]
            states[new] = fresh[[place[keys[i]] for i in new]]
            self._keep(missing, fresh)
        return states, there

    def _keep(self, keys: Sequence[K], states: Tensor) -> None:
        """Add new keys; if there is no room for all, add the last of them."""
        first = len(keys) - min(len(keys), self.rows)
        keys = keys[first:]
        states = states[first:]
        if not len(keys):
            return
        wanted = min(len(self) + len(keys), self.rows)
        if wanted > len(self._states):
            more = min(self.rows, max(wanted, 2 * len(self._states))) - len(self._states)
            self._states = torch.cat([self._states, self._states.new_empty(more, self._states.shape[1])])
        slots = []
        for key in keys:
            slot = len(self) if len(self) < self.rows else self._slot.popitem(last=False)[1]
            self._slot[key] = slot
            slots.append(slot)
        self._states[slots] = states
