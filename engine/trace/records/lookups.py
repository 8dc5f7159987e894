"""Lookups: what a cache of answers did at each request of a workload, and the arithmetic by which it lets answers go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, get_args

Query = int | str  # what is asked: the number of a prompt, or its text
Evicts = Literal["lec", "gdsf", "lru"]
EVICTS: tuple[Evicts, ...] = get_args(Evicts)


@dataclass
class Lookup:
    """One request. number: from 0;  query: what was asked;  cost: of the answer, 0.0 for a hit;  size: of the answer
    held:    answers that were weighed since room was needed, the new one among them if it may stay out;  scores: of each, the
             lowest goes first
    victims: those that went, in that order; the query itself: its answer was not kept
    used:    sizes of all answers that are held after it;  clock: of gdsf, the score of the last victim
    """

    number: int
    query: Query
    hit: bool
    cost: float
    size: int
    used: int
    held: list[Query] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    victims: list[Query] = field(default_factory=list)
    clock: float = 0.0


@dataclass
class _QueryStats:
    """asked: requests so far;  costs: of each time it was answered;  last: number of the last request
    size, since, worth: of an answer that is held: its size, requests since it came, and its score under gdsf"""

    asked: int = 0
    costs: list[float] = field(default_factory=list)
    last: int = 0
    size: int = 0
    since: int = 0
    worth: float = 0.0

    @property
    def mean_cost(self) -> float:
        """Mean cost of an answer."""
        return sum(self.costs) / len(self.costs)


class HeldAnswers:
    """Which answers are held, without the answers: `capacity` in the unit of their sizes, one number for each query.

    lec:  least expected cost: (n_q / sum n) c_q, of all requests so far, also of queries that are not held; a new answer that
          is worth least is not kept
    gdsf: greedy dual size with frequency: K_q = clock + n_q c_q / size_q, set when an answer comes or is hit, n_q counted since
          it came; the clock is the score of the last victim
    lru:  the number of the last request
    """

    def __init__(self, evicts: Evicts, capacity: int):
        self.evicts, self.capacity = evicts, capacity
        self.held: dict[Query, None] = {}  # in the order in which they came
        self._known: dict[Query, _QueryStats] = {}
        self._clock, self._number = 0.0, 0

    @property
    def used_size(self) -> int:
        """Sizes of all answers that are held."""
        return sum(self._known[x].size for x in self.held)

    def hit(self, query: Query) -> Lookup | None:
        """A request with a held answer; None, and nothing is counted, if the answer is not held."""
        if query not in self.held:
            return None
        known = self._ask(query)
        known.since += 1
        known.worth = self._clock + known.since * known.mean_cost / known.size
        return self._finish_lookup(Lookup(self._number, query, True, 0.0, known.size, self.used_size))

    def miss(self, query: Query, cost: float, size: int) -> Lookup:
        """A request that was answered at `cost` with an answer of `size`, at least 1, and what went to make room for it."""
        assert query not in self.held and size >= 1
        known = self._ask(query)
        known.costs.append(cost)
        known.size, known.since = size, 1
        lookup = Lookup(self._number, query, False, cost, size, 0)
        if size > self.capacity:
            lookup.victims = [query]
        elif self.used_size + size > self.capacity:
            self._make_room(lookup)
        if query not in lookup.victims:
            self.held[query] = None
            known.worth = self._clock + cost / size
        lookup.used = self.used_size
        return self._finish_lookup(lookup)

    def score(self, query: Query) -> float:
        """The current value of an answer; the lowest is evicted first, of equal ones the one that came first."""
        known = self._known[query]
        if self.evicts == "lru":
            return float(known.last)
        if self.evicts == "gdsf":
            return known.worth
        return known.asked / sum(x.asked for x in self._known.values()) * known.mean_cost

    def _make_room(self, lookup: Lookup) -> None:
        """Choose victims until the new answer fits."""
        lookup.held = [*self.held, *([lookup.query] if self.evicts == "lec" else [])]
        lookup.scores = [self.score(x) for x in lookup.held]
        worth = dict(zip(lookup.held, lookup.scores, strict=True))
        while self.used_size + lookup.size > self.capacity:
            victim = min(worth, key=worth.__getitem__)
            lookup.victims.append(victim)
            if victim == lookup.query:
                return
            lost = worth.pop(victim)
            self._clock = lost if self.evicts == "gdsf" else 0.0
            del self.held[victim]

    def _ask(self, query: Query) -> _QueryStats:
        known = self._known.setdefault(query, _QueryStats())
        known.asked, known.last = known.asked + 1, self._number
        return known

    def _finish_lookup(self, lookup: Lookup) -> Lookup:
        lookup.clock = self._clock
        self._number += 1
        return lookup


def replay_lookups(lookups: Sequence[Lookup], evicts: Evicts, capacity: int) -> list[Lookup]:
    """The same requests before another cache. A query costs there what it cost the last time before it, or the first time, and
    its answer has that size: exact where answers follow from their queries.

    ValueError for a query that no lookup has a cost of."""
    first = {x.query: (x.cost, x.size) for x in reversed(lookups) if not x.hit}
    shelf, out = HeldAnswers(evicts, capacity), []
    for one in lookups:
        if one.query not in first:
            raise ValueError(f"query {one.query!r} was never answered, so nothing says what it costs.")
        if not one.hit:
            first[one.query] = one.cost, one.size
        out.append(shelf.hit(one.query) or shelf.miss(one.query, *first[one.query]))
    return out


def check_lookups(lookups: Sequence[Lookup], evicts: Evicts, capacity: int) -> Iterator[str]:
    """Problems of the requests to a cache, which are repeated."""
    shelf = HeldAnswers(evicts, capacity)
    for one in lookups:
        due = shelf.hit(one.query)
        if due is None and (one.hit or one.size < 1 or one.cost < 0):
            yield f"request {one.number} is recorded as a hit or without a size, and query {one.query!r} was not held"
            return
        due = due or shelf.miss(one.query, one.cost, one.size)
        said = asdict(one)
        wrong = next((name for name, value in asdict(due).items() if said[name] != value), None)
        if wrong is not None:
            yield f"request {one.number} has {wrong} = {said[wrong]}, and by the requests before it is {asdict(due)[wrong]}"
            return
