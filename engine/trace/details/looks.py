"""Looks: what a router of two models computed in addition to their passes, to decide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ..values.limits import TraceError
from .declarations import LookForm
from .scope import FormulaScope, format_number
from .tally import TallyReading

Looked = Literal["law", "entropy", "net"]


@dataclass
class Look:
    """Something that a router computed, as far as its cost is concerned.

    of:   "law": probabilities of all tokens, from logits; "entropy": these and their entropy; "net": a trained net
    lane: whose distributions or states it used;  rows: how many
    widths: of a net, from its input to its output, with an activation between two maps
    """

    of: Looked
    lane: str
    rows: int
    widths: list[int] = field(default_factory=list)


class DueLook(NamedTuple):
    """A look that follows from what was decided. rows: None if a number is missing;  least: there may be more rows"""

    of: str
    lane: str
    rows: float | None
    least: bool


def validate_looks(looks: Sequence[Look] | None) -> None:
    """Counts of the looks of a step. Raises TraceError."""
    for one in looks or ():
        if one.rows < 0:
            raise TraceError(f"looks has a look at {one.rows} rows")


def due_looks(reading: TallyReading) -> Iterator[DueLook]:
    """The looks that a tally requires of its recorder."""
    for one in reading.form.looks:
        for scope in reading.rows if one.each else [reading.whole_scope]:
            if (due := _due_look(one, scope)) is not None:
                yield due


def _due_look(one: LookForm, scope: FormulaScope) -> DueLook | None:
    """The look in one scope; None if it is not due there, such as one at no rows."""
    if any(scope.entry(name) != wanted for name, wanted in one.given.items()):
        return None
    rows = scope.value(one.rows)
    return None if rows == 0 else DueLook(one.of, one.lane, rows, one.least)


def looks_problems(looks: Sequence[Look], due: Iterable[DueLook]) -> Iterator[str]:
    """Problems of the looks of a step that requires the looks `due`, a phrase each."""
    due = list(due)
    same = [(x.of, x.lane) for x in looks] == [(x.of, x.lane) for x in due]
    if not (same and all(_satisfies(a, b) for a, b in zip(looks, due, strict=True))):
        seen = [DueLook(x.of, x.lane, x.rows, False) for x in looks]
        yield f"its router looked at {_describe_looks(seen)}, and what it decided needs {_describe_looks(due)}"
    for one in looks:
        if (one.of == "net") != (len(one.widths) > 1) or any(x < 1 for x in one.widths):
            yield f"its router looked by the widths {one.widths}, which are no {one.of}'s"


def _satisfies(look: Look, due: DueLook) -> bool:
    return due.rows is not None and (look.rows >= due.rows if due.least else look.rows == due.rows)


def _describe_looks(looks: Sequence[DueLook]) -> str:
    rows = ("unknown" if x.rows is None else format_number(x.rows, "") for x in looks)
    return ", ".join(f"{x.of} of {n} rows by {x.lane}" for x, n in zip(looks, rows, strict=True)) or "nothing"
