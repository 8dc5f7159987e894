"""Drawn: whole texts that were drawn behind one prompt, which of them becomes the run's, and the check of that."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ..values.limits import TraceError

By = Literal["last", "exact", "f1", "edit"]
MEASURES: tuple[str, ...] = ("exact", "f1", "edit")  # by which texts vote
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
    by:     how the run's text is chosen: the "last" one, or by the votes of all, in how like they are: "exact" (equal or not),
            "f1" (tokens in common), "edit" (edits)
    chosen: which text of this step it is; None: a later step says
    like:   float64 [n, n], how like each two of them are, from 0 to 1;  votes: of each text its mean, where they vote
    bound:  what the mass of all texts that the grammar allows is at most, by what was seen so far, as a logarithm; None: nobody
            looked
    """

    first: int
    of: int
    texts: list[Text]
    by: By = "last"
    chosen: int | None = None
    bound: float | None = None
    like: np.ndarray | None = None
    votes: list[float] = field(default_factory=list)


def likeness(a: Sequence[int], b: Sequence[int], by: str) -> float:
    """How like two texts are, from 0 to 1; the same whichever comes first."""
    if a == b or by == "exact":
        return float(a == b)
    if by == "f1":
        return 2 * (Counter(a) & Counter(b)).total() / (len(a) + len(b))
    return 1 - distance(a, b) / max(len(a), len(b))


def distance(a: Sequence[int], b: Sequence[int]) -> int:
    """Tokens that must be put in, taken out or replaced to make b of a: one column of the table of distances at a time, its
    differences as bits of two words (Myers 1999, in the form of Hyyrö 2003)."""
    at: dict[int, int] = {}
    for i, token in enumerate(a):
        at[token] = at.get(token, 0) | 1 << i
    every = (1 << len(a)) - 1
    last = 1 << len(a) >> 1
    total = len(a)
    up, down = every, 0
    for token in b:
        equal = at.get(token, 0)
        zero = (((equal & up) + up) ^ up) | equal | down
        right, left = down | (every & ~(zero | up)), up & zero
        total += bool(right & last) - bool(left & last)
        right, left = (right << 1 | 1) & every, left << 1 & every
        up, down = left | (every & ~(zero | right)), right & zero
    return total


def elected(texts: Sequence[Text], by: By) -> Drawn:
    """The vote of all texts of a run. Of equal votes the text counts that the model finds likelier, then the one whose ids come
    first; sums are exact, so the order of the texts decides nothing."""
    n = len(texts)
    like = np.ones((n, n))
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}
    for i, one in enumerate(texts):
        for j, other in enumerate(texts[:i]):
            pair = tuple(one.tokens), tuple(other.tokens)
            if pair not in known:
                known[pair] = known[pair[::-1]] = likeness(one.tokens, other.tokens, by)
            like[i, j] = like[j, i] = known[pair]
    votes = [math.fsum(row) / n for row in like.tolist()]
    best: dict[tuple[int, ...], float] = {}
    for text in texts:
        key = tuple(text.tokens)
        best[key] = max(best.get(key, text.logp), text.logp)
    first = min(range(n), key=lambda i: (-votes[i], -best[tuple(texts[i].tokens)], texts[i].tokens, i))
    return Drawn(0, n, list(texts), by, first, None, like, votes)


def consistent_drawn(record: Drawn | None, vocab: int) -> None:
    """What must agree inside the record, if there is one. Raises TraceError."""
    if record is None:
        return
    n = len(record.texts)
    if any(not 0 <= token < vocab for text in record.texts for token in text.tokens):
        raise TraceError(f"drawn holds an id outside the vocabulary of {vocab:,}")
    if (
        not n
        or record.first < 0
        or record.first + n > record.of
        or any(not text.tokens for text in record.texts)
    ):
        raise TraceError(
            f"drawn has texts {record.first} to {record.first + n - 1} of {record.of}, each with a token"
        )
    if record.chosen is not None and not 0 <= record.chosen < n:
        raise TraceError(f"drawn chose text {record.chosen} of {n}")
    if record.by != "last" and (record.like is None or record.like.shape != (n, n) or len(record.votes) != n):
        raise TraceError(f"drawn has not a vote and a row of likenesses for each of {n} texts")
    if any(
        math.isnan(x) or x > ROUNDING for x in (*(text.logp for text in record.texts), record.bound or 0.0)
    ):
        raise TraceError("drawn has a logarithm that is of no probability")


class DrawnTextValidator:
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
        if record.by == "last" and record.chosen != (
            due := len(record.texts) - 1 if stop == record.of else None
        ):
            yield f"it chose text {record.chosen} of those it drew, and by their number {due} is due"
        if record.by != "last":
            yield from _miscounted(record)
        emitted = [] if record.chosen is None else record.texts[record.chosen].tokens
        if step.emitted != emitted:
            yield f"it emitted {step.emitted}, and the text that it chose is {emitted}"
        if record.bound is not None:
            if record.bound > self._bound + ROUNDING:
                yield f"its bound on the mass rose from {self._bound:.6g} to {record.bound:.6g} nats"
            self._bound = record.bound
        self._next = stop
        self.checked += len(record.texts)


def _miscounted(record: Drawn) -> Iterator[str]:
    """What is wrong with a vote, which is held again."""
    assert record.like is not None
    if record.by not in MEASURES:
        yield f"its texts vote by {record.by[:20]!r}, which this version does not know"
        return
    due = elected(record.texts, record.by)
    assert due.like is not None
    if not np.allclose(record.like, due.like, rtol=0, atol=ROUNDING):
        yield "its texts are not as like each other as it says"
    if not np.allclose(record.votes, due.votes, rtol=0, atol=ROUNDING):
        yield f"its votes are {record.votes}, and by their likeness {due.votes} are due"
    if record.chosen != due.chosen:
        yield f"it chose text {record.chosen}, and by the votes text {due.chosen} is due"
