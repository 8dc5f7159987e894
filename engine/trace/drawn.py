"""Drawn: whole texts that were drawn behind one prompt, which of them becomes the run's, and the check of that."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from .limits import TraceError

By = Literal["last"]
ROUNDING = 1e-9  # of a logarithm that was added up on the way


@dataclass
class Text:
    """One text that was drawn.

    tokens: ids;  logp: the sum of the natural logarithms of what the model gave to them, before anything was taken out
    ended: whether it ends with a token or text that ends texts, not with the limit
    """

    tokens: list[int]
    logp: float
    ended: bool


@dataclass
class Drawn:
    """Texts that a step drew.

    first:  the number of the first of them in the run, from 0;  of: so many the run draws
    by:     how the run's text is chosen: the "last" one
    chosen: which text of this step it is; None: a later step says
    bound:  what the mass of all texts that the grammar allows is at most, by what was seen so far, as a logarithm; None: nobody
            looked
    """

    first: int
    of: int
    texts: list[Text]
    by: By = "last"
    chosen: int | None = None
    bound: float | None = None


def consistent_drawn(record: Drawn | None, vocab: int) -> None:
    """What must agree inside the record, if there is one. Raises TraceError."""
    if record is None:
        return
    n = len(record.texts)
    if any(not 0 <= token < vocab for text in record.texts for token in text.tokens):
        raise TraceError(f"drawn holds an id outside the vocabulary of {vocab:,}")
    if not n or record.first < 0 or record.first + n > record.of or any(not text.tokens for text in record.texts):
        raise TraceError(f"drawn has texts {record.first} to {record.first + n - 1} of {record.of}, each with a token")
    if record.chosen is not None and not 0 <= record.chosen < n:
        raise TraceError(f"drawn chose text {record.chosen} of {n}")
    if any(math.isnan(x) or x > ROUNDING for x in (*(text.logp for text in record.texts), record.bound or 0.0)):
        raise TraceError("drawn has a logarithm that is of no probability")


class DrawnBooks:
    """Follows the texts of a run; `checked` counts those that were derived again."""

    def __init__(self, header: Any):
        self.checked = 0
        self._next: int | None = 0 if header.parent is None else None
        self._bound = 0.0

    def lose(self) -> None:
        """Another method goes on from here."""
        self._next, self._bound = None, 0.0

    def problems(self, step: Any) -> Iterator[str]:
        """What is wrong with the texts of a step, the next one, a phrase each."""
        record: Drawn | None = step.drawn
        if record is None:
            return
        stop = record.first + len(record.texts)
        if self._next is not None and record.first != self._next:
            yield f"it drew text {record.first}, and {self._next} is due"
        if record.by == "last" and record.chosen != (due := len(record.texts) - 1 if stop == record.of else None):
            yield f"it chose text {record.chosen} of those it drew, and by their number {due} is due"
        emitted = [] if record.chosen is None else record.texts[record.chosen].tokens
        if step.emitted != emitted:
            yield f"it emitted {step.emitted}, and the text that it chose is {emitted}"
        if record.bound is not None:
            if record.bound > self._bound + ROUNDING:
                yield f"its bound on the mass rose from {self._bound:.6g} to {record.bound:.6g} nats"
            self._bound = record.bound
        self._next = stop
        self.checked += len(record.texts)
