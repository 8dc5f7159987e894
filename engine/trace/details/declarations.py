"""Declarations: what the details of a run mean, as data. A trace's header carries them, so that whoever reads the trace can
check, explain and draw a detail without the strategy that recorded it.

A formula (`values/formula.py`) may name:
- a column of the detail, of the same row; `before(column)`: of the row above, 0 above the first;
- one of its values, or a knob of the part that recorded it; for the whole of a tally with one row also a column, for its entry;
- `count(x)`, `sum(x)` and `mean(x)` of a column or value x that holds lists;
- `k`, the number of the row, from 1; `below`, how many rows come after it; `rows`, how many there are;
- `holds`, 1 where the row's outcome holds, else 0; `hidden`, how many rows a card leaves out;
- `emitted`, how many tokens the step added to the text.
See `TreeForm` and `Growth` for the further names that formulas of a tree may use.

A sentence holds formulas in braces: {p:3} with three decimals, {tau:g} as it is, {p:p} as a probability, {x:n} as a count. The
name of a text or token is replaced by its text. A sentence with a missing value is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..values.relations import Relation as Relation

ColumnType = Literal["number", "token", "tokens", "text", "numbers"]
DetailLevel = Literal["summary", "decisions", "full"]
MarkStatus = Literal["accept", "reject"]
ScaleEnd = Literal["low", "high"]
Fate = Literal["open", "ended", "left"]


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
    """A notebook's long text about a step, instead of the rows and lines of a card.

    where:    the text next to the title; the first sentence that applies
    rule:     the rule that decided, in words
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
class BesideForm:
    """A tally shown under the step's own decision, in addition to it.

    words: introduce its rows in an explanation;  row: text of a row there, before its outcome
    """

    words: str
    row: Sentence


@dataclass
class LaneWords:
    """A lane in which rows are drawn. sign: a letter;  name: of its writer;  role: the passes of this role count for it"""

    sign: str
    name: str
    role: str


@dataclass
class LaneForm:
    """Rows drawn in lanes, step after step, with a number of each above them.

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
    """The cost of the passes of several models, one next to the other.

    title: of the table;  lanes: lane of passes -> name of its model;  together: the same of all
    part:  the first sentence that applies to the first lane; {share} is its part of all operations, in percent
    """

    title: str
    lanes: dict[str, str]
    together: str = "together"
    part: list[Sentence] = field(default_factory=list)


@dataclass
class ScaleForm:
    """Rows drawn as bars on one axis, with the line of a bar through all of them. Tallies of a step with the same title are one
    drawing; all words except those of rows come from the first.

    title, says: heads of the view;  caption: of its table;  row: name of a row in its head
    axis:   sentence on the side of the bar on which a row holds;  number: what the numbers are, in words
    value:  formula of a row's number; "": its rows have no bar;  bar: formula of the line
    tokens: column with the text of a row, which can be pressed; a row without one has its name from the card
    figure: the number as it is written;  words: sentences about a row; those that apply are joined by commas
    ruling: the first sentence that applies, below the rows;  lines: all that apply, after it
    fate:   the result, in a clause;  figures: of the head of the view; the first word of each is set off
    absent: what the rows are, if they are not here yet
    prices: the cost of the passes of each model; None: not shown
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
    """What the recorder of a detail computed to decide (`Look`), in addition to the passes.

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
    lines:   sentences below the rows; of several tallies of one name in a step, below the last, and `hidden` counts in all
    account: the step at length; None: the rows and lines of its card
    columns, values: what the detail may hold; the type of a value is that of a column
    order:   the outcomes from the first row to the last, such as ["first", "taken*", "bar|repeat?", "behind*"]: alternatives
             with |, then * for any number, ? for at most one. []: any order
    relations: what must be true of every row;  totals: of the whole, over its values
    emits:   column of a token or tokens: the step emitted those of the rows that hold, cut off where the text ended. "": not so
    emitting: outcomes of the rows that it emitted; []: of all that hold
    closes:  value of a token that it emitted behind them; "": none
    source:  formula of the position in the prompt that the emitted tokens of a row are copied from; "": they are not copies
    listed:  relation of the rows that a card lists; "": of all
    at:      formula of the row to look at first, from 1
    check:   name of a check (`engine/trace/detail_checks`) that re-derives the rest; "": the formulas are enough
    counted: what a check calls the rows that it has re-derived
    part:    kind of the part whose knobs the formulas name
    count:   formula of how many a check has re-derived; "": the detail counts as one
    beside:  if the card is shown below the step's own decision: what an explanation says there; None: it replaces that card
    lanes:   how the rows are drawn in lanes over the steps;  scale: and as bars on one axis; None: they are not
    looks:   what was read in addition to the passes, to decide
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
        if self.account is not None:
            yield from self.account.sentences()
        if self.beside is not None:
            yield self.beside.row
        if self.scale is not None:
            yield from self.scale.sentences()

    def formulas(self) -> Iterator[str]:
        """All texts that are formulas."""
        own = self.value, self.at, self.source, self.count, *(x.bar for x in self.outcomes.values())
        yield from filter(None, own)
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
    them hold a number), and for a mark such as "best" `best_at`: its first cell, counted row by row from 0. Those of a cell may
    also name `value` (its number), `judged`, `row` and `column` (from 1), `rank` (its place by `judged`, the strongest is 1)
    and a mark's word, which is 1 where the cell has it and else 0. A label is its text.

    title:   of a figure;  caption: the text after it; the first sentence that applies
    number:  what the numbers are, in a word
    label:   the map in a sentence, for readers who cannot see it
    down, across: what a row and a column are, in a word, on the axes of a figure
    rows, columns, values: labels of rows and of columns, and values, that the detail may hold, with their types
    side, head: the label at each row, and above each column; "": the number of the row or column
    judged:  formula of a cell's number as it is shaded and ranked;  strong: the end of its scale that is the strongest
    scale:   its two ends, which no number of the matrix may exceed; []: the smallest and the largest number
    reach:   formula of how many rows a cell covers, from its own on; it has as many labels as its text
    cell:    the chosen cell: all sentences that apply, one after another
    lines:   sentences below the matrix
    hover:   a cell of a figure, in a sentence with bare names in braces; a name of a label, `row_text` and `column_text` (what
             a tally calls its row) give texts
    marks:   word of a mark -> what it is; of several on one cell the first is drawn
    rows_of: name of a tally of the step: its rows are those of the matrix, and are shown next to them
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
class NodeOutcome:
    """What can become of a node.

    fate:    "open": others may go on from it; "ended": nothing follows it; "left": it was not followed
    words:   of it; all that are said are joined by commas
    heading: sentence above such nodes in an explanation;  row: what is said of one there; without it the exact number
    level:   the recording level from which such nodes are kept;  shown: whether a view lists them
    """

    fate: Fate = "open"
    words: list[Sentence] = field(default_factory=list)
    heading: str = ""
    row: list[Sentence] = field(default_factory=list)
    level: DetailLevel = "summary"
    shown: bool = True


@dataclass
class Figure:
    """A number on the card of a node. word: a sentence at its left, "" for none;  name: what it is
    says: the number; the first sentence that is said
    """

    word: str
    name: str
    says: list[Sentence]


@dataclass
class Term:
    """A column of the table of a choice. word: its head;  value: formula, as `Growth.score` is one;  form: how it is written:
    "g", "share" (what is below a thousandth is said to be), or "" for four figures
    tried: whether only what is a node already has it;  bar: whether it is drawn; bars follow one another
    """

    word: str
    value: str
    form: str = ""
    tried: bool = False
    bar: bool = False


@dataclass
class Growth:
    """How a tree grew within a step, one node per round, so that check and views can rebuild it.

    A round goes from the first node down: behind each node to the candidate with the largest score that is not closed, of equal
    ones the first, until it comes to one that is no node. That is born, open if it has candidates. It and all nodes before it
    then receive its number: each keeps the largest and counts its visits, the first node one more. A node whose candidates are
    all closed is closed.

    candidates: column of the tokens that may follow a node;  priors: column of a number of each of them
    visits, values: columns of what each node had at the end
    closed:  the outcome of a node whose candidates are all closed
    score:   formula of a candidate; names p, its prior; n, q, its visits and value, 0 where it is no node; N, the visits of the
             node; and knobs
    terms:   columns of the table of a choice
    says:    sentence below it
    scale:   what the numbers 0 and 1 are called
    title:   of a figure, a sentence; names upto, how many rounds, and best, the largest number of them
    chosen:  of a node in a figure, how it was chosen; names p and score;  now: what it is at the end of a round
    """

    candidates: str
    priors: str
    visits: str
    values: str
    closed: str
    score: str
    terms: list[Term] = field(default_factory=list)
    says: str = ""
    scale: list[str] = field(default_factory=lambda: ["0", "1"])
    title: str = ""
    chosen: str = ""
    now: str = ""

    def sentences(self) -> Iterator[Sentence]:
        """All sentences."""
        yield from map(Sentence, (self.says, self.title, self.chosen, self.now))

    def columns(self) -> dict[str, str]:
        """Column -> the type that it must have."""
        return {
            self.candidates: "tokens",
            self.priors: "numbers",
            self.visits: "number",
            self.values: "number",
        }


@dataclass
class TreeForm:
    """What the nodes of a `TreeDetail` mean.

    Formulas and sentences of a node name its columns, and those of its row in `judged`, with the values there;
    `before(column)`: of its parent, 0 where that has no token; `k`, its number from 1, and `depth`, its tokens within the step.
    Those of the whole tree name `nodes`, `open`, `ended` and `left`, how many there are of each fate. Both name values, knobs
    and `emitted`.

    title:   of an explanation;  noun, nouns: what a node is called, and several
    says:    the step in a clause; the first sentence that is said
    columns, values: what the detail may hold, with their types;  token: the column of a node's token
    outcomes: word of the column "outcome" -> what it means
    number:  formula of a node's number: the largest is the best
    worth:   the number, written;  short, exact: the same where there is little room, or much; without them as `worth`
    figures: numbers on the card of a node;  about: sentences there, joined by semicolons;  card: sentences below
    lines:   sentences of an explanation;  rule: how the step decides, in two words
    group:   column of the number of a group, from 0: those of a group are adjacent, and are ranked separately
    best_first: formula that orders open nodes, in each group the largest first; "": in any order
    why:     why a node has no successor; the first sentence that is said. Names own, the best number of its children that were
             left, and bar, the least that is open in its group;  briefly: the same in a few words
    won:     what the node is called whose text was written;  overview: whether a view draws all steps as one tree
    root:    what a node without a token is called
    judged:  a tally of the same step with more about the nodes, except for the first, which has no token; "": none
    text:    its column of the whole text that was completed after a node
    growth:  how the tree grew within the step, if that can be rebuilt
    settles_at_end: whether only the last step settles the text; no step before it emits final tokens
    batch:   whether its open nodes are the texts of the next pass, in this order
    relations: what must be true of every node;  totals: of the whole
    check, counted, part: as a `TallyForm` has them
    """

    title: str
    noun: str = "node"
    nouns: str = "nodes"
    says: list[Sentence] = field(default_factory=list)
    columns: list[DetailColumn] = field(default_factory=list)
    values: list[DetailColumn] = field(default_factory=list)
    token: str = "token"
    outcomes: dict[str, NodeOutcome] = field(default_factory=dict)
    number: str = ""
    worth: list[Sentence] = field(default_factory=list)
    short: list[Sentence] = field(default_factory=list)
    exact: list[Sentence] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    about: list[Sentence] = field(default_factory=list)
    card: list[Sentence] = field(default_factory=list)
    lines: list[Sentence] = field(default_factory=list)
    rule: str = ""
    group: str = ""
    best_first: str = ""
    why: list[Sentence] = field(default_factory=list)
    briefly: list[Sentence] = field(default_factory=list)
    won: str = "Won"
    overview: bool = True
    root: str = ""
    judged: str = ""
    text: str = ""
    growth: Growth | None = None
    settles_at_end: bool = False
    batch: bool = False
    relations: list[Relation] = field(default_factory=list)
    totals: list[Relation] = field(default_factory=list)
    check: str = ""
    counted: str = ""
    part: str = "strategy"
    shape: Literal["tree"] = "tree"

    def sentences(self) -> Iterator[Sentence]:
        """All sentences."""
        yield from (*self.says, *self.worth, *self.short, *self.exact, *self.about, *self.card, *self.lines)
        yield from (*self.why, *self.briefly)
        for figure in self.figures:
            yield Sentence(figure.word)
            yield from figure.says
        for outcome in self.outcomes.values():
            yield from outcome.words
            yield from outcome.row
        if self.growth is not None:
            yield from self.growth.sentences()

    def formulas(self) -> Iterator[str]:
        """All texts that are formulas."""
        yield from filter(None, (self.number, self.best_first))
        if self.growth is not None:
            yield self.growth.score
            yield from (term.value for term in self.growth.terms)

    def all_relations(self) -> Iterator[str]:
        """All texts that are relations."""
        yield from (x.holds for x in (*self.relations, *self.totals))
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
    level: DetailLevel = "summary"
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
             place there; places without a sentence are left out
    reasons, sums, closing: then sentences that are one line, the sums below them, and a line each
    drawn:   "canvas": passes by place, each open place with its candidate; "chain": one row of places that is settled from its
             beginning on, drawn as a chain of tokens
    stays:   why an open place stays open; the sentences are joined as they are
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


def merge_forms(forms: Iterable[Mapping[str, Form]]) -> dict[str, Form]:
    """The declarations of several methods that wrote one after another: of a canvas the words of all."""
    every: dict[str, Form] = {}
    for name, form in (pair for one in forms for pair in one.items()):
        known = every.get(name)
        every[name] = with_words(form, known.words) if isinstance(known, CanvasForm) else form
    return every
