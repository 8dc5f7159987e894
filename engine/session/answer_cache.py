"""Answers: a cache of answers in front of a model, by the exact query; a query in the cache costs no pass. No torch.

Zhu et al. 2023, arXiv:2306.02003, put it before a choice of models (`engine/methods/routers/expected_cost.py`). An answer costs
what the chosen branches cost, and eviction goes by that. Least expected cost is as recalled from their algorithm for online
learning, where a new answer that is worth least is not kept; GDSF as Cherkasova 1998 has it. Neither text was at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

from decodescope.engine.core.arguments import check_choice, check_whole_number
from decodescope.engine.trace.records.lookups import EVICTS, Evicts, HeldAnswers, Lookup, Query

T = TypeVar("T")


@dataclass(frozen=True)
class CachedAnswer(Generic[T]):
    """An answer, what it cost (any unit, the same for all, such as FLOP), and its size (such as tokens), at least 1."""

    value: T
    cost: float
    size: int = 1


class AnswerCache(Generic[T]):
    """A cache with room for answers of `capacity` in all, in the unit of their sizes.

    `evicts`: "lec", "gdsf" or "lru", as `HeldAnswers` describes them. lookups: of every request so far.
    """

    def __init__(self, capacity: int, evicts: Evicts = "lec"):
        check_choice(evicts, "evicts", EVICTS)
        self.shelf = HeldAnswers(evicts, check_whole_number(capacity, "capacity", 1))
        self.lookups: list[Lookup] = []
        self._values: dict[Query, T] = {}

    def ask(self, query: Query, answer: Callable[[], CachedAnswer[T]]) -> T:
        """The cached answer to `query`; if there is none, the result of `answer`, which is called only then."""
        lookup = self.shelf.hit(query)
        if lookup is not None:
            self.lookups.append(lookup)
            return self._values[query]
        fresh = answer()
        lookup = self.shelf.miss(query, float(fresh.cost), fresh.size)
        self.lookups.append(lookup)
        if query not in lookup.victims:
            self._values[query] = fresh.value
        for gone in lookup.victims:
            self._values.pop(gone, None)
        return fresh.value

    def __len__(self) -> int:
        """How many answers are held."""
        return len(self._values)


@dataclass(frozen=True)
class WorkloadTotals:
    """Totals of a workload: requests, hits, the cost paid, and the cost that the hits saved.

    A hit saves the cost of the first answer to its query.
    """

    requests: int
    hits: int
    cost: float
    saved: float


def workload_totals(lookups: Iterable[Lookup]) -> WorkloadTotals:
    """The sums of a workload, in its order."""
    every = list(lookups)
    first = {x.query: x.cost for x in reversed(every) if not x.hit}
    saved = sum(first[x.query] for x in every if x.hit)
    return WorkloadTotals(len(every), sum(x.hit for x in every), sum(x.cost for x in every), saved)


def zipf_requests(queries: int, requests: int, exponent: float = 1.0, seed: int = 0) -> list[int]:
    """Numbers of `requests` queries, drawn independently.

    The query of rank i, from 1 to `queries`, has a chance in proportion to i^-exponent. The same for the same seed.
    """
    weights = [(i + 1) ** -exponent for i in range(queries)]
    return Random(f"zipf/{seed}").choices(range(queries), weights, k=requests)


def serve_requests(
    answers: AnswerCache[T], requests: Sequence[int], answer: Callable[[int], CachedAnswer[T]]
) -> Iterator[tuple[Lookup, T]]:
    """Serve requests in their order, by numbers of queries, each as the caller asks for the next one."""
    for query in requests:
        value = answers.ask(query, lambda: answer(query))  # noqa: B023 # called at once
        yield answers.lookups[-1], value
