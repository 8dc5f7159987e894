"""Tree search over trigrams: choose continuations of two tokens by the weights of the steps to them."""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate

import numpy as np

from .suffix_array import SuffixArray

SUCCESSORS = 12  # of a pair that are kept
BONUS, HIGHEST = 0.04, 3.0  # the amount that the newest text adds to a weight, and the upper limit
RECENT = 16  # tokens of the text that count as newest
EXPLORE, GROWTH = 32.0, 8.0  # constants of the exploration term

Pair = tuple[int, int]


class SuccessorTable:
    """For each pair of tokens the SUCCESSORS most frequent third ones of a text, with their probabilities. Read-only."""

    def __init__(self, ids: np.ndarray) -> None:
        ids = ids.astype(np.int64)
        # a negative id splits the text
        a = ids[:-2]
        b = ids[1:-1]
        c = ids[2:]
        whole = np.minimum(np.minimum(a, b), c) >= 0
        self.base = int(ids.max(initial=0)) + 1
        codes, counts = np.unique(
            (a[whole] * self.base + b[whole]) * self.base + c[whole], return_counts=True
        )
        pairs = codes // self.base
        # successors of a pair: most frequent first, then by id
        order = np.lexsort((codes, -counts, pairs))
        self._pairs, self._first = np.unique(pairs, return_index=True)
        self._third, self._counts = (codes % self.base)[order], counts[order]
        self._totals = np.add.reduceat(self._counts, self._first) if len(codes) else counts

    def __deepcopy__(self, memo: object) -> SuccessorTable:
        return self

    def followers(self, pair: Pair) -> dict[int, float]:
        """Successor -> its share of all that followed the pair, most frequent first; empty if the pair never came."""
        if not 0 <= max(pair) < self.base or not len(self._pairs):
            return {}
        code = pair[0] * self.base + pair[1]
        at = int(self._pairs.searchsorted(code))
        if at == len(self._pairs) or self._pairs[at] != code:
            return {}
        first = int(self._first[at])
        last = int(self._first[at + 1]) if at + 1 < len(self._first) else len(self._third)
        few, total = slice(first, min(last, first + SUCCESSORS)), int(self._totals[at])
        shares = [count / total for count in self._counts[few].tolist()]
        return dict(zip(self._third[few].tolist(), shares, strict=True))


@lru_cache(maxsize=4)
def load_successor_table(store: SuffixArray) -> SuccessorTable:
    """The trigrams of a datastore; the last few are cached."""
    return SuccessorTable(store.ids)


class SuccessorWeights(dict[int, float]):
    """Successor of a pair -> weight. Derived values are computed once, until a weight changes."""

    _heaviest: list[tuple[int, float]] | None = None
    _ids: list[int]
    _sums: list[float] | None = None

    @property
    def sorted_weights(self) -> list[tuple[int, float]]:
        """Successors and their weights, the heaviest first."""
        if self._heaviest is None:
            self._heaviest = sorted(self.items(), key=lambda x: -x[1])
        return self._heaviest

    def draw(self, u: float) -> int:
        """The successor that the uniform u draws, in proportion to the weights."""
        if self._sums is None:
            self._ids, self._sums = list(self), list(accumulate(self.values()))
        return self._ids[bisect(self._sums, u * self._sums[-1], 0, len(self._sums) - 1)]

    def raise_weight(self, token: int) -> None:
        """Add BONUS to a weight, up to HIGHEST."""
        self[token] = min(HIGHEST, self.get(token, 0.0) + BONUS)
        self._heaviest = self._sums = None


class TrigramWeights:
    """Trigrams with weights that rise with the text: probabilities become scores, which need not add up to one."""

    def __init__(self, table: SuccessorTable) -> None:
        self._table, self._length = table, 0
        self._rows: dict[Pair, SuccessorWeights] = {}  # only those requested so far

    def raise_recent(self, tokens: list[int]) -> None:
        """Add BONUS to every trigram of the last RECENT tokens, up to HIGHEST; once for a text."""
        if len(tokens) == self._length:
            return
        self._length, recent = len(tokens), tokens[-RECENT:]
        for a, b, c in zip(recent, recent[1:], recent[2:], strict=False):
            self.successor_weights((a, b)).raise_weight(c)

    def successor_weights(self, pair: Pair) -> SuccessorWeights:
        """Successor -> weight."""
        row = self._rows.get(pair)
        if row is None:
            row = self._rows[pair] = SuccessorWeights(self._table.followers(pair))
        return row


@lru_cache(maxsize=2048)
def exploration_weight(visits: int) -> float:
    """The weight of exploration at a place with N visits: (EXPLORE + ln((N + GROWTH + 1) / GROWTH)) sqrt(N)."""
    return (EXPLORE + math.log((visits + GROWTH + 1) / GROWTH)) * math.sqrt(visits)


@dataclass(eq=False, slots=True)
class SearchNode:
    """A place in the search. pair: the last two tokens there;  prior: weight of the step to it;  path: tokens to it;
    visits: searches through it;  total, mean: of their rewards;  part: prior / (1 + visits);  row: its successors and their
    weights, the heaviest first, None before it was grown;  visited: the children that a search went to, the first of these"""

    pair: Pair
    path: tuple[int, ...] = ()
    prior: float = 0.0
    visits: int = 0
    total: float = 0.0
    mean: float = 0.0
    part: float = 0.0
    row: list[tuple[int, float]] | None = None
    visited: list[SearchNode] = field(default_factory=list, repr=False)

    @property
    def children(self) -> list[SearchNode]:
        """The children for all successors, including unvisited ones."""
        row = self.row or []
        return self.visited + [self.child(*x) for x in row[len(self.visited) :]]

    def child(self, token: int, weight: float) -> SearchNode:
        """The unvisited place behind this one at `token`."""
        return SearchNode((self.pair[1], token), (*self.path, token), weight)

    def best_child(self) -> SearchNode:
        """The child with the largest mean + exploration_weight(N) prior / (1 + n), with N visits here and n there.

        Unvisited children come first, the heaviest of them.
        """
        assert self.row
        visited = self.visited
        if len(visited) < len(self.row):
            visited.append(self.child(*self.row[len(visited)]))
            return visited[-1]
        towards = exploration_weight(self.visits)
        scores = [x.mean + towards * x.part for x in visited]
        return visited[scores.index(max(scores))]


def search_tree(
    start: Pair, after: Callable[[Pair], SuccessorWeights], depth: int, iterations: int, seed: int = 0
) -> SearchNode:
    """The root of a tree, searched from the pair `start` to at most `depth` tokens.

    Each iteration descends by `SearchNode.best_child`, grows all successors of the place where it ends, and goes to the
    heaviest. From there it draws successors in proportion to their weights, as long as there are any. It adds the reward, 1
    plus the weights of all its steps, to every place on its path.
    """
    chance, root = random.Random(seed).random, SearchNode(start)
    for _ in range(iterations):
        at, way = root, [root]
        while at.row and len(way) <= depth:
            at = at.best_child()
            way.append(at)
        if at.row is None and len(way) <= depth:
            at.row = after(at.pair).sorted_weights
            if at.row:
                at = at.best_child()
                way.append(at)
        reward, pair = 1.0 + sum([x.prior for x in way]), at.pair
        for _ in range(depth + 1 - len(way)):
            onward = after(pair)
            if not onward:
                break
            token = onward.draw(chance())
            reward, pair = reward + onward[token], (pair[1], token)
        for x in way:
            x.visits = n = x.visits + 1
            x.total = total = x.total + reward
            x.mean, x.part = total / n, x.prior / (1 + n)
    return root


def visited_nodes(root: SearchNode) -> Iterator[SearchNode]:
    """All visited places but the root, a parent before its children."""
    todo = [root]
    for place in todo:  # grows while it is walked
        todo += place.visited
        yield from place.visited
