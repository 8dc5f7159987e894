"""PairedStore: a layer's packed cache that shares a part of its blocks with the layer below it."""

from __future__ import annotations

from typing import NamedTuple, Protocol, cast

from torch import Tensor

from .packed_store import SIDES, EntryCoder, PackedBlock, PackedStore, Parts, Side


class MergedParts(NamedTuple):
    """The shared form of two layers' entries. lower, upper: the parts of each, from which it is decoded; shared: the names
    of those that are one tensor for both; angle: float [], the mean angle between their directions, in radians."""

    lower: Parts
    upper: Parts
    shared: frozenset[str]
    angle: Tensor


class PairCoder(EntryCoder, Protocol):
    """Packs the entries of two layers together, and unpacks those of each."""

    def merge(self, lower: Tensor, upper: Tensor, side: Side) -> MergedParts:
        """lower, upper: float [B, H_kv, T, D], keys or values of the same T entries in two layers."""
        ...


class CrossLayerStore(PackedStore):
    """A PackedStore that is packed with the one of the layer below, once both hold an entry: after a commit, when the pass
    that wrote it has gone through all layers. What both read is stored once, in the blocks of the lower, which counts its
    bytes.

    below: the store of the lower layer; None: it is the lower one of its pair, or has none
    """

    below: CrossLayerStore | None = None

    def pack_with(self, below: CrossLayerStore) -> None:
        """Pack what the coder wants packed, here and in the store of the layer below. Nothing may be pending."""
        assert self.m == below.m == 0 and self.n == below.n, "only committed entries are packed"
        self.below, count = below, self.due_entries
        coder = cast(PairCoder, self.coder)
        for (first, low), (_, high) in zip(below.pieces(count), self.pieces(count), strict=True):
            merged: dict[Side, MergedParts] = {
                side: coder.merge(low[i], high[i], side) for i, side in enumerate(SIDES)
            }
            stop = first + low.shape[3]
            lower: dict[Side, Parts] = {side: x.lower for side, x in merged.items()}
            upper: dict[Side, Parts] = {side: x.upper for side, x in merged.items()}
            below.add(PackedBlock(first, stop, lower), low)
            own = PackedBlock(first, stop, upper, merged["keys"].shared)
            self.add(own, high, [x.angle for x in merged.values()])
        below.drop(count)
        self.drop(count)

    def reorder(self, order: Tensor) -> None:
        super().reorder(order)
        if self.below is None:
            return
        for block, lower in zip(
            self.blocks, self.below.blocks, strict=True
        ):  # the lower layer was reordered before
            for side, parts in block.parts.items():
                parts |= {name: lower.parts[side][name] for name in block.lent}
