"""Canvas: the places of a canvas with what its declaration makes of them, for checks and views alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from .declarations import CanvasForm
from .scope import FormulaScope, Text, types_of
from .shapes import CanvasDetail


class CanvasReading:
    """A canvas with its declaration.

    knobs:   of the part that recorded it
    n:       tokens of the text before the step;  emitted: tokens that the step added to it
    text:    ids -> text, needed for tokens in sentences alone
    """

    def __init__(
        self,
        detail: CanvasDetail,
        form: CanvasForm,
        knobs: Mapping[str, Any],
        n: int,
        emitted: int,
        text: Text | None = None,
    ):
        self.detail = detail
        self.form = form
        self._shared = {
            **knobs,
            "open": len(detail),
            "settled": len(detail.places),
            "length": detail.length,
            "again": len(detail.reopened) if detail.reopened else None,
            "count": detail.count,
            "stale": detail.stale,
            "anchors": ", ".join(f"place {x - detail.start + 1}" for x in detail.anchors or ()),
            "start": detail.start,
            "upto": max(0, n + emitted - detail.start),
            "emitted": emitted,
            **detail.values,
        }
        self._types = types_of([*form.columns, *form.values]) | {"candidate": "token"}
        self._text = text

    @cached_property
    def whole_scope(self) -> FormulaScope:
        """Names for the whole canvas."""
        return FormulaScope({**self._shared, "held": self.run_length}, self._types, None, self._text)

    @property
    def clause(self) -> str:
        """The step in a clause, for which no place is looked at."""
        return FormulaScope(self._shared, self._types, None, self._text).say_first(self.form.says)

    @cached_property
    def rows(self) -> list[FormulaScope]:
        """Names of each open place."""
        columns = self._columns()
        columns["rank"] = self._ranks(columns)
        return [
            self._scope({**row, "k": k + 1}, above)
            for k, (row, above) in enumerate(zip(self._entries(columns), self._above(columns), strict=True))
        ]

    @property
    def due_places(self) -> list[int]:
        """The open places that the pass settles by the declaration, as indices."""
        going = bool(self.form.run)
        places = []
        refused = self.detail.refused_places
        opened = self.detail.open.tolist()
        for index, row in enumerate(self.rows):
            if (going or any(row.holds(x) for x in self.form.settles)) and opened[index] not in refused:
                places.append(index)
            going = going and row.holds(self.form.run) is True
        return places

    @property
    def run_length(self) -> int | None:
        """For how many open places from the first on `run` holds; None without one."""
        if not self.form.run:
            return None
        rows = self.rows
        return next((i for i, row in enumerate(rows) if row.holds(self.form.run) is not True), len(rows))

    @property
    def follows_declaration(self) -> bool:
        """True if exactly the declared places were settled, with the tokens proposed there."""
        due = self.due_places
        same: bool = self.detail.places == self.detail.open[due].tolist()
        if not same:
            return False
        right: bool = self.detail.tokens == self.detail.candidate[due].tolist()
        return right

    def words(self, index: int) -> str:
        """A description of an open place, in a few words."""
        return self.rows[index].say_first(self.form.place)

    def _columns(self) -> dict[str, list[Any]]:
        detail = self.detail
        settled = dict(zip(detail.places, detail.rules, strict=True))
        columns = {name: column.tolist() for name, column in detail.columns.items()}
        columns["candidate"] = detail.candidate.tolist()
        if detail.confidence is not None:
            columns["confidence"] = detail.confidence.tolist()
        columns["place"] = [x - detail.start + 1 for x in detail.open.tolist()]
        columns["rule"] = [settled.get(x) for x in detail.open.tolist()]
        columns["stands"] = [x in settled for x in detail.open.tolist()]
        return columns

    def _ranks(self, columns: Mapping[str, list[Any]]) -> list[int]:
        """Of each open place its rank, from 1."""
        rows = [self._scope(row, None) for row in self._entries(columns)]
        for formula in self.form.rank:
            keys = [row.value(formula) for row in rows]
            if None not in keys:
                order = np.argsort(np.array(keys), kind="stable")
                ranks = np.empty(len(order), int)
                ranks[order] = np.arange(1, len(order) + 1)
                return ranks.tolist()
        return list(range(1, len(rows) + 1))

    def _scope(self, row: Mapping[str, Any], above: Mapping[str, Any] | None) -> FormulaScope:
        return FormulaScope({**self._shared, **row}, self._types, above, self._text)

    def _entries(self, columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
        return [{name: column[i] for name, column in columns.items()} for i in range(len(self.detail))]

    def _above(self, columns: Mapping[str, list[Any]]) -> list[dict[str, Any] | None]:
        return [None, *self._entries(columns)[:-1]]


def canvas_problems(reading: CanvasReading) -> Iterator[str]:
    """Problems of a canvas by its own declaration, a phrase each."""
    detail, due = reading.detail, reading.due_places
    if detail.places != detail.open[due].tolist():
        yield f"{detail.name} settles {detail.places}, and its declaration gives {detail.open[due].tolist()}"
    elif detail.tokens != detail.candidate[due].tolist():
        yield f"{detail.name} settles the tokens {detail.tokens}, but the candidates are others"
