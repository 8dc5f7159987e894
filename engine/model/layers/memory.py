"""Memory: the bytes that a cache holds, and the most that it ever held at once."""

from __future__ import annotations

from torch import Tensor


class Memory:
    """Bytes counted from storages when they are taken and returned. So `peak` includes the moment when an old and a new one
    exist at once. whole: the Memory that this is a part of, which counts the bytes too."""

    def __init__(self, whole: Memory | None = None) -> None:
        self.held = self.peak = 0
        self.whole = whole

    def take(self, *tables: Tensor) -> None:
        """The storages of these tensors were allocated."""
        self._change(sum(table.untyped_storage().nbytes() for table in tables))

    def give(self, *tables: Tensor) -> None:
        """The storages of these tensors are about to be returned."""
        self._change(-sum(table.untyped_storage().nbytes() for table in tables))

    def restore(self, held: int) -> None:
        """Undo the counts of what was allocated and returned since `held` bytes were held."""
        self._change(held - self.held)

    def _change(self, nbytes: int) -> None:
        self.held += nbytes
        self.peak = max(self.peak, self.held)
        if self.whole is not None:
            self.whole._change(nbytes)
