"""Search: texts planned by Monte-Carlo tree search, how the next node is chosen, and the check that makes the search again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal

from decodescope.engine.core.arithmetic import cases_in, passed

from ..values.limits import TraceError

Why = Literal["solved", "rollouts", "exhausted"]
DONE = "exhausted"  # why a node is closed behind whose candidates nothing is open
SYMBOLS = "0123456789+*="  # of the first ids of a model without a tokenizer


@dataclass
class Rollout:
    """A text that was completed and judged. node: behind which it was completed, number r + 1 in rollout r
    tokens: of the text behind the prompt, its end included;  passed: by test;  read: tokens that were read for it"""

    node: int
    tokens: list[int]
    passed: list[bool]
    read: int

    @property
    def reward(self) -> float:
        """The share of the tests that the text passes; 0 without tests."""
        return sum(self.passed) / len(self.passed) if self.passed else 0.0


@dataclass
class Search:
    """A tree of beginnings of texts: node 0 is the empty one, the others stand as they were born, one a rollout.

    tokens, parents: of each node, -1 of the first;  closed: why nothing more is looked for behind it: what ends a text there,
                     or "exhausted" where all its candidates are closed; "" where it is open
    offers, priors:  of each node that ends no text the k likeliest next tokens, the likeliest first, and their probabilities by
                     the model, made to sum to 1
    visits, values:  of each node, at the end, the rollouts behind it, of the first one more, and the largest reward of them
    rollouts: the texts that were judged;  best: which of them was written;  why: the search ended
    """

    tokens: list[int] = field(default_factory=lambda: [-1])
    parents: list[int] = field(default_factory=lambda: [-1])
    closed: list[str] = field(default_factory=lambda: [""])
    offers: list[list[int]] = field(default_factory=list)
    priors: list[list[float]] = field(default_factory=list)
    visits: list[int] = field(default_factory=lambda: [1])
    values: list[float] = field(default_factory=lambda: [0.0])
    rollouts: list[Rollout] = field(default_factory=list)
    best: int = 0
    why: Why = "rollouts"

    @property
    def best_so_far(self) -> list[float]:
        """Behind each rollout, the largest reward."""
        return [*accumulate((x.reward for x in self.rollouts), max)]

    @property
    def ids(self) -> list[int]:
        """All tokens that it names."""
        texts = (x for one in self.rollouts for x in one.tokens)
        return [*self.tokens[1:], *(x for row in self.offers for x in row), *texts]

    def path(self, node: int) -> list[int]:
        """The tokens from the first node to this one."""
        tokens: list[int] = []
        while node:
            tokens.append(self.tokens[node])
            node = self.parents[node]
        return tokens[::-1]


class Planner:
    """A search as it goes: which node is looked at next, and what becomes of its rewards. P-UCB: of the open candidates of a
    node s the one with the largest

        Q(s, a) + beta(s) P(a | s) sqrt(ln N(s)) / (1 + N(s, a)),    beta(s) = ln((N(s) + base + 1) / base) + c,

    of equal ones the likeliest; Q is 0 where no rollout went."""

    def __init__(self, search: Search, c: float, base: float):
        self.search = search
        self.c = c
        self.base = base
        self.kids: list[dict[int, int]] = [{}]

    def scores(self, node: int) -> list[float]:
        """Of each candidate of a node, by which one is chosen; minus infinity where it is closed."""
        s = self.search
        n = s.visits[node]
        beta = math.log((n + self.base + 1) / self.base) + self.c
        rows = []
        for token, prior in zip(s.offers[node], s.priors[node], strict=True):
            child = self.kids[node].get(token)
            q, seen = (0.0, 0) if child is None else (s.values[child], s.visits[child])
            closed = child is not None and bool(s.closed[child])
            rows.append(-math.inf if closed else q + beta * prior * math.sqrt(math.log(n)) / (1 + seen))
        return rows

    def select(self) -> tuple[int, int]:
        """The node behind which the next one is born, and its token."""
        node = 0
        while True:
            scores = self.scores(node)
            token = self.search.offers[node][scores.index(max(scores))]
            if token not in self.kids[node]:
                return node, token
            node = self.kids[node][token]

    def bear(self, parent: int, token: int, offers: list[int], priors: list[float], closed: str) -> int:
        """A new node; closed: why a text ends with it, "" if it goes on."""
        s, node = self.search, len(self.search.tokens)
        self.kids[parent][token] = node
        self.kids.append({})
        s.tokens.append(token)
        s.parents.append(parent)
        s.offers.append(offers)
        s.priors.append(priors)
        s.closed.append(closed)
        s.visits.append(0)
        s.values.append(0.0)
        return node

    def reward(self, node: int, reward: float) -> None:
        """Tell a node, and all before it, what its rollout came to: the largest counts. What is exhausted is closed."""
        s, at = self.search, node
        while at >= 0:
            s.visits[at] += 1
            s.values[at] = max(s.values[at], reward)
            kids = self.kids[at]
            if not s.closed[at] and all(x in kids and s.closed[kids[x]] for x in s.offers[at]):
                s.closed[at] = DONE
            at = s.parents[at]

    def over(self, rollouts: int) -> Why | None:
        """Why the search ends, after its last rollout; None: it goes on."""
        s = self.search
        if s.rollouts and s.rollouts[-1].reward == 1:
            return "solved"
        if s.closed[0]:
            return "exhausted"
        return "rollouts" if len(s.rollouts) >= rollouts else None


def said(tokens: Sequence[int], stops: Sequence[int], text: Callable[[list[int]], str] | None) -> str:
    """What is judged of a text: without the token that ends it; text: of ids, None: there is no tokenizer."""
    body = [*tokens[:-1]] if tokens and tokens[-1] in stops else [*tokens]
    return text(body) if text is not None else "".join(SYMBOLS[x] if x < len(SYMBOLS) else " " for x in body)


def consistent_search(search: Search | None, vocab: int) -> None:
    """What must agree inside the record, if there is one. Raises TraceError."""
    if search is None:
        return
    n = len(search.tokens)
    columns = search.parents, search.closed, search.offers, search.priors, search.visits, search.values
    if not n or any(len(x) != n for x in columns) or len(search.rollouts) != n - 1:
        raise TraceError(
            f"search has not one entry of each column, and one rollout, for each of its {n} nodes"
        )
    if (search.tokens[0], search.parents[0]) != (-1, -1) or any(
        not 0 <= p < i for i, p in enumerate(search.parents) if i
    ):
        raise TraceError("search has a node that stands before its parent")
    if any(not 0 <= x < vocab for x in search.ids):
        raise TraceError(f"search holds an id outside the vocabulary of {vocab:,}")
    both = [*zip(search.offers, search.priors, strict=True)]
    if any(len(a) != len(b) for a, b in both) or not all(0 <= p <= 1 + 1e-9 for _, b in both for p in b):
        raise TraceError("search has candidates without a probability each")
    if not 0 <= search.best < max(1, len(search.rollouts)) or any(
        not 1 <= x.node < n or x.read < 0 for x in search.rollouts
    ):
        raise TraceError("search names a node or rollout that there is not")


def search_problems(  # noqa: C901
    search: Search,
    emitted: Sequence[int],
    knobs: Mapping[str, Any],
    stops: Sequence[int],
    text: Callable[[list[int]], str] | None,
    shown: bool,
) -> Iterator[str]:
    """What is wrong with the record of a step that emitted these tokens, by a strategy with these knobs, a phrase each: the
    search is made again from its candidates and rewards. stops: ids that end texts;  text: of ids;  shown: whether it can be
    told"""
    c, base, most = knobs.get("c"), knobs.get("base"), knobs.get("rollouts")
    if not all(isinstance(x, int | float) for x in (c, base, most)) or not search.rollouts:
        yield "its strategy does not say how a search goes, or there was none"
        return
    for node, (offers, priors) in enumerate(zip(search.offers, search.priors, strict=True)):
        if bool(offers) == (search.closed[node] not in ("", DONE)):
            yield f"node {node} has {len(offers)} candidates, and it is {search.closed[node] or 'open'}"
            return
        if offers and (
            priors != sorted(priors, reverse=True) or not math.isclose(sum(priors), 1, abs_tol=1e-6)
        ):
            yield f"the candidates of node {node} do not stand with the likeliest first, or do not sum to 1"
    most = int(most) if str(knobs.get("tests", "")).strip() else 1  # type: ignore[arg-type] # it is a number
    again = Search(offers=search.offers[:1], priors=search.priors[:1])
    planner = Planner(again, float(c), float(base))  # type: ignore[arg-type] # they are numbers
    for number, rollout in enumerate(search.rollouts, 1):
        if (why := planner.over(most)) is not None:
            yield f"it went on with rollout {number}, and was over before: {why}"
            return
        due = planner.select()
        if due != (search.parents[number], search.tokens[number]) or rollout.node != number:
            yield f"rollout {number} looked behind node {search.parents[number]}, and node {due[0]} with {due[1]} was due"
            return
        ends = search.closed[number] if not search.offers[number] else ""
        node = planner.bear(*due, search.offers[number], search.priors[number], ends)
        if rollout.tokens[: len(path := search.path(node))] != path or (
            ends and len(path) != len(rollout.tokens)
        ):
            yield f"the text of rollout {number} does not begin as its node does"
        again.rollouts.append(rollout)
        planner.reward(node, rollout.reward)
    for name in ("visits", "values", "closed"):
        if (held := getattr(search, name)) != (counted := getattr(again, name)):
            at = next(i for i, (a, b) in enumerate(zip(held, counted, strict=True)) if a != b)
            yield f"{name} of node {at} is {held[at]!r}, and its rollouts give {counted[at]!r}"
    if search.why != (over := planner.over(most)):
        yield f"it ended with {search.why!r}, and by its rollouts that is {over!r}"
    rewards = [x.reward for x in search.rollouts]
    if search.best != rewards.index(max(rewards)):
        yield f"it wrote the text of rollout {search.best + 1}, and that of {rewards.index(max(rewards)) + 1} is the best"
    if list(emitted) != search.rollouts[search.best].tokens:
        yield f"it emitted {list(emitted)}, and its best text is {search.rollouts[search.best].tokens}"
    if shown:
        yield from _judged(search, str(knobs.get("tests", "")), stops, text)


def _judged(
    search: Search, tests: str, stops: Sequence[int], text: Callable[[list[int]], str] | None
) -> Iterator[str]:
    """Which texts have other results than their tests give."""
    try:
        cases = cases_in(tests)
    except ValueError as error:
        yield f"its tests cannot be read: {str(error).rstrip('.')}"
        return
    for number, rollout in enumerate(search.rollouts, 1):
        if rollout.passed != (due := passed(said(rollout.tokens, stops, text), cases)):
            yield f"the text of rollout {number} passes {sum(rollout.passed)} of {len(due)} tests, and {sum(due)} are right"
