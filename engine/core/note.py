"""Notes: the signals that a part records in a step in addition to its tokens.

They are declared as data, so a view can draw them without knowing the method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

Kind = Literal["node", "series", "span", "set", "clock", "grid", "track"]
Over = Literal["model", "head", "matrix", "sublayer", "round"]

LANES = 64  # the most of a track
PLACE = "place"  # unit of a position in prompt and text, as far as they were read; the token of a node has such a position too
ROUNDS = 512  # the most of a finding


@dataclass(frozen=True)
class Note:
    """One named signal that a part records. A value of None means that nothing was recorded.

    kind: how the value of a step is built, and how it is drawn. "node": a list with one item for each node of the draft, or for
          the first nodes only. An item is a number, a truth, a word or a list of these. If the list has one item more than
          there are nodes, its first item is the root's. "series": a number or a truth, drawn as a line over the steps. "span":
          [from, to], or several, drawn as bars. "set": a word, or a list of members (numbers, words, or lists of these), drawn
          as membership over the steps. "clock": microseconds; all clocks of a part are lanes of one time. "grid": a list of
          numbers, or an object of them by name, drawn as shaded rows with the steps across. "track": a list of bars [lane,
          from, to, token, word], drawn in lanes over a time of their own
    word: its label for people
    unit: the unit of its numbers. "node" and "token" are numbers of nodes and ids; "place" is the position in the text that a
          node's token was copied from. Where the members of a set are lists, commas separate the units of their items, and the
          last unit holds for all that follow. The unit of a track is that of its time
    what: what the value is, as the tooltip explains it
    line: the reference line that it is compared with, another note or a knob of the same part
    at:   that reference as a number, where it is one
    rows: the meaning of the rows of a grid; the words that the bars of a track may have
    summed: for a node: whether it is a sum of logarithms over the node's path
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
            return isinstance(value, list) and len(value) <= nodes + 1 and all(map(_is_entry, value))
        if self.kind == "series":
            return _is_number(value)
        if self.kind == "span":
            return _is_span(value) or (isinstance(value, list) and bool(value) and all(map(_is_span, value)))
        if self.kind == "set":
            return isinstance(value, str) or (
                isinstance(value, list) and all(x is not None and _is_entry(x) for x in value)
            )
        if self.kind == "clock":
            return _is_number(value) and value >= 0
        if self.kind == "grid":
            numbers = list(value.values()) if isinstance(value, dict) else value
            return isinstance(numbers, list) and all(x is None or _is_number(x) for x in numbers)
        if self.kind == "track":
            return isinstance(value, list) and bool(value) and all(map(self._is_bar, value))
        return False

    def _is_bar(self, x: Any) -> bool:
        """Whether x is [lane, from, to, token, word], the lane and the token whole numbers and the word one of the note's."""
        if not (isinstance(x, list) and len(x) == 5 and type(x[0]) is type(x[3]) is int):
            return False
        return 0 <= x[0] < LANES and _is_span(x[1:3]) and x[3] >= 0 and x[4] in self.rows


@dataclass(frozen=True)
class Finding(Note):
    """A note of a model, not of a step: what a transform of weights found in the model that it was given.

    It is declared without values and recorded with them.

    over: what the values refer to. A "grid" has one row for each layer; a "series" (numbers) or a "set" (words) has one value
          after another. "head": one row a layer, with a value for each query head that the model had; "sublayer": one row a
          layer with two values, attention and feed-forward block; "matrix": one row a layer with four values, qkv, out, gate_up
          and down, and a last row with one value, the head's; "round": a value for each generation of a search or step of a
          training; more than 512 of them are grouped into stretches of equal length; "model": a single value
    values: numbers, truths and words; null where there is none
    """

    over: Over = "model"
    values: list[Any] = field(default_factory=list)

    def shape_problem(self, layers: int | None, heads: int | None) -> str | None:
        """Why the values do not have the declared shape, as the end of a sentence; None if they have it.

        The model has so many layers, with at most so many query heads each.
        """
        if self.over in ("model", "round"):
            most = 1 if self.over == "model" else ROUNDS
            if self.kind not in ("series", "set"):
                return f"is a {self.kind}, and its values are in a series or a set"
            fit = all(map(_is_scalar, self.values))
            return (
                None
                if fit and len(self.values) <= most
                else f"must have at most {most} values, each a number or a word"
            )
        rows, extra = self.values, 1 if self.over == "matrix" else 0
        if self.kind != "grid":
            return f"is a {self.kind}, and its values are in a grid"
        if layers is not None and len(rows) != layers + extra:
            return f"has {len(rows)} rows, where {layers + extra} are due"
        if not all(isinstance(row, list) and all(map(_is_scalar, row)) for row in rows):
            return "must have rows of numbers"
        if self.over == "head":
            fit = heads is None or all(len(row) <= heads for row in rows)
        else:
            wide = 2 if self.over == "sublayer" else 4
            fit = [len(row) for row in rows] == [wide] * (len(rows) - extra) + [1] * extra
        return None if fit else f"has a row that is not one of values by {self.over}"


def downsample(values: Sequence[Any], most: int = ROUNDS) -> list[Any]:
    """At most `most` items of a series: stretches of equal length become their means, or, for words, their last word."""
    if len(values) <= most:
        return list(values)
    bounds = [len(values) * i // most for i in range(most + 1)]
    parts = [values[a:b] for a, b in pairwise(bounds)]
    return [part[-1] if isinstance(part[-1], str) else sum(part) / len(part) for part in parts]


def _is_number(x: Any) -> bool:
    return isinstance(x, bool | int | float) and math.isfinite(x)


def _is_scalar(x: Any) -> bool:
    return x is None or isinstance(x, str) or _is_number(x)


def _is_entry(x: Any) -> bool:
    return _is_scalar(x) or (isinstance(x, list) and all(map(_is_scalar, x)))


def _is_span(x: Any) -> bool:
    return isinstance(x, list) and len(x) == 2 and all(map(_is_number, x)) and x[0] <= x[1]
