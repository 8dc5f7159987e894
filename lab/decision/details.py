"""Details as a card: the tallies of a step, by what the header declares of them. No strategy is known here by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from decodescope.engine.trace import Header, Step
from decodescope.engine.trace.detail_checks.details import reading
from decodescope.engine.trace.details.tally import TallyReading

from .tallies import Row, Tally

Text = Callable[[Sequence[int]], str]


def readings(header: Header, step: Step, text: Text | None = None) -> Iterator[TallyReading]:
    """The tallies of a step that the header declares. text: ids -> text, needed for sentences alone"""
    for detail in step.details or ():
        if (read := reading(header, step, detail, text)) is not None:
            yield read


def details(header: Header, step: Step, text: Text, *, beside: bool = False) -> Tally | None:
    """The card of a step's tallies; None where it has none that the header declares. text: ids -> text; beside: of those that
    stand under the step's own decision, not in its place"""
    shown = (x for x in readings(header, step, text) if (x.form.beside is not None) == beside)
    card: Tally | None = None
    for _, group in groupby(shown, lambda read: read.detail.name):
        reads = list(group)
        card = card or _begin(reads[0])
        for read in reads:
            _add(card, read)
        card.lines += reads[-1].whole_with(sum(x.hidden for x in reads)).all(reads[-1].form.lines)
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


def explained_beside(header: Header, step: Step, text: Text) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What an explanation says of tallies under the step's own decision: what introduces them, and their rows.

    text: ids -> text
    """
    for read in readings(header, step, text):
        if (beside := read.form.beside) is not None:
            rows = (
                ", ".join(filter(None, (read.rows[i].say(beside.row), read.words(i)))) for i in read.listed
            )
            yield beside.words, tuple(rows)


def _begin(read: TallyReading) -> Tally:
    """A card without rows, with the words of a tally."""
    form = read.form
    card = Tally(form.title, read.whole.first(form.says), form.number, form.bar)
    if form.account is not None:
        card.where, card.rule = read.whole.first(form.account.where), form.account.rule
    return card


def _add(card: Tally, read: TallyReading) -> None:
    """Put the rows of a tally into a card, and what it says at length."""
    form, first = read.form, len(card.rows)
    card.rows += [_row(read, index) for index in read.listed]
    if read.first in read.listed:
        card.at = first + read.listed.index(read.first)
    for one in () if form.account is None else form.account.passages:
        if (words := read.whole.say(one.words)) is not None:
            each = (row.first(one.each) for row in (read.rows if one.each else ()))
            card.account.append((words, (*read.whole.all(one.sums), *filter(None, each))))


def _row(read: TallyReading, index: int) -> Row:
    scope = read.rows[index]
    outcome = read.outcomes[index]
    name = scope.first(read.form.row)
    return Row(name, read.number(index), read.bar(index), outcome.holds, read.words(index))
