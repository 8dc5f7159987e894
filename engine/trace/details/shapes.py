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

    @property
    def size(self) -> tuple[int, int]:
        """How many rows and columns there are, as far as numbers or labels say it."""
        if self.numbers is not None:
            return self.numbers.shape[0], self.numbers.shape[1]
        rows, columns = (max(map(len, x.values()), default=0) for x in (self.rows, self.columns))
        return rows, columns


@dataclass
class TreeDetail:
    """A tree, each node behind its parent.

    parents: of each node, -1 for one behind the text as it stands; a parent comes before its children. If `earlier`, the tree
             grows over steps: parents are nodes of the tree of the same name in the step before, in its first step texts that
             have no token yet. The nodes from which others may go on come first, so they have the same numbers in any selection
    columns: name -> one entry for each node. The column "outcome" holds a word of the declaration; without it all are open
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


Detail = TallyDetail | MatrixDetail | TreeDetail
