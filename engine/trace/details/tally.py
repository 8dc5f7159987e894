"""Tally: the rows of a tally with what its declaration makes of them, for checks and views alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from .declarations import Outcome, TallyForm
from .scope import FormulaScope, Text, types_of
from .shapes import TallyDetail


class TallyReading:
    """A tally with its declaration.

    knobs:   of the part that recorded it;  emitted: ids that the step added to the text
    text:    ids -> text, needed for sentences alone
    """

    def __init__(
        self,
        detail: TallyDetail,
        form: TallyForm,
        knobs: Mapping[str, Any],
        emitted: Sequence[int],
        text: Text | None = None,
    ):
        self.detail = detail
        self.form = form
        self._shared = {**knobs, "rows": len(detail), "emitted": len(emitted), **detail.values}
        self._types = types_of([*form.columns, *form.values])
        self._text = text

    @cached_property
    def whole_scope(self) -> FormulaScope:
        """Names for the whole table; for a table of one row its columns too."""
        return self.scope_with_hidden(self.hidden_count)

    def scope_with_hidden(self, hidden: int) -> FormulaScope:
        """The same, where a card leaves out so many rows of this and of other tables."""
        only = self.detail.row(0) if len(self.detail) == 1 else {}
        return FormulaScope({**only, **self._shared, "hidden": hidden}, self._types, None, self._text)

    @cached_property
    def rows(self) -> list[FormulaScope]:
        """Names of each row."""
        scopes = []
        above: dict[str, Any] | None = None
        for index in range(len(self.detail)):
            row = self.detail.row(index)
            place = {"k": index + 1, "below": len(self.detail) - index - 1}
            if self.outcomes:
                place["holds"] = int(self.outcomes[index].holds)
            scopes.append(FormulaScope({**self._shared, **row, **place}, self._types, above, self._text))
            above = row
        return scopes

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """The outcome of each row; if none is declared, all are kept."""
        if not self.form.outcomes:
            return [Outcome(True)] * len(self.detail)
        return [self.form.outcomes[word] for word in self.detail.columns.get("outcome", ())]

    @cached_property
    def listed_rows(self) -> list[int]:
        """The rows that a card lists, counted from 0."""
        every = range(len(self.detail))
        return [i for i in every if not self.form.listed or self.rows[i].holds(self.form.listed) is not False]

    @cached_property
    def focus_row(self) -> int | None:
        """The row where a reader looks first, counted from 0; None: the declaration names none that is there."""
        at = self.whole_scope.value(self.form.at) if self.form.at else None
        return None if at is None or not 1 <= at <= len(self.detail) else int(at) - 1

    @property
    def hidden_count(self) -> int:
        """How many rows a card leaves out."""
        return len(self.detail) - len(self.listed_rows)

    def number(self, index: int) -> float | None:
        """The number of a row."""
        return self.rows[index].value(self.form.value) if self.form.value else None

    def bar(self, index: int) -> float | None:
        """The bar that the row's number is compared with; None: it did not decide."""
        bar = self.outcomes[index].bar
        return self.rows[index].value(bar) if bar else None

    def words(self, index: int) -> str:
        """The outcome of a row in words."""
        return ", ".join(filter(None, self.rows[index].say_all(self.outcomes[index].words)))

    @cached_property
    def emitting_rows(self) -> list[int]:
        """The rows with tokens that the step emitted, counted from 0."""
        words = self.detail.columns.get("outcome", [])
        chosen = self.form.emitting
        return [i for i, x in enumerate(self.outcomes) if (words[i] in chosen if chosen else x.holds)]

    def tokens(self, index: int) -> list[int]:
        """The ids that a row gives to the text."""
        column = self.detail.columns.get(self.form.emits)
        entry = None if column is None else column[index]
        if entry is None:
            return []
        return entry if isinstance(entry, list) else [entry]

    def sources(self, index: int) -> list[int | None]:
        """Of each id of a row the position in the prompt that it is a copy of; None: there is no such position."""
        first = self.rows[index].value(self.form.source) if self.form.source else None
        at = None if first is None or first < 0 or first != int(first) else int(first)
        return [None if at is None else at + k for k in range(len(self.tokens(index)))]

    @cached_property
    def emitted_ids(self) -> list[int]:
        """The ids that the rows give to the text, in order, and what closes them."""
        ids = [token for index in self.emitting_rows for token in self.tokens(index)]
        closing = self.detail.values.get(self.form.closes)
        return ids if closing is None or not ids else [*ids, closing]


def tally_problems(reading: TallyReading, emitted: Sequence[int]) -> Iterator[str]:
    """Problems of a tally by its own declaration, a phrase each."""
    form, detail = reading.form, reading.detail
    name = detail.name
    for index, outcome in enumerate(reading.outcomes):
        number, bar = reading.number(index), reading.bar(index)
        if outcome.bar and (number is None or bar is None):
            yield f"row {index + 1} of {name} lacks the numbers that decide it"
        elif bar is not None and number is not None and (number >= bar) != outcome.holds:
            word = detail.columns["outcome"][index]
            yield f"row {index + 1} of {name} is {word!r}, with {number:.6g} against {bar:.6g}"
        for due in (*form.relations, *outcome.relations):
            if reading.rows[index].breaks(due):
                yield f"row {index + 1} of {name} breaks {due.holds}"
    for due in form.totals:
        if reading.whole_scope.breaks(due):
            yield f"{name} breaks {due.holds}"
    if form.order and not in_order(detail.columns.get("outcome", []), form.order):
        yield f"the rows of {name} come in an order that cannot be: {', '.join(detail.columns['outcome'][:8])}"
    if form.emits:
        ids = reading.emitted_ids
        if list(emitted) != ids[: len(emitted)] or (ids and not emitted):
            yield f"it emitted {list(emitted)}, and {name} gives {ids}"


def in_order(words: Sequence[str], order: Sequence[str]) -> bool:
    """True if the words come in this order, such as ["first", "taken*", "bar|repeat?"]. Each takes as many as it can."""
    at = 0
    for part in order:
        choices = part.rstrip("*?").split("|")
        most = len(words) if part.endswith("*") else 1
        count = 0
        while count < most and at < len(words) and words[at] in choices:
            at, count = at + 1, count + 1
        if not count and part[-1] not in "*?":
            return False
    return at == len(words)
