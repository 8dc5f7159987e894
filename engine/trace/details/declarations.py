"""Declarations: what the details of a run mean, as data. A trace's header carries them, so that whoever reads the trace can
check, explain and draw a detail without the strategy that recorded it.

A formula (`values/formula.py`) may name:
- a column of the detail, of the same row; `before(column)`: of the row above, 0 above the first;
- one of its values, or a knob of the part that recorded it;
- `k`, the number of the row, from 1; `rows`, how many there are; `hidden`, how many of them a card leaves out;
- `emitted`, how many tokens the step added to the text.

A sentence holds formulas in braces: {p:3} with three decimals, {tau:g} as it is. A name of a text or token stands for its text.
A sentence in which something is missing is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from ..values.relations import Relation as Relation

ColumnType = Literal["number", "token", "tokens", "text", "numbers"]
DetailLevel = Literal["counts", "decisions", "fields"]


@dataclass
class DetailColumn:
    """A column of a detail.

    type:  of an entry: a "number" (or a truth), a "token" (id), "tokens" (a list of ids), a "text", or "numbers" (a list). An
           entry may be null
    level: the recording level from which the column is kept
    """

    name: str
    type: ColumnType
    level: DetailLevel = "decisions"


@dataclass
class Sentence:
    """A sentence, and when it is said.

    given: column, value or knob -> what it must be, or a list of what it may be
    where: a relation that must hold; "" for none
    """

    text: str
    given: dict[str, Any] = field(default_factory=dict)
    where: str = ""


@dataclass
class Outcome:
    """What can become of a row.

    holds:     whether the row counts, is kept or taken
    bar:       formula of what the row's number is compared with: it holds where number >= bar. "": the number did not decide
    words:     of the outcome; all that are said are joined by commas
    relations: what must be true of such a row
    """

    holds: bool
    bar: str = ""
    words: list[Sentence] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)


@dataclass
class TallyForm:
    """What the rows of a `TallyDetail` mean.

    title:   of the card; tallies of a step with the same title are one card
    says:    the step in a clause; the first sentence that is said
    row:     what a row is called; the first sentence that is said
    number, bar: what the numbers of the rows are, and what they are compared with, in words
    value:   formula of a row's number; "": rows have none
    outcomes: word of the column "outcome" -> what it means
    lines:   sentences below the rows
    columns, values: what the detail may hold; the type of a value is that of a column
    order:   the outcomes from the first row to the last, such as ["first", "taken*", "bar|repeat?", "behind*"]: alternatives
             with |, then * for any number, ? for at most one. []: any order
    relations: what must be true of every row;  totals: of the whole, over its values
    emits:   column of a token or tokens: the step emitted those of the rows that hold, cut off where the text ended. "": not so
    listed:  relation of the rows that a card lists; "": of all
    at:      formula of the row where a reader looks first, from 1
    check:   name of a check (`engine/trace/checks`) that derives the rest again; "": the formulas say it all
    counted: what a check calls the rows that it has derived again
    part:    kind of the part whose knobs the formulas name
    """

    title: str
    number: str = ""
    bar: str = ""
    value: str = ""
    says: list[Sentence] = field(default_factory=list)
    row: list[Sentence] = field(default_factory=list)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    lines: list[Sentence] = field(default_factory=list)
    columns: list[DetailColumn] = field(default_factory=list)
    values: list[DetailColumn] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)
    totals: list[Relation] = field(default_factory=list)
    emits: str = ""
    listed: str = ""
    at: str = ""
    check: str = ""
    counted: str = ""
    part: str = "strategy"
    shape: Literal["tally"] = "tally"

    def sentences(self) -> Iterator[Sentence]:
        """All sentences."""
        yield from self.says
        yield from self.row
        yield from self.lines
        for outcome in self.outcomes.values():
            yield from outcome.words

    def formulas(self) -> Iterator[str]:
        """All texts that are formulas."""
        yield from filter(None, (self.value, self.at, *(x.bar for x in self.outcomes.values())))

    def all_relations(self) -> Iterator[str]:
        """All texts that are relations."""
        due = [*self.relations, *self.totals]
        for outcome in self.outcomes.values():
            due += outcome.relations
        yield from (x.holds for x in due)
        yield from filter(None, [self.listed])
        yield from (x.where for x in self.sentences() if x.where)


@dataclass
class MatrixForm:
    """What the numbers of a `MatrixDetail` mean.

    title:   of the view;  number: what the numbers are, in words
    rows, columns, values: labels of rows and of columns, and values, that the detail may hold, with their types
    marks:   word of a mark -> what it means, as a sentence
    lines:   sentences below the matrix
    check, counted, part: as a `TallyForm` has them
    """

    title: str
    number: str = ""
    rows: list[DetailColumn] = field(default_factory=list)
    columns: list[DetailColumn] = field(default_factory=list)
    values: list[DetailColumn] = field(default_factory=list)
    marks: dict[str, Sentence] = field(default_factory=dict)
    lines: list[Sentence] = field(default_factory=list)
    check: str = ""
    counted: str = ""
    part: str = "strategy"
    shape: Literal["matrix"] = "matrix"

    def sentences(self) -> Iterator[Sentence]:
        """All sentences."""
        yield from self.marks.values()
        yield from self.lines

    def formulas(self) -> Iterator[str]:
        """All texts that are formulas."""
        yield from ()

    def all_relations(self) -> Iterator[str]:
        """All texts that are relations."""
        yield from (x.where for x in self.sentences() if x.where)


@dataclass
class TreeForm:
    """What the nodes of a `TreeDetail` mean.

    title:   of the view;  says: the step in a clause; the first sentence that is said
    columns, values: what the detail may hold, with their types
    node:    what a node is called; the first sentence that is said
    lines:   sentences below the tree
    check, counted, part: as a `TallyForm` has them
    """

    title: str
    says: list[Sentence] = field(default_factory=list)
    columns: list[DetailColumn] = field(default_factory=list)
    values: list[DetailColumn] = field(default_factory=list)
    node: list[Sentence] = field(default_factory=list)
    lines: list[Sentence] = field(default_factory=list)
    check: str = ""
    counted: str = ""
    part: str = "strategy"
    shape: Literal["tree"] = "tree"

    def sentences(self) -> Iterator[Sentence]:
        """All sentences."""
        yield from (*self.says, *self.node, *self.lines)

    def formulas(self) -> Iterator[str]:
        """All texts that are formulas."""
        yield from ()

    def all_relations(self) -> Iterator[str]:
        """All texts that are relations."""
        yield from (x.where for x in self.sentences() if x.where)


@dataclass
class ThreadsForm:
    """What the texts of a `ThreadsDetail` mean. Sentences may name `threads`, how many wrote in the step, and `emitted`.

    title:   of the step
    says:    the step in a clause; the first sentence that is said
    lines:   sentences on the step at length;  card: the same in short and without numbers, below a thread that goes on
    ends:    why a thread ends -> that in words
    level:   the recording level from which it is kept
    check, counted, part: as a `TallyForm` has them
    """

    title: str
    says: list[Sentence] = field(default_factory=list)
    lines: list[Sentence] = field(default_factory=list)
    card: list[Sentence] = field(default_factory=list)
    ends: dict[str, str] = field(default_factory=dict)
    level: DetailLevel = "counts"
    check: str = ""
    counted: str = ""
    part: str = "strategy"
    shape: Literal["threads"] = "threads"

    @property
    def columns(self) -> list[DetailColumn]:
        """None: a thread has no further columns."""
        return []

    @property
    def values(self) -> list[DetailColumn]:
        """None: threads have no further values."""
        return []

    def sentences(self) -> Iterator[Sentence]:
        """All sentences."""
        yield from (*self.says, *self.lines, *self.card)

    def formulas(self) -> Iterator[str]:
        """All texts that are formulas."""
        yield from ()

    def all_relations(self) -> Iterator[str]:
        """All texts that are relations."""
        yield from (x.where for x in self.sentences() if x.where)


Form = TallyForm | MatrixForm | TreeForm | ThreadsForm
