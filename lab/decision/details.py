"""Details as a card: the tallies of a step, described by the header. No strategy is known here by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from decodescope.engine.trace import Header, Step
from decodescope.engine.trace.detail_checks.details import tally_reading
from decodescope.engine.trace.details.tally import TallyReading

from .step_tally import StepTally, TallyRow

Text = Callable[[Sequence[int]], str]


def tally_readings(header: Header, step: Step, text: Text | None = None) -> Iterator[TallyReading]:
    """The tallies of a step that the header declares. text: ids -> text, needed only for sentences"""
    for detail in step.details or ():
        if (read := tally_reading(header, step, detail, text)) is not None:
            yield read


def details_tally(header: Header, step: Step, text: Text, *, beside: bool = False) -> StepTally | None:
    """The card of a step's tallies; None if it has none that the header declares. text: ids -> text
    beside: take the tallies shown below the step's own decision, rather than those that replace it"""
    shown = (x for x in tally_readings(header, step, text) if (x.form.beside is not None) == beside)
    card: StepTally | None = None
    for _, group in groupby(shown, lambda read: read.detail.name):
        reads = list(group)
        card = card or _new_tally(reads[0])
        for read in reads:
            _add_rows(card, read)
        card.lines += (
            reads[-1].scope_with_hidden(sum(x.hidden_count for x in reads)).say_all(reads[-1].form.lines)
        )
    return card


def card_rows(header: Header, step: Step) -> dict[str, dict[int, int]]:
    """name of a tally -> its rows that the card lists -> their places there, all from 0."""
    places: dict[str, dict[int, int]] = {}
    first = 0
    for detail in step.details or ():
        if (read := tally_reading(header, step, detail)) is not None:
            places.setdefault(detail.name, {index: first + k for k, index in enumerate(read.listed_rows)})
            first += len(read.listed_rows)
    return places


def secondary_tallies(header: Header, step: Step, text: Text) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The lines of an explanation on tallies below the step's own decision: their introduction, and their rows.

    text: ids -> text
    """
    for read in tally_readings(header, step, text):
        if (beside := read.form.beside) is not None:
            rows = (
                ", ".join(filter(None, (read.rows[i].say(beside.row), read.words(i))))
                for i in read.listed_rows
            )
            yield beside.words, tuple(rows)


def _new_tally(read: TallyReading) -> StepTally:
    """A card without rows, with the words of a tally."""
    form = read.form
    card = StepTally(form.title, read.whole_scope.say_first(form.says), form.number, form.bar)
    if form.account is not None:
        card.where, card.rule = read.whole_scope.say_first(form.account.where), form.account.rule
    return card


def _add_rows(card: StepTally, read: TallyReading) -> None:
    """Put the rows of a tally into a card, and its longer text."""
    form, first = read.form, len(card.rows)
    card.rows += [_detail_row(read, index) for index in read.listed_rows]
    if read.focus_row in read.listed_rows:
        card.at = first + read.listed_rows.index(read.focus_row)
    for one in () if form.account is None else form.account.passages:
        if (words := read.whole_scope.say(one.words)) is not None:
            each = (row.say_first(one.each) for row in (read.rows if one.each else ()))
            card.account.append((words, (*read.whole_scope.say_all(one.sums), *filter(None, each))))


def _detail_row(read: TallyReading, index: int) -> TallyRow:
    scope = read.rows[index]
    outcome = read.outcomes[index]
    name = scope.say_first(read.form.row)
    return TallyRow(name, read.number(index), read.bar(index), outcome.holds, read.words(index))
