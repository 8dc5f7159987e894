"""Comb: a window of Jacobi guesses as a tree; each cell sees exactly its ancestors."""

from __future__ import annotations

from decodescope.engine.decoding.values.draft import ROOT


class Comb:
    """Levels of guesses over the columns 0..C-1.

    Cell (l, j) is a guess for the position l + j behind the root, made l steps after the level 0 guess of its column. Level 0
    runs along the text, and the root is its column 0. Each column continues from level to level. So the ancestors of (l, j) are
    level 0 up to column j and column j up to level l. This is a comb, and level 0 is its back.

    levels: ids; level 0 without its column 0, the others one for each column
    """

    def __init__(self, first: list[int]):
        self.levels: list[list[int]] = [list(first)]

    @property
    def columns(self) -> int:
        """The number of columns C, including the root's; 0 once nothing is left."""
        return len(self.levels[0]) + 1 if self.levels else 0

    def fit(self, deepest: int) -> None:
        """Permanently drop the columns with a last cell further than `deepest` behind the root."""
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
        """The last cell of each column, as an index into the tree; ROOT where that is the root."""
        if len(self.levels) == 1:
            return [ROOT, *range(self.columns - 1)]
        total = sum(map(len, self.levels))
        return list(range(total - self.columns, total)) if self.levels else []

    def grow(self, new: list[int]) -> None:
        """Move on by one token: the ids from the last cells, one per column, become the next level, and every level moves one
        column.
        """
        self.levels = [*(level[1:] for level in self.levels), new[1:]]

    def shift(self, new: list[int]) -> None:
        """As `grow`, for a comb of full depth: drop the lowest level and move the others down by one."""
        below = [*self.levels[1:], new]
        self.levels = [below[0][1:], *below[1:]]

    def ngrams(self, root: int, new: list[int]) -> list[tuple[int, ...]]:
        """The guesses of each column, from level 0 down to the new one."""
        return list(zip([root, *self.levels[0]], *self.levels[1:], new, strict=True)) if self.levels else []
