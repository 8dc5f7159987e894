"""Checks of details: what a strategy or router recorded of a step, by its own declaration and by the check that this names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ..details.canvas import CanvasReading, canvas_problems
from ..details.declarations import CanvasForm, Form, TallyForm
from ..details.shapes import CanvasDetail, Detail, TallyDetail
from ..details.tally import TallyReading, tally_problems
from ..encoding.forks import method_at
from ..records.events import Header, Step
from .fixed_point import check_fixed_point

UNKNOWN = "details not re-derived"
D = TypeVar("D", bound=Detail)
# name of a check -> what is wrong with a detail of a step, a phrase each; knobs are those of the part that recorded it
Check = Callable[[Any, Step, Mapping[str, Any]], Iterator[str]]
CHECKS: dict[str, Check] = {"fixed_point": check_fixed_point}
# checks that follow a run over its steps and stand in `check.py`
OVER_STEPS: frozenset[str] = frozenset({"threads", "fills", "pictures"})


def knobs_of(header: Header, step: int, form: Form) -> Mapping[str, Any]:
    """The knobs of the part that records details of this form, in the method that `step` was made with."""
    part = method_at(header, step).get(form.part)
    return part if isinstance(part, dict) else {}


def details_by_check(header: Header, step: Step, check: str) -> list[Detail]:
    """The details of a step whose declaration names this check."""
    return [x for x in step.details or () if (form := header.details.get(x.name)) and form.check == check]


def detail_by_check(header: Header, step: Step, check: str, kind: type[D]) -> D | None:
    """The first detail of that shape whose declaration names this check; None where the step has none."""
    return next((x for x in details_by_check(header, step, check) if isinstance(x, kind)), None)


def reading(
    header: Header, step: Step, detail: Detail, text: Callable[[Sequence[int]], str] | None = None
) -> TallyReading | None:
    """A tally beside its declaration; None for another shape, or where the header has none. text: ids -> text, for sentences"""
    form = header.details.get(detail.name)
    if not isinstance(detail, TallyDetail) or not isinstance(form, TallyForm):
        return None
    return TallyReading(detail, form, knobs_of(header, step.step, form), step.emitted, text)


def canvas_reading(
    header: Header, step: Step, detail: Detail, text: Callable[[Sequence[int]], str] | None = None
) -> CanvasReading | None:
    """A canvas beside its declaration; None for another shape, or where the header has none. text: as `reading` takes it"""
    form = header.details.get(detail.name)
    if not isinstance(detail, CanvasDetail) or not isinstance(form, CanvasForm):
        return None
    return CanvasReading(detail, form, knobs_of(header, step.step, form), step.n, len(step.emitted), text)


def details_problems(header: Header, step: Step, counts: Counter[str]) -> Iterator[str]:
    """What is wrong with the details of a step, a phrase each; enters what was derived again into `counts`."""
    for detail in step.details or ():
        form = header.details.get(detail.name)
        if form is None:
            counts[UNKNOWN] += 1
            continue
        if (read := reading(header, step, detail)) is not None:
            yield from tally_problems(read, step.emitted)
        if not form.check and (canvas := canvas_reading(header, step, detail)) is not None:
            yield from canvas_problems(canvas)
        if form.check in CHECKS:
            yield from CHECKS[form.check](detail, step, knobs_of(header, step.step, form))
        elif form.check and form.check not in OVER_STEPS:
            counts[UNKNOWN] += 1
        if form.counted:
            counts[form.counted] += 1
