"""KVCache: the keys and values of one lane, a store for each layer."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec

from ..attention.extra_kv import ExtraEntries, ExtraKV, Kind, copy_pending
from ..layers.column import EntryColumn
from ..layers.commit_plan import CommitPlan, are_pending
from ..layers.deferred import DeferredTokens
from ..layers.memory import Memory
from ..layers.partial_pass import ExecutedLayers
from .store import PAGE, LayerStore
from .tree import CacheTree, SharedNode

__all__ = ["PAGE", "KVCache", "LayerStore"]


class KVCache:
    """One LayerStore per layer. Layers may hold different entries; all of them hold the same number of sequences.

    length: tokens of the text that were committed, whether or not their entries are still held
    shared: entries of each layer that are held once for all sequences
    reference: a cache with always the same sequences as here
    tree:   what its sequences have in common, if that is tracked entry by entry
    outside: what every row attends to in addition to the entries of the text
    waiting: by layer, tokens of the text that have no entries from there on yet
    absent:  (layer, position) of committed tokens without an entry there, since this was last taken;  filled: the same of
             tokens that had waited, and whose entries came
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        batch: int = 1,
        columns: Mapping[str, EntryColumn] | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        store: Callable[..., LayerStore] = LayerStore,
    ):
        self.spec = spec
        self.length = self.shared = 0
        self.tree: CacheTree | None = None
        self.memory = Memory()
        self.reference: KVCache | None = None
        self.outside: list[ExtraKV] = []
        self.waiting: dict[int, DeferredTokens] = {}
        self.absent: list[tuple[int, int]] = []
        self.filled: list[tuple[range, Tensor]] = []
        self.layers: list[LayerStore] = [
            store(spec, i, batch=batch, columns=columns, dtype=dtype, device=device, memory=self.memory)
            for i in range(spec.n_layers)
        ]

    def commit(self, rows: Sequence[int], ran: ExecutedLayers | None = None) -> None:
        """Keep the rows `rows` (ascending) of a pass in every layer, drop the other pending ones. ran: what the pass ran, where
        not all rows are pending in all layers; what a layer lacks it never gets, unless the rows wait."""
        if ran is not None and ran.pending:
            return self._commit_apart(rows, ran)
        if not are_pending(rows, min([store.m for store in self.layers])):
            for store in self.layers:
                store.check_pending(rows)  # all or none
        moving = CommitPlan.of(rows, self.layers[0].kv.device)
        for store in self.layers:
            store.keep(rows, moving)
        self.length += len(rows)
        if self.tree is not None and rows:
            self.tree.grow()

    def _commit_apart(self, rows: Sequence[int], ran: ExecutedLayers) -> None:
        own = [rows if i not in ran.pending else ran.kept_rows(i, rows) for i in range(len(self.layers))]
        for store, mine in zip(self.layers, own, strict=True):
            store.check_pending(mine)  # all or none
        reached = len(self.layers) if ran.left is None else ran.left.layer
        for i, (store, mine) in enumerate(zip(self.layers, own, strict=True)):
            here = {ran.pending[i][at] for at in mine} if i in ran.pending else set(rows)
            lost = [k for k, row in enumerate(rows) if row not in here]
            self.absent += [(i, self.length + k) for k in lost]
            if i < reached and lost:
                store.mark_missing(self.length + lost[0])
            if store.m:
                store.commit(mine)
        self.length += len(rows)
        self._update_deferred(rows, ran, reached)

    def _update_deferred(self, rows: Sequence[int], ran: ExecutedLayers, reached: int) -> None:
        """Those that a pass took along wait no longer, or where it stopped itself, before the layer `reached`."""
        went = [x for layer, x in self.waiting.items() if layer < reached]
        self._note_filled(went, reached)
        stays = {layer: x for layer, x in self.waiting.items() if layer >= reached}
        if ran.left is not None:
            along = len(ran.left) - ran.fed
            now = ran.left.select([*range(along), *(along + row for row in rows)])
            old = stays.get(reached)
            if len(now):
                stays[reached] = now if old is None else old.concat(now)
                self.memory.take(*stays[reached].tensors)
                went += [] if old is None else [old]
        self.memory.give(*(y for x in went for y in x.tensors))
        self.waiting = stays

    def finish_flush(self, first: DeferredTokens) -> None:
        """Keep all pending rows: `first` and all that waited above have gone on to the last layer."""
        for store in self.layers:
            if store.m:
                store.commit(range(store.m))
        self._note_filled([first, *self.waiting.values()], len(self.layers))
        self.memory.give(*first.tensors)
        self._replace_deferred({})

    def _note_filled(self, went: Sequence[DeferredTokens], reached: int) -> None:
        """Note that tokens that had waited now have entries below the layer `reached`."""
        for x in went:
            self.filled.append((range(x.layer, reached), x.positions[0]))

    @property
    def deferred_tokens(self) -> int:
        """How many tokens wait."""
        return sum(map(len, self.waiting.values()))

    @property
    def extra_entries(self) -> int:
        """Entries without tokens, per layer and KV head."""
        return sum(x.entries for x in self.outside) if self.outside else 0

    @property
    def extra_bytes(self) -> int:
        """Bytes of them."""
        return sum(kv.untyped_storage().nbytes() for x in self.outside for kv in x.tensors)

    def keep_as_extra_kv(self, kind: Kind, origin: str = "") -> None:
        """Keep all pending rows as entries without tokens, after the committed ones: they are not part of the text."""
        kept = ExtraEntries(
            kind, self.length, tuple(copy_pending((x.k, x.v), x.n) for x in self.layers), origin
        )
        self.memory.take(*kept.kv)
        self.outside.append(kept)
        self.rollback()

    def set_extra_kv(self, extra: Sequence[ExtraKV]) -> None:
        """Let every row attend to these as well, and to no others; nothing is read yet."""
        self.memory.take(*(kv for x in extra for kv in x.tensors))
        self.memory.give(*(kv for x in self.outside for kv in x.tensors))
        self.outside = [*extra]

    def track_positions(self) -> None:
        """Let entries be committed in any order of the text; nothing is pending. The feed then defines what a row sees."""
        for store in self.layers:
            store.track_positions()

    def rollback(self) -> None:
        """Drop every pending row in every layer."""
        for store in self.layers:
            store.rollback()

    @contextmanager
    def rewind(self, start: int, rows: int) -> Iterator[None]:
        """Every layer as it was when it held `start` entries, for a pass of at most `rows` rows that is then forgotten."""
        with ExitStack() as layers:
            for store in self.layers:
                layers.enter_context(store.rewind(start, rows))
            yield

    def truncate(self, length: int) -> None:
        """Forget every entry at position >= `length`, and pending ones; also extra entries that come after more of the text."""
        for store in self.layers:
            store.truncate(length)
        self.memory.give(*(kv for x in self.outside if x.at > length for kv in x.tensors))
        self.outside = [x for x in self.outside if x.at <= length]
        if self.waiting:
            self._replace_deferred(
                {layer: y for layer, x in self.waiting.items() if len(y := x.before_position(length))}
            )
        self.length = min(self.length, length)

    def _replace_deferred(self, waiting: dict[int, DeferredTokens]) -> None:
        self.memory.take(*(y for x in waiting.values() for y in x.tensors))
        self.memory.give(*(y for x in self.waiting.values() for y in x.tensors))
        self.waiting = waiting

    def shrink(self) -> None:
        """Return memory that no layer needs."""
        for store in self.layers:
            store.shrink()

    def reorder(self, order: Tensor) -> None:
        """Make sequence b a copy of sequence order[b] (int64 [B'])."""
        if self.tree is not None:
            self.tree.reorder(order.tolist())
            self.shared = len(self.tree.root.slots) if len(order) > 1 else 0
        for store in self.layers:
            store.reorder(order)
        if self.tree is not None:
            self.tree.moved = None  # every layer has moved its entries
        if self.waiting:
            self._replace_deferred({layer: x.reorder(order) for layer, x in self.waiting.items()})
        if self.reference is not None:
            self.reference.reorder(order)

    @property
    def fullest_length(self) -> int:
        """Entries per KV head of the fullest layer."""
        return max(store.n for store in self.layers)

    def lengths(self) -> int | list[int] | list[list[int]]:
        """Entries per KV head: one number where all layers hold as many, else one for each layer, or, where heads differ, for
        each layer and head of sequence 0."""
        first, alike = self.layers[0].n, True
        for store in self.layers:
            if store.heads is not None:
                return [x.lengths for x in self.layers]
            alike &= store.n == first
        return first if alike else [store.n for store in self.layers]

    @property
    def distinct_entries(self) -> int | None:
        """Entries per KV head that a pass loads, for any reader; None if sequences share all of what `shared` counts, or
        nothing."""
        return None if self.tree is None or self.layers[0].batch == 1 else self.tree.loaded_entries

    def nodes(self) -> list[SharedNode]:
        """The entries that sequences have in common and those that each has alone, where none is held twice; empty where there
        is one sequence, or each has a cache of its own, or they have nothing in common."""
        batch, length = self.layers[0].batch, self.layers[0].n
        if batch == 1:
            return []
        if self.tree is not None:
            return self.tree.shared_nodes() if self.tree.root.slots else []
        own = [SharedNode(0, self.shared, length, 1)] * (batch if length > self.shared else 0)
        return [SharedNode(-1, 0, self.shared, batch), *own] if self.shared else []

    @property
    def nbytes(self) -> int:
        """Bytes of all storages that exist because of this cache, each counted once. They hold keys and values with the free
        room in their pages, packed blocks with what they are decoded by, columns, positions, bounds of pages, masks of a tree,
        tokens that wait, and entries without tokens.

        Not counted are weights and rotation tables, which belong to the model, positions of pending rows, which are those of
        the pass, and a reference, which has a figure of its own. Neither are the counts of KV heads that hold different numbers
        of entries, 32 bytes a head.
        """
        own = sum([store.nbytes() for store in self.layers])
        if self.tree is not None:
            own += self.tree.memory.held
        if not self.waiting and not self.outside:
            return own
        waiting = sum(y.untyped_storage().nbytes() for x in self.waiting.values() for y in x.tensors)
        return own + self.extra_bytes + waiting

    def copy(self) -> KVCache:
        """An independent copy; nothing of it is shared."""
        return copy.deepcopy(self)
