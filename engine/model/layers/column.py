"""Column: a cache policy's data about each entry, in a table next to keys and values."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# the kind of an entry: the values of a column "kind", if a policy asks for one
TOKEN, MERGED = range(2)
# how it was made: the values of a column "origin", where somebody asks for one: by its own layer, from a state that had stopped
# below, or copied from the layer below
COMPUTED, PROPAGATED, COPIED = range(3)


@dataclass(frozen=True)
class EntryColumn:
    """fill: the value of a new entry;  width: numbers for an entry, of type `dtype`.

    Its table is [B, H_kv, S], or [B, H_kv, S, width] where there are several.
    """

    fill: float = 0.0
    dtype: torch.dtype = torch.float32
    width: int = 1

    def table(self, batch: int, heads: int, slots: int, device: torch.device | str) -> Tensor:
        """A table of new entries."""
        shape = (batch, heads, slots) if self.width == 1 else (batch, heads, slots, self.width)
        return torch.full(shape, self.fill, dtype=self.dtype, device=device)


ORIGIN = EntryColumn(COMPUTED, torch.int8)


def expand_index(index: Tensor, table: Tensor, axis: int) -> Tensor:
    """index (int64 [B, H_kv, e], slots) in the shape in which `table` is gathered along `axis`, that of its slots."""
    wide = index.view(*[1] * (axis - 2), *index.shape, *[1] * (table.dim() - axis - 1))
    return wide.expand(*table.shape[: axis - 2], *index.shape, *table.shape[axis + 1 :])
