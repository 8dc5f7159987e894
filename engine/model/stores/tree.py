"""Tree: what the texts of a batch have in common, as nodes of entries, and the groups in which a pass reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

import torch
from torch import Tensor

from ..layers.memory import Memory

# How a pass reads a tree: every text meets every entry, masked; node by node; or in blocks of equal size
TreePlan = Literal["dense", "node", "flatten"]
PLANS: tuple[TreePlan, ...] = ("dense", "node", "flatten")


@dataclass(eq=False)
class CacheNode:
    """Entries that follow each other in a text and are read by the same texts.

    first: position of the first of them;  slots: their slots, the same in every layer
    """

    first: int
    slots: list[int]
    parent: CacheNode | None = None
    children: list[CacheNode] = field(default_factory=list)

    @property
    def stop(self) -> int:
        """The position after the last of them."""
        return self.first + len(self.slots)


@dataclass(frozen=True)
class SharedNode:
    """A node as a record shows it: its entries are at positions first to stop - 1 and are read by `refs` texts; parent:
    the number of the node before it, -1 for the first."""

    parent: int
    first: int
    stop: int
    refs: int


@dataclass(frozen=True)
class ReadGroup:
    """Entries that a pass loads once, and the texts with queries for them (KV-guided grouping).

    slots: of the entries: a slice, or int64 [s];  places: int64 [s], their positions
    texts: int64 [Q], the texts that read them, None: all;  mask: bool [Q, s], which of them each text reads, None: all
    """

    slots: slice | Tensor
    places: Tensor
    texts: Tensor | None
    mask: Tensor | None


class CacheTree:
    """The entries of several texts of the same length, each entry once. A node that is no leaf has two children or more, so
    there are fewer than twice as many nodes as texts. Entries that no text reads any more stay until they
    are worth a move.

    leaves: the last node of each text, in the order of the batch
    used:   slots that are taken, `dead` of them by entries that no text reads
    moved:  (slot, slots): after the last call of `rows` the entries from `slots` (int64) are consecutive from `slot` on, node
            by node, and other entries after it are gone; None: everything is where it was, or was moved in every layer
    plan, block: how a pass reads the tree; block: entries of a group where it is cut evenly
    memory: counts the masks that it keeps between passes
    """

    def __init__(
        self,
        length: int,
        device: torch.device,
        plan: TreePlan = "dense",
        block: int = 128,
        memory: Memory | None = None,
    ):
        self.plan = plan
        self.block = block
        self.device = device
        self.leaves = [CacheNode(0, list(range(length)))]
        self.used, self.dead = length, 0
        self.moved: tuple[int, Tensor] | None = None
        self._sees = torch.ones(1, length, dtype=torch.bool, device=device)  # [B, used]
        self._places = torch.arange(length, device=device)  # [used]
        self._groups: list[ReadGroup] | None = None
        self.memory = Memory(memory)
        self.memory.take(self._sees, self._places)

    @property
    def length(self) -> int:
        """Entries of each text."""
        return self.leaves[0].stop

    @property
    def root(self) -> CacheNode:
        """The node that all texts begin with."""
        node = self.leaves[0]
        while node.parent is not None:
            node = node.parent
        return node

    @property
    def live_entries(self) -> int:
        """Entries that some text reads, each counted once."""
        return self.used - self.dead

    def grow(self) -> None:
        """Each text has one further entry; those of a batch are in its order, after the used slots."""
        self._set_masks(*self._extend_masks())
        for i, leaf in enumerate(self.leaves):
            leaf.slots.append(self.used + i)
        self.used += len(self.leaves)
        self._groups = None

    def reorder(self, order: Sequence[int]) -> None:
        """Let text b go on after text order[b]. No entry is copied; dead ones may go (`moved`)."""
        heirs = Counter(order)
        for i, leaf in enumerate(self.leaves):
            if not heirs[i]:
                self._drop(leaf)
        self.leaves = [self._new_leaf(self.leaves[i], heirs[i]) for i in order]
        self._set_masks(self._sees[torch.tensor(order, device=self.device)], self._places)
        self._groups, self.moved = None, self._collect()

    def _set_masks(self, sees: Tensor, places: Tensor) -> None:
        self.memory.take(sees, places)
        self.memory.give(self._sees, self._places)
        self._sees, self._places = sees, places

    def _new_leaf(self, leaf: CacheNode, heirs: int) -> CacheNode:
        if heirs == 1:
            return leaf
        node = CacheNode(leaf.stop, [], leaf)
        leaf.children.append(node)
        return node

    def _drop(self, leaf: CacheNode) -> None:
        """Remove a leaf without readers; a sibling that is then alone is merged with the node before it."""
        self.dead += len(leaf.slots)
        parent = leaf.parent
        assert parent is not None, "some text goes on"
        parent.children.remove(leaf)
        if len(parent.children) == 1:
            heir = parent.children[0]
            heir.first = parent.first
            heir.slots = parent.slots + heir.slots
            heir.parent = parent.parent
            if parent.parent is not None:
                siblings = parent.parent.children
                siblings[siblings.index(parent)] = heir

    def _collect(self) -> tuple[int, Tensor] | None:
        """Remove dead entries, once there are 16 and as many as live ones after the first node; for `moved`."""
        if self.dead < max(16, self.live_entries - len(self.root.slots)):
            return None
        nodes = [node for node, _, _ in self._walk()]
        kept = [slot for node in nodes for slot in node.slots]
        first = next((i for i, slot in enumerate(kept) if i != slot), len(kept))
        order = torch.tensor(kept, device=self.device)
        self._set_masks(self._sees[:, order], self._places[order])
        at = 0
        for node in nodes:
            node.slots = list(range(at, at + len(node.slots)))
            at += len(node.slots)
        self.used = len(kept)
        self.dead = 0
        self._groups = None
        return first, order[first:]

    def _walk(self) -> Iterator[tuple[CacheNode, int, list[int]]]:
        """The nodes, each after its parent, with that one's number (-1: none) and the texts that read it."""
        below: dict[int, list[int]] = {}
        for i, leaf in enumerate(self.leaves):
            node: CacheNode | None = leaf
            while node is not None:
                below.setdefault(id(node), []).append(i)
                node = node.parent
        number = 0
        stack = [(self.root, -1)]
        while stack:
            node, parent = stack.pop()
            yield node, parent, below[id(node)]
            stack += [(child, number) for child in reversed(node.children)]
            number += bool(node.slots)

    @property
    def loaded_entries(self) -> int:
        """Entries of those before it that a pass loads, each once."""
        return self.used if self.plan == "dense" else self.live_entries

    def shared_nodes(self) -> list[SharedNode]:
        """The nodes as a record shows them, without those that have no entry yet."""
        return [
            SharedNode(parent, node.first, node.stop, len(texts))
            for node, parent, texts in self._walk()
            if node.slots
        ]

    def paths(self) -> Tensor:
        """int64 [B, length]: the slots of each text."""
        return torch.tensor([self._path(leaf) for leaf in self.leaves], device=self.device)

    def _path(self, leaf: CacheNode) -> list[int]:
        slots, node = leaf.slots, leaf.parent
        while node is not None:
            slots, node = node.slots + slots, node.parent
        return slots

    def groups(self) -> list[ReadGroup]:
        """The groups that a pass reads, in which each text has one further entry: kept until the tree changes."""
        if self._groups is None:
            self._groups = self._dense_groups() if self.plan == "dense" else list(self._cut_groups())
        return self._groups

    def _extend_masks(self) -> tuple[Tensor, Tensor]:
        """`sees` and `places` with a further entry of each text."""
        count = len(self.leaves)
        own = torch.eye(count, dtype=torch.bool, device=self.device)
        places = torch.full((count,), self.length, device=self.device)
        return torch.cat([self._sees, own], 1), torch.cat([self._places, places])

    def _dense_groups(self) -> list[ReadGroup]:
        sees, places = self._extend_masks()
        alone = len(self.leaves) == 1 and not self.dead
        return [ReadGroup(slice(0, self.used + len(self.leaves)), places, None, None if alone else sees)]

    def _cut_groups(self) -> Iterator[ReadGroup]:
        """One group per node; or, flattened, the nodes one after another in even blocks, with masks that assign entries to
        texts."""
        pending = {id(leaf): self.used + i for i, leaf in enumerate(self.leaves)}
        nodes = [
            ([*node.slots, pending[id(node)]] if id(node) in pending else node.slots, node.first, texts)
            for node, _, texts in self._walk()
            if node.slots or id(node) in pending  # after a prompt of one token the first node has nothing
        ]
        if self.plan == "node":
            for slots, first, texts in nodes:
                yield self._group(slots, range(first, first + len(slots)), texts, None)
            return
        slots = list(chain.from_iterable(slots for slots, _, _ in nodes))
        places = list(chain.from_iterable(range(first, first + len(slots)) for slots, first, _ in nodes))
        reads = torch.zeros(len(nodes), len(self.leaves), dtype=torch.bool)
        for row, (_, _, texts) in zip(reads, nodes, strict=True):
            row[texts] = True
        reads = reads.repeat_interleave(torch.tensor([len(x[0]) for x in nodes]), 0).T  # [B, S]
        for at in range(0, len(slots), self.block):
            part = slice(at, at + self.block)
            texts = reads[:, part].any(1).nonzero().flatten().tolist()
            mask = reads[texts, part]
            yield self._group(slots[part], places[part], texts, None if bool(mask.all()) else mask)

    def _group(
        self, slots: list[int], places: Sequence[int], texts: list[int], mask: Tensor | None
    ) -> ReadGroup:
        straight = slots == list(range(slots[0], slots[0] + len(slots)))
        return ReadGroup(
            slice(slots[0], slots[0] + len(slots)) if straight else torch.tensor(slots, device=self.device),
            torch.tensor(places, device=self.device),
            None if len(texts) == len(self.leaves) else torch.tensor(texts, device=self.device),
            None if mask is None else mask.to(self.device),
        )
