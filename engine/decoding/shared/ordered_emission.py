"""Tokens that are settled in any order are emitted in text order: each one once, when all before it are settled."""

from __future__ import annotations

from dataclasses import dataclass

from decodescope.engine.trace.records.events import EndReason
from decodescope.engine.trace.values.grammar import OPEN as OPEN

from ..bases.state import State


@dataclass
class OrderedEmission:
    """Places after a text whose tokens are settled in any order. What the text and its record count, `n`, stop tokens, the
    length limit, follows the emission, so a place that is settled ahead counts once the text has reached it.

    start:  position of the first place
    tokens: by place, OPEN where none is settled
    done:   how many, from the first on, have been emitted
    """

    start: int
    tokens: list[int]
    done: int = 0

    @classmethod
    def create(cls, s: State) -> OrderedEmission:
        """As many open places as tokens may still be emitted."""
        return cls(len(s.tokens), [OPEN] * s.remaining_tokens)

    @property
    def end(self) -> int:
        """The position after the last place."""
        return self.start + len(self.tokens)

    def open_positions(self, first: int, behind: int) -> list[int]:
        """The positions from `first` to the one before `behind` at which nothing is settled, ascending."""
        return [p for p in range(first, behind) if self.tokens[p - self.start] == OPEN]

    def settle(self, position: int, token: int) -> None:
        """Put `token` at `position`, for good. Raises ValueError if one is there already, or if no place is there."""
        if not self.start <= position < self.end:
            raise ValueError(f"position {position}: the places are {self.start} to {self.end - 1}.")
        if self.tokens[position - self.start] != OPEN:
            raise ValueError(f"position {position}: a token is settled there and stays.")
        self.tokens[position - self.start] = token

    def drop(self, behind: int) -> None:
        """Leave out the places from position `behind` on."""
        del self.tokens[behind - self.start :]

    def emit(self, s: State) -> tuple[list[int], EndReason | None]:
        """Add to the text of `s` the settled tokens right after it, up to the first stop token and the length limit. Returns
        the tokens, and why the text ends, if it does."""
        stop = self.tokens.index(OPEN, self.done) if OPEN in self.tokens[self.done :] else len(self.tokens)
        due = self.tokens[self.done : stop]
        count, end = s.cut(due)
        s.tokens += due[:count]
        s.chance.forget(len(s.tokens))
        self.done += count
        return due[:count], end
