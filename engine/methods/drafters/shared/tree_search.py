"""Tree search over trigrams: which continuations of two tokens are worth a try, by the weights of the steps to them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from .suffix_array import SuffixArray

SUCCESSORS = 12  # of a pair that are kept
BONUS, HIGHEST = 0.04, 3.0  # what the newest text adds to a weight, and where that ends
RECENT = 16  # tokens of the text that count as newest
EXPLORE, GROWTH = 32.0, 8.0  # constants of the exploration term

Pair = tuple[int, int]


class Trigrams:
    """For each pair of tokens the SUCCESSORS most frequent third ones of a text, with their probabilities. Read-only."""

    def __init__(self, ids: np.ndarray) -> None:
        ids = ids.astype(np.int64)
        a, b, c = ids[:-2], ids[1:-1], ids[2:]  # a negative id parts the text
        whole = np.minimum(np.minimum(a, b), c) >= 0
        self.base = int(ids.max(initial=0)) + 1
        codes, counts = np.unique((a[whole] * self.base + b[whole]) * self.base + c[whole], return_counts=True)
        pairs = codes // self.base
        order = np.lexsort((codes, -counts, pairs))  # of a pair's successors the most frequent first, then by id
        self._pairs, self._first = np.unique(pairs, return_index=True)
        self._last = np.append(self._first[1:], len(codes))
        self._third, self._counts = (codes % self.base)[order], counts[order]

    def __deepcopy__(self, memo: object) -> Trigrams:
        return self

    def after(self, pair: Pair) -> dict[int, float]:
        """Successor -> its share of all that followed the pair, most frequent first; empty if the pair never came."""
        if not 0 <= max(pair) < self.base or not len(self._pairs):
            return {}
        code = pair[0] * self.base + pair[1]
        at = int(np.searchsorted(self._pairs, code))
        if at == len(self._pairs) or self._pairs[at] != code:
            return {}
        first, last = self._first[at], self._last[at]
        shares = self._counts[first:last] / self._counts[first:last].sum()
        return dict(zip(self._third[first:last].tolist()[:SUCCESSORS], shares.tolist(), strict=False))


@lru_cache(maxsize=4)
def trigrams(store: SuffixArray) -> Trigrams:
    """The trigrams of a datastore; the last few are kept."""
    return Trigrams(store.ids)


class Weights:
    """Trigrams whose weights rise with the text: of probabilities they become scores, which need not add up to one."""

    def __init__(self, table: Trigrams) -> None:
        self._table, self._length = table, 0
        self._rows: dict[Pair, dict[int, float]] = {}  # those that were asked for

    def read(self, tokens: list[int]) -> None:
        """Add BONUS to every trigram of the last RECENT tokens, up to HIGHEST; once for a text."""
        if len(tokens) == self._length:
            return
        self._length, recent = len(tokens), tokens[-RECENT:]
        for a, b, c in zip(recent, recent[1:], recent[2:], strict=False):
            row = self._row((a, b))
            row[c] = min(HIGHEST, row.get(c, 0.0) + BONUS)

    def _row(self, pair: Pair) -> dict[int, float]:
        if pair not in self._rows:
            self._rows[pair] = self._table.after(pair)
        return self._rows[pair]

    def after(self, pair: Pair) -> Mapping[int, float]:
        """Successor -> weight."""
        return self._row(pair)


@dataclass(eq=False)
class Place:
    """A place in the search. pair: the last two tokens there;  prior: weight of the step to it;  path: tokens to it;
    visits: searches through it;  total: their rewards, added up;  children: of all its successors, None before it was grown"""

    pair: Pair
    path: tuple[int, ...] = ()
    prior: float = 0.0
    visits: int = 0
    total: float = 0.0
    children: list[Place] | None = field(default=None, repr=False)

    @property
    def mean(self) -> float:
        """The mean reward."""
        return self.total / self.visits if self.visits else 0.0

    def best(self) -> Place:
        """The child with the largest mean + (EXPLORE + ln((N + GROWTH + 1) / GROWTH)) prior sqrt(N) / (1 + n), N being the
        visits here and n there; one that was never visited comes first, in the order of the children."""
        assert self.children
        fresh = next((x for x in self.children if not x.visits), None)
        if fresh is not None:
            return fresh
        pull = (EXPLORE + math.log((self.visits + GROWTH + 1) / GROWTH)) * math.sqrt(self.visits)

        def score(x: Place) -> float:
            return x.total / x.visits + pull * x.prior / (1 + x.visits)

        return max(self.children, key=score)


def search(start: Pair, after: Callable[[Pair], Mapping[int, float]], depth: int, iterations: int, seed: int = 0) -> Place:
    """The root of a tree, searched from the pair `start` to at most `depth` tokens.

    Each iteration goes down by `Place.best`, grows all successors of the place where it ends and goes to the heaviest, from
    there draws successors in proportion to their weights as far as there are any, and adds the reward, 1 and the weights of
    all its steps, to every place on its way.
    """
    rng, root = random.Random(seed), Place(start)
    for _ in range(iterations):
        way, reward = [root], 1.0
        while way[-1].children and len(way[-1].path) < depth:
            way.append(way[-1].best())
        at = way[-1]
        if at.children is None and len(at.path) < depth:
            row = sorted(after(at.pair).items(), key=lambda x: -x[1])
            at.children = [Place((at.pair[1], x), (*at.path, x), w) for x, w in row]
            way += at.children[:1]
        reward += sum(x.prior for x in way)
        pair, length = way[-1].pair, len(way[-1].path)
        while length < depth and (onward := after(pair)):
            token = rng.choices(list(onward), list(onward.values()))[0]
            reward, pair, length = reward + onward[token], (pair[1], token), length + 1
        for x in way:
            x.visits += 1
            x.total += reward
    return root


def places(root: Place) -> Iterator[Place]:
    """All visited places but the root, a parent before its children."""
    todo = [root]
    for place in todo:  # grows while it is walked
        visited = [x for x in place.children or () if x.visits]
        todo += visited
        yield from visited
