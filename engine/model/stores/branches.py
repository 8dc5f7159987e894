"""BranchStore: a layer's entries of several texts that branch off one another, each entry held once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from ..attention.segments import PartialAttention, Segment
from .cache import KVCache
from .shared_prefix import PrefixSegment
from .store import LayerStore
from .tree import CacheTree, ReadGroup, TreePlan


@dataclass(frozen=True, kw_only=True)
class BranchSegment(Segment):
    """Entries that several texts have in common, loaded once for the queries of all that read them (DeFT: Yao et al. 2024,
    arXiv:2404.00242, section 3; LINs-lab/DeFT, deft/tree_decoding and deft/layers/attention/tree_attention.py).

    k, v: float [1, H_kv, s, D];  mask: what each row sees of its text, as `length` entries in the order of the text
    """

    k: Tensor
    v: Tensor
    group: ReadGroup
    length: int

    def attend(
        self, q: Tensor, mask: Tensor | None, scale: float, cap: float | None = None, *, weights: bool = False
    ) -> PartialAttention:
        texts, places = self.group.texts, self.group.places
        seen = None if self.group.mask is None else self.group.mask[:, None, None]  # [Q, 1, 1, s]
        if mask is not None:
            chosen = mask if texts is None or len(mask) == 1 else mask[texts]
            seen = chosen[..., places] if seen is None else seen & chosen[..., places]
        rows = q if texts is None else q[texts]
        part = PrefixSegment(k=self.k, v=self.v).attend(rows, seen, scale, cap, weights=weights)
        if part.weights is not None:  # by slot -> by position
            wide = part.weights.new_zeros(*part.weights.shape[:-1], self.length)
            part = part._replace(weights=wide.index_add_(-1, places, part.weights))
        if texts is None:
            return part
        spread = (_scatter_rows(x, texts, len(q), empty) for x, empty in zip(part, _NOTHING, strict=True))
        return PartialAttention(*spread)  # type: ignore[arg-type] # only weights may be None


_NOTHING = (0.0, 0.0, -torch.inf, 0.0)  # the part of a text that sees none of a segment


def _scatter_rows(x: Tensor | None, texts: Tensor, batch: int, empty: float) -> Tensor | None:
    """x [Q, ...] as rows `texts` of [batch, ...], the other rows being `empty`."""
    return None if x is None else x.new_full((batch, *x.shape[1:]), empty).index_copy_(0, texts, x)


class BranchStore(LayerStore):
    """A layer store for the texts of a `tree`: `kv` (float [2, 1, H_kv, S, D]) holds each entry of all texts once. n counts
    the entries of one text; all texts have as many. A pass adds one entry to each. Reordering the texts moves no entry."""

    def __init__(self, trunk: LayerStore, tree: CacheTree):
        assert trunk.in_order and not trunk.is_segmented and not trunk.m, (
            "a trunk holds all of its text, and nothing pending"
        )
        self.__dict__.update(vars(trunk))  # its memory, and what counts it
        self.tree = tree

    @contextmanager
    def _pool(self) -> Iterator[None]:
        """Inside, the store is that of all entries in `kv`, as if they were one text."""
        text, self.n = self.n, self.tree.used
        try:
            yield
        finally:
            self.n = text

    @property
    def k(self) -> Tensor:
        """float [B, H_kv, n + m, D]: the keys of each text, copied for this call."""
        return self._gather_paths(0)

    @property
    def v(self) -> Tensor:
        """float [B, H_kv, n + m, D]: the values of each text, copied for this call."""
        return self._gather_paths(1)

    def _gather_paths(self, which: int) -> Tensor:
        paths = self.tree.paths()
        if self.m:
            own = torch.arange(self.tree.used, self.tree.used + self.batch, device=paths.device)
            paths = torch.cat([paths, own[:, None]], 1)
        return self.kv[which, 0][:, paths].transpose(0, 1)

    @property
    def is_segmented(self) -> bool:
        """Always."""
        return True

    def segments(self, mask: Tensor | None) -> list[Segment]:
        """The groups of the tree's plan."""
        return [self._segment(group, mask) for group in self.tree.groups()]

    def _segment(self, group: ReadGroup, mask: Tensor | None) -> Segment:
        slots = group.slots
        k, v = self.kv[:, :, :, slots]
        return BranchSegment(k=k, v=v, group=group, length=self.n + self.m, mask=mask)

    def append(self, kv: Tensor, positions: Tensor) -> None:
        """One pending row of each text: kv float [2, B, H_kv, 1, D] at `positions` (int64 [B, 1])."""
        assert kv.shape[3] == 1 and not self.m, "the texts of a tree grow token by token"
        with self._pool():
            super().append(kv.transpose(1, 3), positions.T)
        self.m, self._pending = 1, positions

    def truncate(self, length: int) -> None:
        """Nothing to be forgotten but what is pending."""
        assert length >= self.n, "the texts of a tree only grow"
        self.rollback()

    @contextmanager
    def rewind(self, start: int, rows: int) -> Iterator[None]:
        raise AssertionError("the texts of a tree only grow")
        yield

    def shrink(self) -> None:
        with self._pool():
            super().shrink()

    def evict(self, index: Tensor) -> None:
        raise AssertionError("the entries of a tree belong to several texts")

    def evict_same(self, slots: Sequence[int]) -> None:
        raise AssertionError("the entries of a tree belong to several texts")

    def reorder(self, order: Tensor) -> None:
        """The texts are now those of the tree, which knows the order. Memory of entries that went is returned by `shrink`."""
        self._shape = (len(order), *self._shape[1:])
        if self.tree.moved is not None:
            first, slots = self.tree.moved
            self.kv[:, :, :, first : first + len(slots)] = self.kv.index_select(3, slots)
            self._freed = True


def branch_cache(cache: KVCache, plan: TreePlan = "dense", block: int = 128) -> None:
    """Let several texts go on after the entries of `cache`, which has one sequence. Each entry is held once; `rows` copies
    none."""
    cache.tree = CacheTree(cache.layers[0].n, cache.layers[0].kv.device, plan, block, cache.memory)
    cache.layers = [BranchStore(store, cache.tree) for store in cache.layers]
