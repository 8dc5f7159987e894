"""Declarations: what the details of a run mean, as data. A trace's header carries them, so that whoever reads the trace can
check, explain and draw a detail without the strategy that recorded it.

A formula (`values/formula.py`) may name:
- a column of the detail, of the same row; `before(column)`: of the row above, 0 above the first;
- one of its values, or a knob of the part that recorded it; for the whole of a tally with one row also a column, for its entry;
- `count(x)`, `sum(x)` and `mean(x)` of a column or value x that holds lists;
- `k`, the number of the row, from 1; `rows`, how many there are; `hidden`, how many of them a card leaves out;
- `emitted`, how many tokens the step added to the text.

A sentence holds formulas in braces: {p:3} with three decimals, {tau:g} as it is, {p:p} as a page writes probabilities, {x:n} as
a count. A name of a text or token stands for its text.
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
class BesideForm:
    """A tally that stands under the step's own decision, not in its place.

    words: what introduces its rows in an explanation;  row: and says of a row there, in front of what became of it
    """

    words: str
    row: Sentence


@dataclass
class LaneWords:
    """A lane in which rows are drawn. sign: a letter;  name: of who writes there;  role: whose passes count for it"""

    sign: str
    name: str
    role: str


@dataclass
class LaneForm:
    """Rows drawn in lanes, step behind step, with a number of each above them.

    column: text column with the word of a row's lane;  lanes: word -> its lane, the uppermost first
    token:  column of the row's token
    title, says: heads of the view
    number: formula of what is drawn of a row;  what: in words;  head: the same in the head of a table
    most:   the largest number there can be; None: none is
    mean:   formula of a number that a line joins; "": no line
    bar:    formula of the dashed line;  bar_name: what it is called
    caught: formula of the rows that were read before the first one of the step
    drawn:  relation of the rows that are drawn; "": all
    back:   what is said of a row that does not hold; "": rows stay, whatever became of them
    """

    column: str
    lanes: dict[str, LaneWords]
    title: str
    says: str
    number: str
    what: str
    head: str
    bar: str
    token: str = "token"
    most: float | None = None
    mean: str = ""
    bar_name: str = "tau"
    caught: str = ""
    drawn: str = ""
    back: str = ""

    def formulas(self) -> Iterator[str]:
        """All texts that are formulas."""
        yield from filter(None, (self.number, self.mean, self.bar, self.caught))


@dataclass
class PriceForm:
    """What the passes of several models cost, model beside model.

    title: of the table;  lanes: lane of passes -> what its model is called;  together: the same of all
    part:  the first sentence that is said of the first lane; {share} is its part of all operations, in percent
    """

    title: str
    lanes: dict[str, str]
    together: str = "together"
    part: list[Sentence] = field(default_factory=list)


@dataclass
class ScaleForm:
    """Rows drawn as bars on one axis, with the line of a bar through all of them. Tallies of a step with the same title are one
    drawing; all words but those of rows are of the first.

    title, says: heads of the view;  caption: of its table;  row: what a row is called in its head
    axis:   sentence on the side of the bar on which a row holds;  number: what the numbers are, in words
    value:  formula of a row's number; "": its rows have no bar;  bar: formula of the line
    tokens: column with the text of a row, which can be pressed; a row without one has the name that the card gives it
    figure: the number as it is written;  words: what is said of a row, those that are said joined by commas
    ruling: the first sentence that is said below the rows;  lines: all that are said behind it
    fate:   what came of it, in a clause;  figures: of the head of the view; the first word of each is set off
    absent: what the rows are, where they are not here yet
    prices: what the passes of each model cost; None: that is not asked
    """

    title: str = ""
    says: str = ""
    caption: str = ""
    row: str = ""
    number: str = ""
    value: str = ""
    bar: str = ""
    tokens: str = ""
    absent: str = ""
    axis: list[Sentence] = field(default_factory=list)
    figure: list[Sentence] = field(default_factory=list)
    words: list[Sentence] = field(default_factory=list)
    ruling: list[Sentence] = field(default_factory=list)
    lines: list[Sentence] = field(default_factory=list)
    fate: list[Sentence] = field(default_factory=list)
    figures: list[Sentence] = field(default_factory=list)
    prices: PriceForm | None = None

    def sentences(self) -> Iterator[Sentence]:
        """All sentences."""
        yield from (
            *self.axis,
            *self.figure,
            *self.words,
            *self.ruling,
            *self.lines,
            *self.fate,
            *self.figures,
        )
        if self.prices is not None:
            yield from self.prices.part

    def formulas(self) -> Iterator[str]:
        """All texts that are formulas."""
        yield from filter(None, (self.value, self.bar))


@dataclass
class LookForm:
    """What the recorder of a detail has looked at to decide (`Look`), beside the passes.

    of, lane: as a `Look` has them;  rows: formula of how many;  given: column or value -> what it must be
    each:     once for each row of the detail, not once for the whole;  least: there may be more rows
    """

    of: str
    lane: str
    rows: str = "1"
    given: dict[str, Any] = field(default_factory=dict)
    each: bool = False
    least: bool = False


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
    count:   formula of how many a check has derived again; "": the detail counts as one
    beside:  where the card stands under the step's own decision, what an explanation says there; None: it stands in its place
    lanes:   how the rows are drawn in lanes over the steps;  scale: and as bars on one axis; None: they are not
    looks:   what was looked at beside the passes to decide
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
    count: str = ""
    beside: BesideForm | None = None
    lanes: LaneForm | None = None
    scale: ScaleForm | None = None
    looks: list[LookForm] = field(default_factory=list)
    shape: Literal["tally"] = "tally"

    def sentences(self) -> Iterator[Sentence]:
        """All sentences."""
        yield from self.says
        yield from self.row
        yield from self.lines
        for outcome in self.outcomes.values():
            yield from outcome.words
        if self.beside is not None:
            yield self.beside.row
        if self.scale is not None:
            yield from self.scale.sentences()

    def formulas(self) -> Iterator[str]:
        """All texts that are formulas."""
        yield from filter(None, (self.value, self.at, self.count, *(x.bar for x in self.outcomes.values())))
        for view in (self.lanes, self.scale):
            if view is not None:
                yield from view.formulas()
        yield from (x.rows for x in self.looks)

    def all_relations(self) -> Iterator[str]:
        """All texts that are relations."""
        due = [*self.relations, *self.totals]
        for outcome in self.outcomes.values():
            due += outcome.relations
        yield from (x.holds for x in due)
        yield from filter(None, [self.listed, "" if self.lanes is None else self.lanes.drawn])
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


Form = TallyForm | MatrixForm | TreeForm
