"""Tree: the nodes of a tree with what its declaration makes of them, for checks and views alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from .declarations import Fate, NodeOutcome, TreeForm
from .scope import FormulaScope, Text, types_of
from .shapes import TallyDetail, TreeDetail

CLOSE = 1e-6  # between two numbers that are one
OPEN = NodeOutcome()  # of nodes of a tree that declares no outcomes


class TreeReading:
    """A tree with its declaration.

    knobs:   of the part that recorded it;  emitted: ids that the step added to the text
    before:  the tree of the step before, if it grows over steps; None if that step has none, so that nodes have no
             parent;  known: True if that is known
    judged:  the tally with rows that describe its nodes further
    text:    ids -> text, needed for sentences alone
    """

    def __init__(
        self,
        detail: TreeDetail,
        form: TreeForm,
        knobs: Mapping[str, Any],
        emitted: Sequence[int],
        *,
        before: TreeDetail | None = None,
        known: bool = True,
        judged: TallyDetail | None = None,
        text: Text | None = None,
    ):
        self.detail = detail
        self.form = form
        self.knobs = knobs
        self.before = before
        self.known = known
        self.judged = judged
        self.values = detail.values if judged is None else {**judged.values, **detail.values}
        self._shared = {**knobs, "emitted": len(emitted), **self.values}
        self._types = types_of([*form.columns, *form.values])
        self._text = text
        self._scopes: dict[int, FormulaScope] = {}

    def __len__(self) -> int:
        return len(self.detail)

    @cached_property
    def outcomes(self) -> list[NodeOutcome]:
        """The outcome of each node."""
        words = self.detail.columns.get("outcome")
        return [OPEN] * len(self) if words is None else [self.form.outcomes.get(word, OPEN) for word in words]

    def nodes_by_fate(self, fate: Fate) -> list[int]:
        """The nodes of this fate, counted from 0."""
        return [node for node, outcome in enumerate(self.outcomes) if outcome.fate == fate]

    @cached_property
    def whole_scope(self) -> FormulaScope:
        """Names for the whole tree."""
        fates: tuple[Fate, ...] = ("open", "ended", "left")
        count: dict[str, int] = {fate: len(self.nodes_by_fate(fate)) for fate in fates}
        return FormulaScope({**self._shared, "nodes": len(self), **count}, self._types, None, self._text)

    def node_scope(self, node: int) -> FormulaScope:
        """Names of a node, counted from 0."""
        if node not in self._scopes:
            places = {"k": self.number_of(node), "depth": len(self.path(node))}
            own = {**self._shared, **self._row(node), **places}
            self._scopes[node] = FormulaScope(own, self._types, self._above(node), self._text)
        return self._scopes[node]

    def _row(self, node: int) -> dict[str, Any]:
        """Column -> entry of a node, and of its row in the tally."""
        judged = self.judged
        row = judged.row(node - 1) if judged is not None and 0 < node <= len(judged) else {}
        return row | {name: column[node] for name, column in self.detail.columns.items()}

    def _above(self, node: int) -> dict[str, Any] | None:
        """Column -> entry of its parent; None if that has no token, empty where it is not known."""
        parent = self.detail.parents[node]
        if not self.detail.earlier:
            return None if parent < 0 or self.is_empty(parent) else self._row(parent)
        if self.before is None or parent < 0:
            return None if self.known else {}
        if parent >= len(self.before):
            return {}
        return {name: column[parent] for name, column in self.before.columns.items()}

    def token(self, node: int) -> int | None:
        """Its token; None if it has none."""
        column = self.detail.columns.get(self.form.token)
        return None if column is None else column[node]

    def is_empty(self, node: int) -> bool:
        """True if a node is the beginning of all texts, which has no token."""
        return self.detail.parents[node] < 0 and self.token(node) is None

    def number_of(self, node: int) -> int:
        """The node's number for readers: counted from 1; a first node without a token counts as 0."""
        return node + (not (len(self) and self.is_empty(0)))

    def path(self, node: int) -> list[int]:
        """Within a step, the nodes with tokens from the first one to this."""
        line: list[int] = []
        at = node
        while at >= 0 and (self.detail.earlier or not self.is_empty(at)):
            line.append(at)
            at = -1 if self.detail.earlier else self.detail.parents[at]
        return line[::-1]

    def tokens(self, node: int) -> list[int]:
        """The tokens of that path."""
        return [token for at in self.path(node) if (token := self.token(at)) is not None]

    def number(self, node: int) -> float | None:
        """The number of a node."""
        return self.node_scope(node).value(self.form.number) if self.form.number else None

    def group(self, node: int) -> int | None:
        """The group of a node, from 0; None if there are none."""
        column = self.detail.columns.get(self.form.group) if self.form.group else None
        return None if column is None else column[node]

    def words(self, node: int) -> str:
        """The outcome of a node in words."""
        return ", ".join(self.node_scope(node).say_all(self.outcomes[node].words))


def tree_problems(reading: TreeReading) -> Iterator[str]:
    """Problems of a tree by its own declaration, a phrase each."""
    form = reading.form
    for node in range(len(reading) if form.relations else 0):
        for due in form.relations:
            if reading.node_scope(node).breaks(due) and (reading.known or "before(" not in due.holds):
                yield f"node {node + 1} of {reading.detail.name} breaks {due.holds}"
    for due in form.totals:
        if reading.whole_scope.breaks(due):
            yield f"{reading.detail.name} breaks {due.holds}"
    if form.best_first:
        yield from _check_order(reading)


def _check_order(reading: TreeReading) -> Iterator[str]:
    """Groups that are split, and nodes that are not sorted with the best first."""
    nodes, nouns = reading.nodes_by_fate("open"), reading.form.nouns
    groups = [reading.group(node) or 0 for node in nodes]
    if groups != sorted(groups):
        yield "its groups do not follow one another"
        return
    worth: dict[int, list[float | None]] = {}
    for node, group in zip(nodes, groups, strict=True):
        worth.setdefault(group, []).append(reading.node_scope(node).value(reading.form.best_first))
    for group, row in worth.items():
        named = f" of group {group + 1}" if reading.form.group else ""
        if any(x is None for x in row):
            yield f"its {nouns}{named} lack the numbers that order them"
        elif any(a < b - CLOSE for a, b in pairwise(row)):  # type: ignore[operator]
            yield f"its {nouns}{named} are not ordered with the best first"
