"""Drawn texts: the check of whole texts that a run drew, one step after another, and of the vote by which one is chosen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..details.matrix import MatrixReading
from ..details.tally import TallyReading
from ..details.votes import MEASURES, hold_vote
from ..records.events import Header, Step
from .details import details_by_check, matrix_reading, tally_reading

DRAWN, VOTE = "drawn_texts", "text_vote"  # the two checks, as declarations name them
ROUNDING = 1e-9  # of a logarithm that was added up on the way


class DrawnTextValidator:
    """Follows the texts of a run; `checked` counts those that were derived again.

    A tally with a declaration that names the check "drawn_texts" has texts of a run that draws several. Its values are `first`,
    the number of the first of them in the run, from 0, and `bound`, an upper bound on the mass of all texts, as a logarithm.
    One that names "text_vote" has all of them, with the columns `tokens`, `logp` and `votes` and the values `chosen` and
    `same`. They vote by the knob `similarity`; a matrix with the same rows holds the similarity of each two.
    """

    def __init__(self, header: Header):
        self.checked = 0
        self._header = header
        self._next: int | None = 0 if header.parent is None else None
        self._bound = 0.0

    def lose(self) -> None:
        """Another method goes on from here."""
        self._next, self._bound = None, 0.0

    def problems(self, step: Step) -> Iterator[str]:
        """Problems of the texts of a step, the next one, a phrase each."""
        for check in (DRAWN, VOTE):
            for detail in details_by_check(self._header, step, check):
                if (read := tally_reading(self._header, step, detail)) is None:
                    continue
                yield from self._check_numbering(read)
                if check == VOTE:
                    yield from _check_vote(read, self._similarity_matrix(step, detail.name))
                self.checked += len(read.rows)

    def _check_numbering(self, read: TallyReading) -> Iterator[str]:
        """Check that the texts go on where those before them ended, and that the bound has not risen."""
        first, bound = (read.whole_scope.number(name) for name in ("first", "bound"))
        at = 0 if first is None else int(first)
        if self._next is not None and at != self._next:
            yield f"it drew text {at}, and {self._next} is due"
        self._next = at + len(read.rows)
        if bound is not None:
            if bound > self._bound + ROUNDING:
                yield f"its bound on the mass rose from {self._bound:.6g} to {bound:.6g} nats"
            self._bound = bound

    def _similarity_matrix(self, step: Step, name: str) -> MatrixReading | None:
        """The matrix with the rows of a tally."""
        every = (matrix_reading(self._header, step, x) for x in step.details or ())
        return next((x for x in every if x is not None and x.form.rows_of == name), None)


def _check_vote(read: TallyReading, matrix: MatrixReading | None) -> Iterator[str]:
    """Problems of a vote, which is repeated."""
    columns, measure = read.detail.columns, read.whole_scope.entry("similarity")
    texts, logp, votes = (columns.get(name, []) for name in ("tokens", "logp", "votes"))
    if measure not in MEASURES:
        yield f"its texts vote by {str(measure)[:20]!r}, which this version does not know"
        return
    if (
        not texts
        or any(type(x) is not list for x in texts)
        or not (_are_numbers(logp) and _are_numbers(votes))
    ):
        yield "its texts lack tokens, logarithms or votes"
        return
    due = hold_vote(texts, logp, measure)
    like = None if matrix is None else matrix.detail.numbers
    if like is None or like.shape != due.like.shape:
        yield f"it does not keep how like each two of its {len(texts)} texts are"
    elif not np.allclose(like, due.like, rtol=0, atol=ROUNDING):
        yield "its texts are not as like each other as it says"
    if not np.allclose(votes, due.votes, rtol=0, atol=ROUNDING):
        yield f"its votes are {votes}, and by their likeness {due.votes} are due"
    if (chosen := read.whole_scope.entry("chosen")) != due.chosen:
        yield f"it chose text {chosen}, and by the votes text {due.chosen} is due"
    if (outcomes := columns.get("outcome", [])) != due.outcomes:
        yield f"its texts are {', '.join(map(str, outcomes))}, and by the votes {', '.join(due.outcomes)}"
    due_same = 1 + due.outcomes.count("same")
    if (same := read.whole_scope.entry("same")) != due_same:
        yield f"it counts {same} texts like the one that it chose, and there are {due_same}"


def _are_numbers(column: list[Any]) -> bool:
    return bool(column) and all(isinstance(x, int | float) for x in column)
