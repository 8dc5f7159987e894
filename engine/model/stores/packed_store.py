"""PackedStore: a layer's cache with its older entries stored in fewer bits, and the newest in full precision."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec

from ..attention.segments import DenseSegment, PartialAttention, Segment
from .two_part import TailStore, slice_mask

BLOCK = 512  # entries that a block grows to, and that are unpacked at a time

Parts = dict[str, Tensor]  # what a coder makes of keys or values; axis 0 of each is the batch
Side = Literal["keys", "values"]
SIDES: tuple[Side, Side] = ("keys", "values")  # in the order in which a store holds them


class EntryCoder(Protocol):
    """Packs entries, and unpacks them."""

    def count_due(self, dense: int) -> int:
        """How many of the `dense` entries in full precision, the oldest, are to be packed now."""
        ...

    def encode(self, x: Tensor, side: Side) -> Parts:
        """x: float [B, H_kv, T, D], keys or values of T entries that follow each other."""
        ...

    def decode(self, parts: Parts, side: Side) -> Tensor:
        """float [B, H_kv, T, D]: about what was encoded."""
        ...

    def concat_parts(self, a: Parts, b: Parts, side: Side) -> Parts | None:
        """Entries packed one after the other as if packed at once; None if that is not possible."""
        ...


@dataclass(frozen=True)
class PackedBlock:
    """The entries at positions first to stop - 1 as a coder packed them.

    lent: names of parts that the block of another layer holds, and counts
    """

    first: int
    stop: int
    parts: dict[Side, Parts]
    lent: frozenset[str] = frozenset()

    @property
    def nbytes(self) -> int:
        """Bytes of its storages."""
        return sum(x.untyped_storage().nbytes() for x in self.tensors)

    @property
    def tensors(self) -> list[Tensor]:
        """All that it is made of, but for what is lent."""
        return [x for parts in self.parts.values() for name, x in parts.items() if name not in self.lent]

    def reorder(self, order: Tensor) -> PackedBlock:
        """The same of the sequences `order` (int64 [B'])."""
        chosen = {
            side: {name: x.index_select(0, order) for name, x in parts.items()}
            for side, parts in self.parts.items()
        }
        return replace(self, parts=chosen)


@dataclass(frozen=True)
class PackingResult:
    """Positions first to stop - 1 were packed into `nbytes` bytes; errors: the largest of a key, and of a value; distance:
    how far apart the directions of two layers were on average, where they share what is stored."""

    first: int
    stop: int
    nbytes: int
    errors: tuple[float, float]
    distance: float | None = None


@dataclass(frozen=True, kw_only=True)
class PackedSegment(Segment):
    """A segment that unpacks its keys and values when they are attended to, and then drops them."""

    block: PackedBlock
    coder: EntryCoder

    def attend(
        self, q: Tensor, mask: Tensor | None, scale: float, cap: float | None = None, *, weights: bool = False
    ) -> PartialAttention:
        """As for plain keys and values, once they are unpacked."""
        k, v = (self.coder.decode(self.block.parts[side], side).contiguous() for side in SIDES)
        return DenseSegment(k=k, v=v).attend(q, mask, scale, cap, weights=weights)


class PackedStore(TailStore):
    """A LayerStore with its first `packed` entries in `blocks`, in text order, and the later ones in `kv`.

    Nothing may be evicted, and no policy has columns. Pending entries are in `kv`: a draft of any depth is dropped as
    ever. Blocks are unpacked one by one when they are read, and what was unpacked is not kept.

    packings: what was packed, where evictions are logged too (`evicted`), until it is taken
    """

    def __init__(self, coder: EntryCoder, spec: ModelSpec, layer: int, **options: Any):
        super().__init__(spec, layer, **options)
        self.coder = coder
        self.blocks: list[PackedBlock] = []
        self.packings: list[PackingResult] = []

    @property
    def packed_entries(self) -> int:
        """Entries that are packed; the others are in full precision."""
        return self.blocks[-1].stop if self.blocks else 0

    @property
    def committed_bytes(self) -> int:
        """Bytes of the committed entries, those of blocks and of what is in full precision; free room not counted."""
        whole = self.kv[:, :, :, : self.n - self.packed_entries]
        return sum(block.nbytes for block in self.blocks) + whole.numel() * whole.element_size()

    @property
    def older_entries(self) -> int:
        return self.packed_entries

    @property
    def is_segmented(self) -> bool:
        """True if something is packed."""
        return bool(self.blocks)

    def segments(self, mask: Tensor | None) -> list[Segment]:
        """Block by block what is packed, then what is not, pending rows included."""
        packed = self.packed_entries
        parts: list[Segment] = [
            PackedSegment(block=x, coder=self.coder, mask=slice_mask(mask, x.first, x.stop), first=x.first)
            for x in self.blocks
        ]
        k, v = self.kv[:, :, :, : self.n - packed + self.m]
        return [*parts, DenseSegment(k=k, v=v, mask=slice_mask(mask, packed, self.n + self.m), first=packed)]

    def read_older(self, which: int) -> list[Tensor]:
        return [self.coder.decode(block.parts[SIDES[which]], SIDES[which]) for block in self.blocks]

    def pack(self) -> None:
        """Pack what the coder wants packed, and let the rest move up in `kv`. Nothing may be pending."""
        assert self.m == 0, "only committed entries are packed"
        count = self.due_entries
        for first, kv in self.pieces(count):
            parts: dict[Side, Parts] = {
                side: self.coder.encode(x, side) for side, x in zip(SIDES, kv, strict=True)
            }
            self.add(PackedBlock(first, first + kv.shape[3], parts), kv)
        self.drop(count)

    @property
    def due_entries(self) -> int:
        """How many entries of those in full precision, the oldest, are to be packed now."""
        return self.coder.count_due(self.n - self.packed_entries)

    def pieces(self, count: int) -> Iterator[tuple[int, Tensor]]:
        """The first `count` entries in full precision, as many at a time as a block holds: the position of the first, and
        all as float [2, B, H_kv, T, D], a view."""
        first = self.packed_entries
        for at in range(0, count, BLOCK):
            yield first + at, self.kv[:, :, :, at : min(at + BLOCK, count)]

    def drop(self, count: int) -> None:
        """The first `count` entries in full precision were packed: those after them move up."""
        dense = self.n - self.packed_entries
        if count:
            self.kv[:, :, :, :dense] = self.kv[:, :, :, count : count + dense].clone()
            self._freed = True

    def add(self, block: PackedBlock, kv: Tensor, angles: Sequence[Tensor] = ()) -> None:
        """Keep a block after the others, or at the end of the last one; kv: float [2, B, H_kv, T, D], what was packed; angles:
        between the directions of two layers that share it, in radians. They are read only where packings are recorded."""
        parts = block.parts
        if self.evicted is not None:
            k, v = (
                _largest_error(self.coder.decode(parts[side], side), x)
                for side, x in zip(SIDES, kv, strict=True)
            )
            distance = sum(float(x) / math.pi for x in angles) / len(angles) if angles else None
            self.packings.append(PackingResult(block.first, block.stop, block.nbytes, (k, v), distance))
        self.memory.take(*block.tensors)
        last = self.blocks[-1] if self.blocks else None
        if last is not None and block.stop - last.first <= BLOCK:
            both: dict[Side, Parts | None] = {
                side: self.coder.concat_parts(last.parts[side], parts[side], side) for side in SIDES
            }
            whole: dict[Side, Parts] = {side: x for side, x in both.items() if x is not None}
            if len(whole) == len(both):
                self.blocks[-1] = PackedBlock(last.first, block.stop, whole)
                self.memory.take(*self.blocks[-1].tensors)
                self.memory.give(*last.tensors, *block.tensors)
                return
        self.blocks.append(block)

    def truncate(self, length: int) -> None:
        """Forget every entry at position >= `length`, and pending ones. If `length` falls into a block, the rest of the block
        returns to full precision, with its unpacked values."""
        if length >= self.packed_entries:
            with self._tail():
                super().truncate(length - self.packed_entries)
            return
        self.rollback()
        cut = next(block for block in self.blocks if block.stop > length)
        self.memory.give(*[x for block in self.blocks if block.stop > length for x in block.tensors])
        self.blocks = [block for block in self.blocks if block.stop <= length]
        self.n, self._freed = cut.first, True
        left = torch.stack(
            [self.coder.decode(cut.parts[side], side)[:, :, : length - cut.first] for side in SIDES]
        )
        self.append(left, torch.arange(cut.first, length, device=left.device).expand(left.shape[1], -1))
        self.commit(range(length - cut.first))

    @contextmanager
    def rewind(self, start: int, rows: int) -> Iterator[None]:
        """As of any store; what is in full precision is copied, blocks are only set aside."""
        blocks = list(self.blocks)
        kv = self.kv
        n = self.n
        held = self.memory.held
        self.kv = kv.clone()
        self.memory.take(self.kv)
        self.truncate(start)
        try:
            yield
        finally:
            self.rollback()
            self.blocks = blocks
            self.kv = kv
            self.n = n
            self.memory.restore(held)

    def reorder(self, order: Tensor) -> None:
        super().reorder(order)
        for i, block in enumerate(self.blocks):
            self.blocks[i] = block.reorder(order)
            self.memory.take(*self.blocks[i].tensors)
            self.memory.give(*block.tensors)


def _largest_error(y: Tensor, x: Tensor) -> float:
    """The largest absolute difference."""
    return float((y.double() - x.double()).abs().max())
