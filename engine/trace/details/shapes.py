"""Details: records of a step by a strategy or router, in addition to its tokens, in a few shapes that every view can draw.

The header declares a detail under its name (`declarations.py`), with its words, formulas and outcomes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from .exploration import Explored
from .veto import Veto


@dataclass
class TallyDetail:
    """A table of what was tried, one row for each thing, with the outcome of each.

    name:    of the declaration in the header
    columns: name -> one entry for each row; every column has as many. The column "outcome" holds a word of the declaration
    values:  name -> a number, a text, a list or null, for the whole table
    """

    name: str
    columns: dict[str, list[Any]]
    values: dict[str, Any] = field(default_factory=dict)
    shape: Literal["tally"] = "tally"

    def __len__(self) -> int:
        return max(map(len, self.columns.values()), default=0)

    def row(self, index: int) -> dict[str, Any]:
        """Column -> the entry of one row, counted from 0."""
        return {name: column[index] for name, column in self.columns.items()}


@dataclass
class MatrixDetail:
    """Numbers by row and column, some of them marked.

    numbers: float [R, C]; NaN where there is none. Left out where the recorder kept none, since there were too many
    rows, columns: name of a column of labels -> one entry for each row or column
    marks:   [row, column, word], both counted from 0; the word is one of the declaration
    values:  name -> a number, a text, a list or null, for the whole matrix
    """

    name: str
    numbers: np.ndarray | None = None
    rows: dict[str, list[Any]] = field(default_factory=dict)
    columns: dict[str, list[Any]] = field(default_factory=dict)
    marks: list[list[Any]] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    shape: Literal["matrix"] = "matrix"

    @property
    def size(self) -> tuple[int, int]:
        """The number of rows and columns, as far as numbers or labels show it."""
        if self.numbers is not None:
            return self.numbers.shape[0], self.numbers.shape[1]
        rows, columns = (max(map(len, x.values()), default=0) for x in (self.rows, self.columns))
        return rows, columns


@dataclass
class TreeDetail:
    """A tree, each node behind its parent.

    parents: of each node, -1 for one directly after the text so far; a parent comes before its children. If `earlier`, the tree
             grows over steps: parents are nodes of the tree of the same name in the step before, in its first step texts that
             have no token yet. The nodes that others may continue come first, so they have the same numbers in any selection
    columns: name -> one entry for each node. The column "outcome" holds a word of the declaration; without it all are open
    values:  name -> a number, a text, a list or null, for the whole tree
    """

    name: str
    parents: list[int]
    columns: dict[str, list[Any]] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    earlier: bool = False
    shape: Literal["tree"] = "tree"

    def __len__(self) -> int:
        return len(self.parents)


@dataclass
class Begun:
    """A thread that began behind a step's tokens, or before the first step. Its text goes on behind the first `at` tokens that
    its `parent` wrote, and behind `given`, ids that nobody wrote; parent -1: behind the prompt."""

    thread: int
    parent: int = -1
    at: int = 0
    given: list[int] = field(default_factory=list)


@dataclass
class Ended:
    """A thread that ended with a step, perhaps before it had room for a token. why: a word of the declaration.
    `CacheChange.freed` lists the entries that were freed with it."""

    thread: int
    why: str


@dataclass
class ThreadsDetail:
    """One round of a run that writes several texts at once: each thread that is alive writes a token.

    name:  of the declaration in the header
    alive: their numbers, from 0 in the order in which threads begin;  tokens: what each of them wrote
    The run's text is that of its threads in order: a child's text is inside its parent's, where it began. It is emitted as far
    as all text before it is final. A stop token that ends a thread is left out, but for the last of the text.
    """

    name: str
    alive: list[int]
    tokens: list[int]
    begun: list[Begun] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    shape: Literal["threads"] = "threads"

    def __len__(self) -> int:
        return len(self.alive)

    @property
    def ids(self) -> list[int]:
        """All tokens that it names."""
        return [*self.tokens, *(x for one in self.begun for x in one.given)]


@dataclass
class CanvasDetail:
    """One pass over places of the text that may be settled in any order. All places are positions of the text.

    name:    of the declaration in the header
    start:   position of the canvas's first place;  length: places that it has
    block:   [first, behind]: the places among which the pass decided
    open:    int [O], those of them that held no settled token before the pass, ascending
    candidate: int [O], the token that the pass proposes for each
    places:  those that the pass settled, ascending;  tokens: their tokens;  rules: why each was, a word of the declaration
    confidence: float [O], the model's probability of each candidate; None: not recorded. If a strategy leaves it out, the
             recorder adds it if the step's logits have a row for each open place
    columns: name -> an array with a number or a token for each open place
    values:  name -> a number, a text, a list or null, for the whole canvas
    count:   this many of the highest ranks were settled in any case
    anchors: places whose confidence lowered the bars near them
    reopened: places of the block that are masked again after the pass, ascending; a block is final once a pass masks none;
             None: what is settled stays
    cache:   what the pass read from other passes: "none" (it fed all rows), "prefix" (entries left of the block), "dual" (those
             on both sides of it) or "kept" (a settled place is fed once, and read from then on; places that are not open wait);
             stale: number of passes since these entries were made, 0: this pass fed all rows
    edge:    position behind the block that must be full first, if others are filled at the same time; None: no others
    cut:     position behind the last place that is left after the pass; places from there on are dropped; None: all stay
    explored: what the pass tried, if it read several canvases; the candidate at that place is the token that won, with its
             confidence in the pass before
    standins: [position, token] that the pass fed instead of a token that is not written yet, which is fed once it is there
    vetoes:  tokens that a grammar refused, those refused alone first; None: no grammar
    witness: a text of the grammar, from the canvas's first place on, that the canvas can still become after the pass
    terminals: name of each terminal of the grammar -> the ids of its tokens; None after a canvas's first pass
    """

    name: str
    start: int
    length: int
    block: list[int]
    open: np.ndarray
    candidate: np.ndarray
    places: list[int]
    tokens: list[int]
    rules: list[str]
    confidence: np.ndarray | None = None
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    count: int = 0
    anchors: list[int] | None = None
    reopened: list[int] | None = None
    cache: str = "none"
    stale: int = 0
    edge: int | None = None
    cut: int | None = None
    explored: Explored | None = None
    standins: list[list[int]] | None = None
    vetoes: list[Veto] | None = None
    witness: list[int] | None = None
    terminals: dict[str, list[int]] | None = None
    shape: Literal["canvas"] = "canvas"

    def __len__(self) -> int:
        return len(self.open)

    @property
    def ids(self) -> list[int]:
        """All tokens that it names, except those of its columns, of stand-ins and of the terminals."""
        tried = self.explored.ids if self.explored is not None else []
        vetoed = [x.token for x in self.vetoes or ()]
        return [*self.candidate.tolist(), *tried, *vetoed, *(self.witness or ())]

    @property
    def refused_places(self) -> set[int]:
        """The places that stay open since their tokens do not go together with those of others."""
        return {x.place for x in self.vetoes or () if x.together}

    @property
    def explored_index(self) -> int | None:
        """The index of the open place that was explored."""
        return None if self.explored is None else int(np.searchsorted(self.open, self.explored.place))


Detail = TallyDetail | MatrixDetail | TreeDetail | ThreadsDetail | CanvasDetail
