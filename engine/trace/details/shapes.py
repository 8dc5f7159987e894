"""Details: what a strategy or router records of a step beside its tokens, in one of a few shapes that every view can draw.

A detail has the name under which the header declares it (`declarations.py`): there stand its words, formulas and outcomes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np


@dataclass
class TallyDetail:
    """A table of what was tried, one row for each thing, with the outcome of each.

    name:    of the declaration in the header
    columns: name -> one entry for each row; every column has as many. The column "outcome" holds a word of the declaration
    values:  name -> a number, a text, a list or null that stands for the whole table
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
    values:  name -> a number, a text, a list or null that stands for the whole matrix
    """

    name: str
    numbers: np.ndarray | None = None
    rows: dict[str, list[Any]] = field(default_factory=dict)
    columns: dict[str, list[Any]] = field(default_factory=dict)
    marks: list[list[Any]] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    shape: Literal["matrix"] = "matrix"


@dataclass
class TreeDetail:
    """A tree, each node behind its parent.

    parents: of each node, -1 for a root; a parent comes before its children. If `earlier`, parents are nodes of the tree of the
             same name in the step before
    columns: name -> one entry for each node
    values:  name -> a number, a text, a list or null that stands for the whole tree
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
    """A thread that ended with a step, perhaps before it had room for a token. why: a word of the declaration. The cache tells
    which entries went with it (`CacheChange.freed`)."""

    thread: int
    why: str


@dataclass
class ThreadsDetail:
    """One round of a run that writes several texts at once: each thread that is alive writes a token.

    name:  of the declaration in the header
    alive: their numbers, which count from 0 in the order in which threads begin;  tokens: what each of them wrote
    The run's text is that of its threads in order: a child's stands in its parent's, where it began. It is emitted as far as
    all before it stands. A stop token that ends a thread is left out, but for the last of the text.
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
    """One pass over places of the text that need not be settled from left to right. All places are positions of the text.

    name:    of the declaration in the header
    start:   position of the canvas's first place;  length: places that it has
    block:   [first, behind]: the places among which the pass decided
    open:    int [O], those of them that held no settled token before the pass, ascending
    candidate: int [O], the token that the pass proposes for each
    confidence: float [O], the model's probability of it; None: not recorded. A strategy that leaves it out gets it from the
             recorder, where the step's logits have a row for each open place
    places:  those that the pass settled, ascending;  tokens: their tokens;  rules: why each was, a word of the declaration
    columns: name -> an array with a number or a token for each open place
    values:  name -> a number, a text, a list or null that stands for the whole canvas
    """

    name: str
    start: int
    length: int
    block: list[int]
    open: np.ndarray
    candidate: np.ndarray
    confidence: np.ndarray | None
    places: list[int]
    tokens: list[int]
    rules: list[str]
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    shape: Literal["canvas"] = "canvas"

    def __len__(self) -> int:
        return len(self.open)


Detail = TallyDetail | MatrixDetail | TreeDetail | ThreadsDetail | CanvasDetail
