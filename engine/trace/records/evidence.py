"""An acceptance rule's description of itself, as data. A trace carries it, so that the rule's tests can be derived again,
explained and drawn without the rule.

A test is `u * den < num`, in doubles; usually it compares p, or what is left of it, with q. A formula (`formula.py`) names
the columns of the trials (p, r, q, u, num, den), what the rule adds to the record and the knobs of the rule. It also names
k, the test's place from 1, and count and last: how many tests there are, and the place of the last success. A sentence holds
formulas in braces: {rho} as a number, {epsilon:g} as it is, {j:2} with two decimal places, {A:of} as cases of a hundred.
A sum with a missing number is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from ..values.relations import Relation as Relation
from ..values.relations import is_given as is_given


@dataclass
class Quantity:
    """A number of a test, as a card lists it. value: a formula; symbol: a sentence; with {k} in it the number is in the table
    of all tests, if the rule decides on them together."""

    word: str
    symbol: str
    value: str


TARGET = Quantity("target", "p(x)", "p")
DRAFT = Quantity("draft", "q(x)", "q")
DRAW = Quantity("draw", "u", "u")


@dataclass
class Column:
    """What the rule adds to the record of a step: one number for each "trial", for each "place" at which something was tried
    (in the order of the walk), for the "step", or "running": one before the first trial and one after each, of which
    `before(name)` is the one before a trial."""

    name: str
    per: Literal["trial", "place", "step", "running"]


@dataclass
class Sum:
    """A line of arithmetic, a sentence; given: knobs with which it is shown."""

    text: str
    given: dict[str, Any] = field(default_factory=dict)


@dataclass
class Line:
    """One sentence, and the sums that belong to it."""

    words: str
    sums: list[Sum] = field(default_factory=list)


def make_line(words: str, *sums: str | Sum) -> Line:
    """A sentence with its sums; a sum given as text always applies, whatever the knobs."""
    return Line(words, [Sum(x) if isinstance(x, str) else x for x in sums])


@dataclass
class Also:
    """What keeps a token that the test rejects: `value` above `bound`, both formulas.

    word: who decides that;  asked, spared: sentences: what it decided, and that the token stays
    """

    word: str
    value: str
    bound: str
    asked: str
    spared: str


@dataclass
class Telling:
    """How an acceptance rule describes itself.

    num, den: what a card calls the numbers that u is compared with;  title: how it calls the test
    path:    how the trials settle it. "walk": down the tree, siblings in draw order, each success goes on. "longest": every
             node that can be reached is tried, and the path is one of the longest that passed. "last": of a chain, up to the
             last success. "copies": as "walk", but equal tokens of several chains are one, and the path may run through any
    rest:    whether a rejection leaves norm(max(r - q, 0)) of the target's distribution;  left: in words, what else the token
             after rejections is drawn from
    likeliest: knobs with which the token after the path is the likeliest, without a draw; null: always drawn
    also:    what keeps a rejected token;  columns, relations: of the record
    counted: what a check counts as re-derived, and for each what (as for a column)
    numbers: numbers of a test, in the order of a card; empty: p, r, q, their threshold and u
    card:    the sentences of a card;  lines, close: the same at length, in order, and its end
    """

    num: str = "p"
    den: str = "q"
    title: str = "test"
    path: Literal["walk", "longest", "last", "copies"] = "walk"
    rest: bool = False
    left: str = ""
    likeliest: dict[str, Any] | None = None
    also: Also | None = None
    columns: list[Column] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)
    counted: Column | None = None
    numbers: list[Quantity] = field(default_factory=list)
    card: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    close: str = ""

    @property
    def decides_jointly(self) -> bool:
        """True if all trials together settle the path, so that none of it is known before the last."""
        return self.path in ("longest", "last")

    def threshold_text(self, owed: bool = False) -> str:
        """The number that u is compared with, in symbols. owed: write r instead of p, since guesses before were refused"""
        num = "r" if owed and not self.numbers else self.num
        den = f"({self.den})" if "·" in self.den else self.den
        return f"{num} / {den}" if den else num

    def sentences(self) -> Iterator[str]:
        """All texts that may hold formulas."""
        yield from (x.symbol for x in self.numbers)
        yield from self.card
        for line in self.lines:
            yield line.words
            yield from (x.text for x in line.sums)
        if self.also is not None:
            yield from (self.also.asked, self.also.spared)
        yield self.close

    def formulas(self) -> Iterator[str]:
        """All texts that are formulas."""
        yield from (x.value for x in self.numbers)
        if self.also is not None:
            yield from (self.also.value, self.also.bound)
