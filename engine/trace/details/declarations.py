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

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
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


@dataclass
class CanvasWord:
    """Why a place was settled. sign: a letter;  word: a few words;  why: of the place, what is said is joined as it is"""

    sign: str
    word: str
    why: list[Sentence] = field(default_factory=list)


@dataclass
class CanvasForm:
    """What the places of a `CanvasDetail` mean.

    A formula may name of an open place its columns, `candidate`, `confidence`, `place` (from 1), `rank` and `k`, its number
    among the open ones, from 1; and of the whole its values, `open`, `settled` and `again` (counts, the last null where nothing
    is masked again), `count`, `stale`, `start`, `length`, `upto` (places that the text has reached by then) and `emitted`; a
    sentence also `anchors`, as a list of places.

    A sentence on an open place may name `rule`, why it was settled, and `stands`, whether it was; one on the whole, but for
    `says`, also `held`, for how many places from the first on `run` holds.

    says:    the step in a clause;  place: an open place in a few words; of each the first sentence that is said
    card, hint, heads: of the page's card: its title, sentences below it, and what a guess and what was read are called
    title, where, how, test: of the step at length, in a notebook: its title, which places, the rule, and the outcome
    lines, table, row: then sentences, the heading of a list of places ("": they belong to the sentences), and what is said of a
             place there; those of which nothing is said are left out
    reasons, sums, closing: then sentences that are one line, the sums below them, and a line each
    drawn:   "canvas": passes by place, each open place with its candidate; "chain": one row of places that is settled from its
             beginning on, drawn as a chain of tokens
    stays:   why an open place stays open: what is said is joined as it is
    cells:   of a picture: what is said of a pass, behind how many cells it settled; it may name `rows`, how many rows of the
             picture these are in, and `listed`, their numbers;  standins: what the sign of a stand-in means
    unread:  word of `cache` -> why no entry of the cache can be followed, where none lives on
    rank:    formulas by which open places rank, the smallest first, the first that has a number; of equal ones the first place
    settles: a place is settled where one of these relations holds
    run:     or where this one holds of all open places before it; "": not so
    words:   word of a rule -> its sign and words
    columns, values: what the detail may hold;  level: the recording level from which it is kept; `confidence` is from level
             "decisions" on
    check, counted, part: as a `TallyForm` has them
    """

    title: str
    says: list[Sentence] = field(default_factory=list)
    place: list[Sentence] = field(default_factory=list)
    card: str = ""
    hint: list[Sentence] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    where: list[Sentence] = field(default_factory=list)
    how: str = ""
    test: list[Sentence] = field(default_factory=list)
    lines: list[Sentence] = field(default_factory=list)
    table: str = ""
    row: list[Sentence] = field(default_factory=list)
    reasons: list[Sentence] = field(default_factory=list)
    sums: list[Sentence] = field(default_factory=list)
    closing: list[Sentence] = field(default_factory=list)
    drawn: Literal["canvas", "chain"] = "canvas"
    stays: list[Sentence] = field(default_factory=list)
    cells: list[Sentence] = field(default_factory=list)
    standins: str = ""
    unread: dict[str, str] = field(default_factory=dict)
    rank: list[str] = field(default_factory=list)
    settles: list[str] = field(default_factory=list)
    run: str = ""
    words: dict[str, CanvasWord] = field(default_factory=dict)
    columns: list[DetailColumn] = field(default_factory=list)
    values: list[DetailColumn] = field(default_factory=list)
    level: DetailLevel = "decisions"
    check: str = ""
    counted: str = ""
    part: str = "strategy"
    shape: Literal["canvas"] = "canvas"

    def sentences(self) -> Iterator[Sentence]:
        """All sentences."""
        yield from (*self.says, *self.place, *self.hint, *self.where, *self.test, *self.lines, *self.row)
        yield from (*self.reasons, *self.sums, *self.closing, *self.stays, *self.cells)
        for word in self.words.values():
            yield from word.why

    def formulas(self) -> Iterator[str]:
        """All texts that are formulas."""
        yield from self.rank

    def all_relations(self) -> Iterator[str]:
        """All texts that are relations."""
        yield from self.settles
        yield from filter(None, [self.run, *(x.where for x in self.sentences())])


Form = TallyForm | MatrixForm | TreeForm | ThreadsForm | CanvasForm


def with_words(form: Form, words: Mapping[str, CanvasWord]) -> Form:
    """A canvas with further words of rules, such as those of the selector that decides; any other form as it is."""
    return replace(form, words={**words, **form.words}) if isinstance(form, CanvasForm) else form


def merged(forms: Iterable[Mapping[str, Form]]) -> dict[str, Form]:
    """The declarations of several methods that wrote one after another: of a canvas the words of all."""
    every: dict[str, Form] = {}
    for name, form in (pair for one in forms for pair in one.items()):
        known = every.get(name)
        every[name] = with_words(form, known.words) if isinstance(known, CanvasForm) else form
    return every
