"""Tree shapes that drafters share: the rank of the continuation at each node."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.values.draft import ROOT

# Notes of drafters that fill a template, and of those that score the paths of a tree.
SHAPED = {
    "ranks": Note("node", "rank", what="of the guess at its place, the best 0"),
    "expected": Note("series", "expected", "tokens", "of a step, by the rates that the tree was made for"),
}
PATH = Note(
    "node", "score", "nats", "log-probability of the path, by the draft's own distribution", summed=True
)


@dataclass(frozen=True)
class Template:
    """A static tree. Node i is the continuation of rank ranks[i] (0: the best) of its parent (-1: the root).

    expected: tokens per step under the rates it was built for, including the target's own
    """

    parents: tuple[int, ...]
    ranks: tuple[int, ...]
    expected: float

    def __len__(self) -> int:
        return len(self.parents)

    @cached_property
    def children(self) -> dict[int, list[int]]:
        """Node (ROOT: the root) -> its children by consecutive rank, from 0."""
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parents):
            children.setdefault(parent, []).append(node)
        return children


@cache
def best_tree(rates: tuple[float, ...], nodes: int, depth: int = 16) -> Template:
    """`shaped_tree` where the rates are the same at all of `depth` levels."""
    return shaped_tree((tuple(rates),) * depth, nodes)


def monotone_rates(rates: Sequence[Sequence[float]]) -> list[list[float]]:
    """The rates, by level and rank, made non-increasing: a rate that rises from one rank to the next counts as equal."""
    return [[min(row[: r + 1]) for r in range(len(row))] for row in rates]


@cache
def shaped_tree(rates: tuple[tuple[float, ...], ...], nodes: int) -> Template:
    """The tree of `nodes` nodes with the most expected accepted tokens.

    The child of rank r of a node at level d (the root's children: 0) is the right one with probability rates[d][r], whatever
    came before. The tree has no more levels and ranks than there are rates. Rates that rise from one rank to the next count as
    if they did not.

    A node's value is the product of the rates on its path. Children are never worth more than their parent. So always taking
    the best open node is optimal and keeps the tree closed (Cai et al. 2024, section 2.3.3).
    """
    sure = monotone_rates(rates)
    parents: list[int] = []
    ranks: list[int] = []
    value = 1.0
    open_nodes = [(-sure[0][0], ROOT, 0, 0)]  # (-value, parent, rank, level)
    while open_nodes and len(parents) < nodes:
        negative, parent, rank, level = heapq.heappop(open_nodes)
        value -= negative
        parents.append(parent)
        ranks.append(rank)
        row, node = sure[level], len(parents) - 1
        if level + 1 < len(sure):
            heapq.heappush(open_nodes, (negative * sure[level + 1][0], node, 0, level + 1))
        if rank + 1 < len(row):
            sibling = negative / row[rank] * row[rank + 1] if row[rank] else 0.0
            heapq.heappush(open_nodes, (sibling, parent, rank + 1, level))
    return Template(tuple(parents), tuple(ranks), value)


class SequoiaTable:
    """Sequoia's dynamic programme: the highest expected number of tokens of a tree, by its size and depth.

    rates[b]: probability that the b-th child of a node is the accepted one, at every level. The rates may be in any order,
    because children are tried in turn and none is left out. best[l][m], in doubles, counts the root: at most l levels below it,
    exactly m nodes with it; -inf: no such tree. W[b] is the same for b children of the root:

        W[b][m] = max over k of W[b - 1][m - k] + rates[b - 1] best[l - 1][k],   best[l][m] = max over b of W[b][m]

    (Chen et al. 2024, arXiv:2402.12374; Infini-AI-Lab/Sequoia, tree_search.py). Takes levels x ranks x nodes^2 additions, as
    tensor operations, and no loop over nodes.
    """

    def __init__(self, rates: Sequence[float], nodes: int, depth: int):
        size = nodes + 2  # m = 0 ... nodes + 1
        rows = torch.arange(size)
        back = rows[:, None] - rows  # [m, k] -> m - k
        alone = torch.full((size,), -torch.inf, dtype=torch.float64)
        alone[1] = 1.0
        self.best = [alone]
        self._width = [[0] * size]
        self._last = [[[0] * size]]
        for _ in range(depth):
            best, last = [alone], [[0] * size]
            for rate in rates:
                # 0 x inf is NaN
                under = torch.where(self.best[-1] > -torch.inf, rate * self.best[-1], -torch.inf)
                whole = torch.where(back > 0, best[-1][back.clamp_min(0)], -torch.inf) + under  # [m, k]
                most, k = whole.max(1)
                best.append(most)
                last.append(k.tolist())
            most, width = torch.stack(best).max(0)
            self.best.append(most)
            self._width.append(width.tolist())
            self._last.append(last)

    def expected_tokens(self, nodes: int, depth: int) -> float:
        """Tokens per step with the best tree of `nodes` nodes, not counting the root; -inf: there is none."""
        return float(self.best[depth][nodes + 1])

    def best_size(self, nodes: int, depth: int) -> int:
        """The number of nodes, up to `nodes`, with the most expected tokens; the fewest, if several."""
        return int(self.best[depth][1 : nodes + 2].argmax())

    def tree(self, nodes: int, depth: int) -> Template:
        """The best tree of `nodes` nodes, level by level."""
        parents: list[int] = []
        ranks: list[int] = []
        todo = deque([(ROOT, nodes + 1, depth)])  # node, size of its subtree including it, levels below it
        while todo:
            node, size, levels = todo.popleft()
            sizes: list[int] = []
            for b in range(self._width[levels][size], 0, -1):
                sizes.append(self._last[levels][b][size])
                size -= sizes[-1]
            for rank, child in enumerate(reversed(sizes)):
                todo.append((len(parents), child, levels - 1))
                parents.append(node)
                ranks.append(rank)
        return Template(tuple(parents), tuple(ranks), self.expected_tokens(nodes, depth))


@lru_cache(64)
def sequoia_tree(rates: tuple[float, ...], nodes: int, depth: int) -> Template:
    """The tree of at most `nodes` nodes and `depth` levels with the most expected tokens under `SequoiaTable`."""
    table = SequoiaTable(rates, nodes, depth)
    return table.tree(table.best_size(nodes, depth), depth)


class OpenNode(NamedTuple):
    """A place in a growing draft.

    node: of the template; at: of the draft (ROOT: the root for both); path: tokens from the root (excluded) down to it; state:
    the sampler's, after them.
    """

    node: int
    at: int
    path: tuple[int, ...]
    state: Any


class TemplateGrowth:
    """A draft that grows along a template, level by level.

    It holds the nodes, and the places that go on. `deepest`: the maximum number of levels.
    """

    def __init__(self, template: Template, deepest: int, state: Any = None):
        self.template, self.deepest = template, deepest
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.nodes: list[int] = []  # of the template
        self.open = [OpenNode(ROOT, ROOT, (), state)] if deepest > 0 and len(template) else []

    def keep_logits(self, ctx: Context, rows: Tensor | list[Tensor]) -> dict[int, Tensor]:
        """`Context.keep_logits` of the open places, whose children are from `rows` [R, V], one for each."""
        return ctx.keep_logits((place.at for place in self.open), rows)

    def child_count(self, place: OpenNode) -> int:
        """How many children the template gives to a place."""
        return len(self.template.children[place.node])

    def grow(self, tokens: Sequence[Sequence[int]], states: Sequence[Sequence[Any]] | None = None) -> None:
        """Add the next level under the open places: tokens[i], best or first drawn ones first, under the i-th of them.

        Tokens without room in the template are left out. states: the sampler's after each token; None: the place's own.
        """
        grown: list[OpenNode] = []
        children, deep = self.template.children, bool(self.open) and len(self.open[0].path) + 1 < self.deepest
        for i, place in enumerate(self.open):
            for rank, (node, token) in enumerate(zip(children[place.node], tokens[i], strict=False)):
                if deep and node in children:
                    state = place.state if states is None else states[i][rank]
                    grown.append(OpenNode(node, len(self.tokens), (*place.path, token), state))
                self.tokens.append(token)
                self.parents.append(place.at)
                self.nodes.append(node)
        self.open = grown

    @property
    def ranks(self) -> list[int]:
        """The rank of each node of the draft."""
        return [self.template.ranks[node] for node in self.nodes]


class BeamPool:
    """EAGLE-2's growing tree: a pool of nodes with scores; in the end the best are kept.

    tokens, parents, ranks, depth, scores: per node of the pool, level by level and so parents first; rank: its place among
    the continuations of its parent;  score: the sum of log q over its path, in nats;  open: the nodes that go on, best first
    """

    def __init__(self, width: int):
        self.width = width
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.ranks: list[int] = []
        self.depth: list[int] = []
        self.scores: list[float] = []
        self.open = [ROOT]

    def __len__(self) -> int:
        return len(self.tokens)

    def grow(self, laws: Tensor) -> None:
        """Add the `width` likeliest continuations under every open node, from distributions float [R, V], q after each.

        The best `width` of all new nodes go on. Tokens with q = 0 are left out.
        """
        best = laws.topk(min(self.width, laws.shape[-1]))
        first = len(self)
        for parent, tokens, values in zip(
            self.open, best.indices.tolist(), best.values.log().tolist(), strict=True
        ):
            above, level = (0.0, 1) if parent == ROOT else (self.scores[parent], self.depth[parent] + 1)
            # no probability is above 1
            scores = [above + min(log, 0.0) for log in values if log > -torch.inf]
            count = len(scores)
            self.tokens += tokens[:count]
            self.parents += [parent] * count
            self.ranks += range(count)
            self.depth += [level] * count
            self.scores += scores
        self.open = sorted(range(first, len(self)), key=self.scores.__getitem__, reverse=True)[: self.width]

    def ranking(self) -> list[int]:
        """All nodes, best score first; of equal ones (q = 1) the earlier, so that no child is before its parent."""
        return sorted(range(len(self)), key=self.scores.__getitem__, reverse=True)

    def is_settled(self, nodes: int) -> bool:
        """Whether the best `nodes` nodes are final: no later node can be better than the last of them."""
        if not self.open or len(self) < nodes:
            return not self.open
        return sorted(self.scores, reverse=True)[nodes - 1] >= self.scores[self.open[0]]
