"""Details as a card: the tallies of a step, by what the header declares of them. No strategy is known here by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from decodescope.engine.trace import Header, Step
from decodescope.engine.trace.checks.details import reading
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
    card: Tally | None = None
    for read in readings(header, step, text):
        if (read.form.beside is not None) != beside:
            continue
        if card is None:
            card = _begin(read)
        first = len(card.rows)
        card.rows += [_row(read, index) for index in read.listed]
        card.lines += read.whole.all(read.form.lines)
        at = read.whole.value(read.form.at) if read.form.at else None
        if at is not None and int(at) - 1 in read.listed:
            card.at = first + read.listed.index(int(at) - 1)
    return card


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
    return Tally(read.form.title, read.whole.first(read.form.says), read.form.number, read.form.bar)


def _row(read: TallyReading, index: int) -> Row:
    scope = read.rows[index]
    outcome = read.outcomes[index]
    name = scope.first(read.form.row)
    return Row(name, read.number(index), read.bar(index), outcome.holds, read.words(index))
