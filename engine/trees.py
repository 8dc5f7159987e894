"""Tree shapes that drafters share: which rank of continuation is tried under which node."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from .draft import ROOT


@dataclass(frozen=True)
class Template:
    """A static tree. Node i is the continuation of rank ranks[i] (0: the best) of its parent (-1: the root).

    expected: tokens that a step yields under the rates it was built for, the target's own included
    """

    parents: tuple[int, ...]
    ranks: tuple[int, ...]
    expected: float

    def __len__(self) -> int:
        return len(self.parents)

    @cached_property
    def children(self) -> dict[int, list[int]]:
        """Node (ROOT: the root) -> its children by rank, from 0 without a gap."""
        found: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parents):
            found.setdefault(parent, []).append(node)
        return found


@cache
def best_tree(rates: tuple[float, ...], nodes: int, depth: int = 16) -> Template:
    """`shaped_tree` where the rates are the same at all of `depth` levels."""
    return shaped_tree((tuple(rates),) * depth, nodes)


@cache
def shaped_tree(rates: tuple[tuple[float, ...], ...], nodes: int) -> Template:
    """The tree of `nodes` nodes with the most expected accepted tokens, when the child of rank r of a node at level d (the
    root's children: 0) is the right one with probability rates[d][r], whatever came before. It has no more levels and ranks
    than there are rates; rates that rise from a rank to the next count as if they did not.

    A node's value is the product of the rates on its path. Children are never worth more than their parent, so taking
    the best open node again and again is optimal and keeps the tree closed (Cai et al. 2024, section 2.3.3).
    """
    falling = [[min(row[: r + 1]) for r in range(len(row))] for row in rates]
    parents: list[int] = []
    ranks: list[int] = []
    value = 1.0
    open_nodes = [(-falling[0][0], ROOT, 0, 0)]  # (-value, parent, rank, level)
    while open_nodes and len(parents) < nodes:
        negative, parent, rank, level = heapq.heappop(open_nodes)
        value -= negative
        parents.append(parent)
        ranks.append(rank)
        row, node = falling[level], len(parents) - 1
        if level + 1 < len(falling):
            heapq.heappush(open_nodes, (negative * falling[level + 1][0], node, 0, level + 1))
        if rank + 1 < len(row):
            sibling = negative / row[rank] * row[rank + 1] if row[rank] else 0.0
            heapq.heappush(open_nodes, (sibling, parent, rank + 1, level))
    return Template(tuple(parents), tuple(ranks), value)


@dataclass(frozen=True)
class Place:
    """A place in a growing draft. node: of the template; at: of the draft (ROOT: the root for both); path: tokens from the
    root, left out, down to it; state: the sampler's, after them."""

    node: int
    at: int
    path: tuple[int, ...]
    state: Any


class Growth:
    """A draft while it grows along a template, level by level: nodes, and the places that go on. `deepest`: levels that it
    may have."""

    def __init__(self, template: Template, deepest: int, state: Any = None):
        self.template, self.deepest = template, deepest
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.nodes: list[int] = []  # of the template
        self.open = [Place(ROOT, ROOT, (), state)] if deepest > 0 and len(template) else []

    def wanted(self, place: Place) -> int:
        """How many children the template gives to a place."""
        return len(self.template.children[place.node])

    def grow(self, tokens: Sequence[Sequence[int]], states: Sequence[Sequence[Any]] | None = None) -> None:
        """Put the next level under the open places: tokens[i], best or first drawn ones first, under the i-th of them; what
        the template has no room for is left out. states: the sampler's after each token; None: the place's own."""
        grown: list[Place] = []
        for i, place in enumerate(self.open):
            for rank, (node, token) in enumerate(zip(self.template.children[place.node], tokens[i], strict=False)):
                state = place.state if states is None else states[i][rank]
                grown.append(Place(node, len(self.tokens), (*place.path, token), state))
                self.tokens.append(token)
                self.parents.append(place.at)
                self.nodes.append(node)
        self.open = [x for x in grown if x.node in self.template.children and len(x.path) < self.deepest]

    @property
    def ranks(self) -> list[int]:
        """Per node of the draft, the rank that it stands for."""
        return [self.template.ranks[node] for node in self.nodes]
