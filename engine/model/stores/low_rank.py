"""DirectionStore: a layer's cache in which the KV heads of a group keep their entries in directions that they share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec

from ..attention.attention import upcast_half
from ..attention.segments import DenseSegment, PartialAttention, Segment, eager_partial_attention
from ..layers.rope import rotate_, shared_rope_table, unrotate
from .packed_store import SIDES, PackedBlock, PackedSegment, PackedStore, Parts, Side
from .two_part import slice_mask


class LowRankCoder:
    """Packs the entries of one layer. The heads of a group, concatenated, are a vector of `together` * D numbers; only its
    coordinates along `rank` directions are kept. Keys are rotated back to position 0 before packing, and rotated again
    after unpacking.

    bases: keys and values, float [H_kv / together, together * D, rank], orthonormal columns; None: not known yet
    whole: entries that are packed at a time;  first: entries needed before directions are computed
    """

    def __init__(
        self, spec: ModelSpec, layer: int, together: int, rank: int, whole: int, first: int, **where: Any
    ):
        self.together = together
        self.rank = rank
        self.whole = whole
        self.first = first
        local = spec.window(layer) is not None and spec.local_rope is not None
        rope = spec.local_rope if local and spec.local_rope is not None else spec.rope
        # the model's own table, where one has been loaded
        self.table = (
            None if layer in spec.no_rope else shared_rope_table(rope, spec.max_positions, start=64, **where)
        )
        self.bases: dict[Side, Tensor] | None = None
        self.highest = (
            0  # position that was ever packed: known here, so that no block asks the device for its own
        )

    def find(self, kv: Tensor) -> None:
        """Find the main directions of these entries, kv float [2, B, H_kv, T, D] from position 0 on: the right singular vectors
        of the entries of a group, [B * T, together * D]."""
        bases = {}
        for side, x in zip(SIDES, kv, strict=True):
            rows = self._group_heads(
                self._unrotate_keys(x, 0) if side == "keys" else x
            ).double()  # [B, G, T, together * D]
            rows = rows.transpose(0, 1).flatten(1, 2)
            directions = torch.linalg.eigh(
                rows.mT @ rows
            ).eigenvectors  # in ascending order of the variance along them
            bases[side] = directions.flip(-1)[..., : self.rank].to(x.dtype).contiguous()
        self.bases = bases

    def count_due(self, dense: int) -> int:
        """How many of the `dense` entries in full precision, the oldest, are to be packed now."""
        return 0 if self.bases is None and dense < self.first else dense - dense % self.whole

    def encode(self, x: Tensor, side: Side, first: int = 0) -> Parts:
        """x: float [B, H_kv, T, D], keys or values of T entries from position `first` on: their coordinates float
        [B, G, T, rank], and of keys the positions int32 [B, T]."""
        assert self.bases is not None
        rows = upcast_half(self._group_heads(self._unrotate_keys(x, first) if side == "keys" else x))
        parts = {"along": (rows @ upcast_half(self.bases[side])).to(x.dtype)}
        self.highest = max(self.highest, first + x.shape[2] - 1)
        if side == "keys":
            parts["at"] = torch.arange(first, first + x.shape[2], dtype=torch.int32, device=x.device).repeat(
                len(x), 1
            )
        return parts

    def decode(self, parts: Parts, side: Side) -> Tensor:
        """float [B, H_kv, T, D]: about what was encoded."""
        assert self.bases is not None
        along = parts["along"]
        rows = (upcast_half(along) @ upcast_half(self.bases[side]).mT).to(
            along.dtype
        )  # [B, G, T, together * D]
        x: Tensor = rows.unflatten(-1, (self.together, -1)).transpose(2, 3).flatten(1, 2).contiguous()
        if side == "keys" and self.table is not None:
            at = parts["at"][0].long()
            cos, sin = self.table.at(at, self.highest)
            rotate_(x[..., None, :], cos, sin)
        return x

    def concat_parts(self, a: Parts, b: Parts, side: Side) -> Parts:
        """Entries packed one after the other as if packed at once."""
        return {name: torch.cat([x, b[name]], 1 if name == "at" else 2) for name, x in a.items()}

    def expand_sums(self, numerator: Tensor) -> Tensor:
        """float [B, H_kv, g, T, D] of sums of values by their coordinates, float [B, H_kv, g, T, rank]: expanded once a
        query, not once an entry. The product could be a part of the one after attention."""
        assert self.bases is not None
        each = self.bases["values"].unflatten(1, (self.together, -1)).flatten(0, 1)  # [H_kv, D, rank]
        return numerator @ upcast_half(each).to(numerator.dtype).mT[:, None]

    def _group_heads(self, x: Tensor) -> Tensor:
        """float [B, G, T, together * D] of x [B, H_kv, T, D]."""
        joined: Tensor = x.unflatten(1, (-1, self.together)).transpose(2, 3).flatten(3)
        return joined

    def _unrotate_keys(self, x: Tensor, first: int) -> Tensor:
        """Keys as they were before their rotation."""
        if self.table is None:
            return x
        at = torch.arange(first, first + x.shape[2], device=x.device)
        return unrotate(x, self.table, at, first + x.shape[2] - 1)


@dataclass(frozen=True, kw_only=True)
class LowRankSegment(PackedSegment):
    """A packed segment with values that stay in the coordinates of their group while they are summed."""

    directions: LowRankCoder

    def attend(
        self, q: Tensor, mask: Tensor | None, scale: float, cap: float | None = None, *, weights: bool = False
    ) -> PartialAttention:
        """As for plain keys and values; keys are unpacked, and then dropped."""
        k = self.coder.decode(self.block.parts["keys"], "keys")
        # [B, H_kv, T, rank]
        v = self.block.parts["values"]["along"].repeat_interleave(self.directions.together, 1)
        if v.shape[3] == k.shape[3]:
            part = DenseSegment(k=k, v=v).attend(q, mask, scale, cap, weights=weights)
        else:
            part = eager_partial_attention(q, k, v, mask, scale, cap, weights=weights)
        return part._replace(numerator=self.directions.expand_sums(part.numerator))


class LowRankStore(PackedStore):
    """A PackedStore that finds its directions from the first entries which it packs."""

    def __init__(self, directions: LowRankCoder, spec: ModelSpec, layer: int, **options: Any):
        super().__init__(directions, spec, layer, **options)
        self.directions = directions

    def pack(self) -> None:
        count = self.due_entries
        if not count:
            return
        if self.directions.bases is None:
            self.directions.find(self.kv[:, :, :, : self.n])
            self.memory.take(*(self.directions.bases or {}).values())
        for first, kv in self.pieces(count):
            parts: dict[Side, Parts] = {
                side: self.directions.encode(x, side, first) for side, x in zip(SIDES, kv, strict=True)
            }
            self.add(PackedBlock(first, first + kv.shape[3], parts), kv)
        self.drop(count)

    def segments(self, mask: Tensor | None) -> list[Segment]:
        packed, tail = self.packed_entries, super().segments(mask)[-1]
        return [*self._low_rank_segments(mask), tail] if packed else [tail]

    def _low_rank_segments(self, mask: Tensor | None) -> Iterator[Segment]:
        for block in self.blocks:
            seen = slice_mask(mask, block.first, block.stop)
            yield LowRankSegment(
                block=block, coder=self.coder, mask=seen, first=block.first, directions=self.directions
            )
