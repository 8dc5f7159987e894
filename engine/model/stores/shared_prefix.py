"""SharedStore: the entries of several sequences with a common beginning, stored once, followed by each sequence's own."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from decodescope.engine.core.spec import ModelSpec

from ..attention.segments import DenseSegment, PartialAttention, Segment
from ..layers.memory import Memory
from .cache import KVCache
from .store import LayerStore
from .two_part import TailStore, slice_mask


@dataclass(frozen=True, kw_only=True)
class PrefixSegment(Segment):
    """A segment that all sequences of a batch read: their queries are rows of one product with keys and values that are there
    once (Hydragen: Juravsky et al. 2024, arXiv:2402.05099, section 3.2; ScalingIntelligence/hydragen, hydragen/attention.py).

    k, v: float [1, H_kv, S, D]
    """

    k: Tensor
    v: Tensor

    def attend(
        self, q: Tensor, mask: Tensor | None, scale: float, cap: float | None = None, *, weights: bool = False
    ) -> PartialAttention:
        B, H, g, T, D = q.shape
        rows = q.permute(1, 2, 0, 3, 4).reshape(1, H, g, B * T, D)
        if mask is not None:  # [b, h, T, S] -> [1, h, B * T, S]
            mask = mask.expand(B, *mask.shape[1:]).transpose(0, 1).flatten(1, 2)[None]
        part = DenseSegment(k=self.k, v=self.v).attend(rows, mask, scale, cap, weights=weights)
        return PartialAttention(*(None if x is None else _split_sequences(x, B, T) for x in part))  # type: ignore[arg-type] # only weights may be None


def _split_sequences(x: Tensor, B: int, T: int) -> Tensor:
    """[1, H_kv, g, B * T, ...] by sequence: [B, H_kv, g, T, ...]."""
    by_sequence: Tensor = x[0].unflatten(2, (B, T)).movedim(2, 0)
    return by_sequence


class SharedStore(TailStore):
    """A layer of `batch` sequences that go on after the entries of `prefix`, a store of one sequence, which is only read from
    here on: it is held once, however many sequences there are, and reordering them copies none of it."""

    def __init__(self, prefix: LayerStore, spec: ModelSpec, batch: int, memory: Memory):
        assert prefix.in_order and not prefix.is_segmented and not prefix.m, (
            "a prefix holds all of its text, and nothing pending"
        )
        super().__init__(
            spec, prefix.layer, batch=batch, dtype=prefix.kv.dtype, device=prefix.kv.device, memory=memory
        )
        self.prefix, self.n = prefix, prefix.n

    @property
    def older_entries(self) -> int:
        return self.prefix.n

    @property
    def is_segmented(self) -> bool:
        """True if there is a prefix."""
        return self.prefix.n > 0

    def segments(self, mask: Tensor | None) -> list[Segment]:
        """The prefix, then what is each sequence's own, pending rows included."""
        before, end = self.older_entries, self.n + self.m
        k, v = self.kv[:, :, :, : end - before]
        first = PrefixSegment(k=self.prefix.k, v=self.prefix.v, mask=slice_mask(mask, 0, before))
        return [first, DenseSegment(k=k, v=v, mask=slice_mask(mask, before, end), first=before)]

    def read_older(self, which: int) -> list[Tensor]:
        prefix = self.prefix.kv[which, :, :, : self.older_entries]
        return [prefix.expand(self.kv.shape[1], -1, -1, -1)]

    def truncate(self, length: int) -> None:
        """Forget every entry at position >= `length`, which is no position of the prefix, and what is pending."""
        assert length >= self.older_entries, "a prefix is only read"
        super().truncate(length)

    def nbytes(self) -> int:
        return super().nbytes() + self.prefix.nbytes()


def share_prefix(cache: KVCache, batch: int) -> None:
    """Let `batch` sequences go on after the entries of `cache`, which has one sequence; these are kept once."""
    cache.layers = [SharedStore(store, cache.spec, batch, cache.memory) for store in cache.layers]
    cache.shared = cache.layers[0].n
