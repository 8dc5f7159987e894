"""Comb: a window of Jacobi guesses as a tree whose ordinary ancestry is what its cells may see."""

from __future__ import annotations

from decodescope.engine.decoding.values.draft import ROOT


class Comb:
    """Levels of guesses over the columns 0..C-1: cell (l, j) is a guess for the position l + j behind the root, made l steps
    after that of level 0 in its column. Level 0 runs along the text, and the root is its column 0; each column goes on from
    level to level. So the ancestors of (l, j) are level 0 up to column j and column j up to level l: a comb, whose back is
    level 0.

    levels: ids; level 0 without its column 0, the others one for each column
    """

    def __init__(self, first: list[int]):
        self.levels: list[list[int]] = [list(first)]

    @property
    def columns(self) -> int:
        """C, the root's column among them; 0 once nothing is left."""
        return len(self.levels[0]) + 1 if self.levels else 0

    def fit(self, deepest: int) -> None:
        """Drop the columns whose last cell stands further than `deepest` behind the root, for good."""
        columns = min(self.columns, deepest - len(self.levels) + 2)
        if columns < 1:
            self.levels = []
        elif columns < self.columns:
            self.levels = [self.levels[0][: columns - 1], *(level[:columns] for level in self.levels[1:])]

    def tree(self) -> tuple[list[int], list[int]]:
        """Tokens and parents of its cells, ROOT or an index into them, level by level."""
        tokens: list[int] = []
        parents: list[int] = []
        above = [ROOT, *range(self.columns - 1)]
        for number, level in enumerate(self.levels):
            start = len(tokens)
            parents += above if number else above[:-1]
            tokens += level
            if number:
                above = list(range(start, start + len(level)))
        return tokens, parents

    def ends(self) -> list[int]:
        """By column its last cell, as an index into the tree; ROOT where that is the root."""
        if len(self.levels) == 1:
            return [ROOT, *range(self.columns - 1)]
        total = sum(map(len, self.levels))
        return list(range(total - self.columns, total)) if self.levels else []

    def grow(self, new: list[int]) -> None:
        """The text has one token more, and the last cells gave these ids, one a column: they are the next level, and every
        level moves one column on."""
        self.levels = [*(level[1:] for level in self.levels), new[1:]]

    def shift(self, new: list[int]) -> None:
        """The same of a comb that is as deep as it gets: the lowest level goes, the others move one down."""
        below = [*self.levels[1:], new]
        self.levels = [below[0][1:], *below[1:]]

    def ngrams(self, root: int, new: list[int]) -> list[tuple[int, ...]]:
        """By column its guesses from level 0 down to the new one."""
        return list(zip([root, *self.levels[0]], *self.levels[1:], new, strict=True)) if self.levels else []
