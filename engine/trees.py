"""Tree shapes that drafters share: which rank of continuation is tried under which node."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache


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


@cache
def best_tree(rates: Sequence[float], nodes: int, depth: int = 16) -> Template:
    """The tree of `nodes` nodes with the most expected accepted tokens, when a node's child of rank r is the right one
    with probability rates[r] (non-increasing), whatever came before.

    A node's value is the product of the rates on its path. Children are never worth more than their parent, so taking
    the best open node again and again is optimal and keeps the tree closed (Cai et al. 2024, section 2.3.3).
    """
    parents: list[int] = []
    ranks: list[int] = []
    value = 1.0
    open_nodes = [(-rates[0], -1, 0, 1)]  # (-value, parent, rank, depth)
    while open_nodes and len(parents) < nodes:
        negative, parent, rank, level = heapq.heappop(open_nodes)
        value -= negative
        parents.append(parent)
        ranks.append(rank)
        node = len(parents) - 1
        if level < depth:
            heapq.heappush(open_nodes, (negative * rates[0], node, 0, level + 1))
        if rank + 1 < len(rates):
            heapq.heappush(open_nodes, (negative / rates[rank] * rates[rank + 1], parent, rank + 1, level))
    return Template(tuple(parents), tuple(ranks), value)
