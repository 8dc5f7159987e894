"""Details as a card: the tallies of a step, by what the header declares of them. No strategy is known here by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from decodescope.engine.trace import Header, Step
from decodescope.engine.trace.checks.details import reading
from decodescope.engine.trace.details.tally import TallyReading

from .tallies import Row, Tally

Text = Callable[[Sequence[int]], str]


def details(header: Header, step: Step, text: Text) -> Tally | None:
    """The card of a step's tallies; None where it has none that the header declares. text: ids -> text"""
    card: Tally | None = None
    for detail in step.details or ():
        read = reading(header, step, detail, text) if detail.shape == "tally" else None
        if read is None:
            continue
        if card is None:
            card = _begin(read)
        first = len(card.rows)
        card.rows += [_row(read, index) for index in read.listed]
        card.lines += read.whole.all(read.form.lines)
        if read.first in read.listed:
            card.at = first + read.listed.index(read.first)
    return card


def card_rows(header: Header, step: Step) -> dict[str, dict[int, int]]:
    """name of a tally -> its rows that the card lists -> their places there, all from 0."""
    places: dict[str, dict[int, int]] = {}
    first = 0
    for detail in step.details or ():
        if (read := reading(header, step, detail)) is not None:
            places.setdefault(detail.name, {index: first + k for k, index in enumerate(read.listed)})
            first += len(read.listed)
    return places


def _begin(read: TallyReading) -> Tally:
    """A card without rows, with the words of a tally."""
    return Tally(read.form.title, read.whole.first(read.form.says), read.form.number, read.form.bar)


def _row(read: TallyReading, index: int) -> Row:
    scope = read.rows[index]
    outcome = read.outcomes[index]
    name = scope.first(read.form.row)
    return Row(name, read.number(index), read.bar(index), outcome.holds, read.words(index))
