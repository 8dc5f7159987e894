"""Notes: what a part tells of a step beside its tokens, declared as data, so that a view can draw it and know no method."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["node", "series", "span", "set", "clock", "grid", "track"]


LANES = 64  # the most of a track


@dataclass(frozen=True)
class Note:
    """One thing that a part tells, under a name. A value of None says nothing.

    kind: how the value of a step is made, and how it is drawn. "node": a list, for each node of the draft a number, a truth, a
          word or a list of these, or for the first nodes only; of one more the first is the root's. "series": a number or a
          truth, drawn as a line over the steps. "span": [from, to], or several, drawn as bars. "set": a word, or a list of
          members (numbers, words, or lists of these), drawn as who is in it over the steps. "clock": microseconds; all clocks
          of a part are lanes of one time. "grid": a list of numbers, or an object of them by name, drawn as rows by shade, the
          steps across. "track": a list of bars [lane, from, to, token, word], drawn in lanes over a time of their own
    word: what people call it
    unit: of its numbers; "node" and "token" are numbers of nodes and ids. Where the members of a set are lists, the units of
          their places stand with commas, the last for all that follow; of a track that of its time
    what: what the value is, for whoever points at it
    line: what it is held against, another note or a knob of the same part
    at:   that as a number, where it is one
    rows: what the numbers of a grid stand for; the words that the bars of a track may have
    summed: of a node: a sum of logarithms over its path
    """

    kind: Kind
    word: str
    unit: str = ""
    what: str = ""
    line: str = ""
    at: float | None = None
    rows: list[str] = field(default_factory=list)
    summed: bool = False

    def fits(self, value: Any, nodes: int) -> bool:
        """Whether a step's value has the shape of the kind; nodes: how many were drafted."""
        if value is None:
            return True
        if self.kind == "node":
            return isinstance(value, list) and len(value) <= nodes + 1 and all(map(_entry, value))
        if self.kind == "series":
            return _number(value)
        if self.kind == "span":
            return _span(value) or (isinstance(value, list) and bool(value) and all(map(_span, value)))
        if self.kind == "set":
            return isinstance(value, str) or (isinstance(value, list) and all(x is not None and _entry(x) for x in value))
        if self.kind == "clock":
            return _number(value) and value >= 0
        if self.kind == "grid":
            numbers = list(value.values()) if isinstance(value, dict) else value
            return isinstance(numbers, list) and all(x is None or _number(x) for x in numbers)
        if self.kind == "track":
            return isinstance(value, list) and bool(value) and all(map(self._bar, value))
        return False

    def _bar(self, x: Any) -> bool:
        """Whether x is [lane, from, to, token, word], the lane and the token whole numbers and the word one of the note's."""
        if not (isinstance(x, list) and len(x) == 5 and type(x[0]) is type(x[3]) is int):
            return False
        return 0 <= x[0] < LANES and _span(x[1:3]) and x[3] >= 0 and x[4] in self.rows


def _number(x: Any) -> bool:
    return isinstance(x, bool | int | float) and math.isfinite(x)


def _single(x: Any) -> bool:
    return x is None or isinstance(x, str) or _number(x)


def _entry(x: Any) -> bool:
    return _single(x) or (isinstance(x, list) and all(map(_single, x)))


def _span(x: Any) -> bool:
    return isinstance(x, list) and len(x) == 2 and all(map(_number, x)) and x[0] <= x[1]
