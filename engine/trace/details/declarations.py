"""Declarations: what the details of a run mean, as data. A trace's header carries them, so that whoever reads the trace can
check, explain and draw a detail without the strategy that recorded it.

A formula (`values/formula.py`) may name:
- a column of the detail, of the same row; `before(column)`: of the row above, 0 above the first;
- one of its values, or a knob of the part that recorded it;
- `k`, the number of the row, from 1; `below`, how many rows come after it; `rows`, how many there are;
- `holds`, 1 where the row's outcome holds, else 0; `hidden`, how many rows a card leaves out;
- `emitted`, how many tokens the step added to the text;
- `count(column)`: how many entries the list of the row has, 0 for an empty one.

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
MarkStatus = Literal["accept", "reject"]
ScaleEnd = Literal["low", "high"]


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
class Passage:
    """A paragraph of an account. It is left out where its words are not said.

    sums: sentences on the whole that are listed below it
    each: of each row the first that is said is listed below it
    """

    words: Sentence
    sums: list[Sentence] = field(default_factory=list)
    each: list[Sentence] = field(default_factory=list)


@dataclass
class Account:
    """What a notebook says of a step at length, in the place of the rows and lines of a card.

    where:    what stands beside the title; the first sentence that is said
    rule:     by what it was decided, in words
    passages: the paragraphs; those of several tallies in one card follow each other
    """

    where: list[Sentence] = field(default_factory=list)
    rule: str = "tally"
    passages: list[Passage] = field(default_factory=list)

    def sentences(self) -> Iterator[Sentence]:
        """All sentences."""
        yield from self.where
        for passage in self.passages:
            yield from (passage.words, *passage.sums, *passage.each)


@dataclass
class TallyForm:
    """What the rows of a `TallyDetail` mean.

    title:   of the card; tallies of a step with the same title are one card
    says:    the step in a clause; the first sentence that is said
    row:     what a row is called; the first sentence that is said
    number, bar: what the numbers of the rows are, and what they are compared with, in words
    value:   formula of a row's number; "": rows have none
    outcomes: word of the column "outcome" -> what it means
    lines:   sentences below the rows; of several tallies of one name in a step, below the last, and `hidden` counts in all
    account: the step at length; None: the rows and lines of its card
    columns, values: what the detail may hold; the type of a value is that of a column
    order:   the outcomes from the first row to the last, such as ["first", "taken*", "bar|repeat?", "behind*"]: alternatives
             with |, then * for any number, ? for at most one. []: any order
    relations: what must be true of every row;  totals: of the whole, over its values
    emits:   column of a token or tokens: the step emitted those of the rows that hold, cut off where the text ended. "": not so
    emitting: outcomes of the rows that it emitted; []: of all that hold
    closes:  value of a token that it emitted behind them; "": none
    source:  formula of the position in the prompt from which the tokens of a row that it emitted are copies; "": they are none
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
    emitting: list[str] = field(default_factory=list)
    closes: str = ""
    source: str = ""
    listed: str = ""
    at: str = ""
    check: str = ""
    counted: str = ""
    part: str = "strategy"
    account: Account | None = None
    shape: Literal["tally"] = "tally"

    def sentences(self) -> Iterator[Sentence]:
        """All sentences."""
        yield from self.says
        yield from self.row
        yield from self.lines
        for outcome in self.outcomes.values():
            yield from outcome.words
        if self.account is not None:
            yield from self.account.sentences()

    def formulas(self) -> Iterator[str]:
        """All texts that are formulas."""
        yield from filter(None, (self.value, self.at, self.source, *(x.bar for x in self.outcomes.values())))

    def all_relations(self) -> Iterator[str]:
        """All texts that are relations."""
        due = [*self.relations, *self.totals]
        for outcome in self.outcomes.values():
            due += outcome.relations
        yield from (x.holds for x in due)
        yield from filter(None, [self.listed])
        yield from (x.where for x in self.sentences() if x.where)


@dataclass
class MatrixMark:
    """A mark on cells of a matrix.

    status: how a cell is framed: "accept" with a full line, "reject" with a dashed one
    name:   in the legend of a figure
    """

    status: MarkStatus
    name: str


@dataclass
class MatrixForm:
    """What the numbers of a `MatrixDetail` mean. It is drawn as a map of its cells, whose rows may be those of a tally.

    Formulas and sentences of the whole may name knobs, values, `rows` and `columns` (how many there are), `cells` (how many of
    them hold a number), and for a mark such as "best" `best_at`: its first cell, counted row by row from 0. Those of a cell
    may also name `value` (its number), `judged`, `row` and `column` (from 1), `rank` (its place by `judged`, the strongest is
    1) and a mark's word, which is 1 where the cell has it and else 0. A label stands for its text.

    title:   of a figure;  caption: what stands behind it; the first sentence that is said
    number:  what the numbers are, in a word
    label:   the map in a sentence, for who does not see it
    down, across: what a row and a column are, in a word, on the axes of a figure
    rows, columns, values: labels of rows and of columns, and values, that the detail may hold, with their types
    side, head: the label that stands at each row, and above each column; "": the number of the row or column
    judged:  formula of a cell's number as it is shaded and ranked;  strong: the end of its scale that is the strongest
    scale:   the two ends of it, which no number of the matrix may leave; []: the least and the most that there are
    reach:   formula of how many rows a cell speaks of, its own the first: so many labels it has as its text
    cell:    the chosen cell: all sentences that are said, one behind the other
    lines:   sentences below the matrix
    hover:   a cell of a figure, in a sentence whose gaps are bare names; a name of a label, `row_text` and `column_text` (what
             a tally calls its row) stand for texts
    marks:   word of a mark -> what it is; of several on one cell the first is drawn
    rows_of: name of a tally of the step: its rows are those of the matrix, and stand beside them
    square:  whether the columns are those rows too, in the same order
    sort:    formula of a row of that tally: the largest comes first, of equal ones the row where a reader looks first;
             "": as they were recorded
    row:     the chosen row, by the names of that tally; the first sentence that is said
    cells_of: name of a tally of the step whose rows are cells;  at: formulas of their row and column, from 1, by its names
    level:   the recording level from which the matrix is kept
    check, counted, part: as a `TallyForm` has them
    """

    title: str
    number: str = ""
    label: str = ""
    down: str = ""
    across: str = ""
    caption: list[Sentence] = field(default_factory=list)
    rows: list[DetailColumn] = field(default_factory=list)
    columns: list[DetailColumn] = field(default_factory=list)
    values: list[DetailColumn] = field(default_factory=list)
    side: str = ""
    head: str = ""
    judged: str = "value"
    strong: ScaleEnd = "high"
    scale: list[float] = field(default_factory=list)
    reach: str = "1"
    cell: list[Sentence] = field(default_factory=list)
    lines: list[Sentence] = field(default_factory=list)
    hover: str = ""
    marks: dict[str, MatrixMark] = field(default_factory=dict)
    rows_of: str = ""
    square: bool = False
    sort: str = ""
    row: list[Sentence] = field(default_factory=list)
    cells_of: str = ""
    at: list[str] = field(default_factory=list)
    level: DetailLevel = "decisions"
    check: str = ""
    counted: str = ""
    part: str = "strategy"
    shape: Literal["matrix"] = "matrix"

    def sentences(self) -> Iterator[Sentence]:
        """All sentences."""
        yield from (*self.caption, *self.cell, *self.lines, *self.row)
        yield Sentence(self.hover)

    def formulas(self) -> Iterator[str]:
        """All texts that are formulas."""
        yield from filter(None, (self.judged, self.reach, self.sort, *self.at))

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


Form = TallyForm | MatrixForm | TreeForm
