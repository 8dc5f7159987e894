"""Checks of details: what a strategy or router recorded of a step, by its own declaration and by the check that this names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ..details.canvas import CanvasReading, canvas_problems
from ..details.declarations import CanvasForm, DetailColumn, Form, MatrixForm, TallyForm
from ..details.looks import DueLook, due_looks, looks_problems
from ..details.matrix import MatrixReading, matrix_problems
from ..details.shapes import CanvasDetail, Detail, MatrixDetail, TallyDetail
from ..details.tally import TallyReading, tally_problems
from ..encoding.forks import method_at
from ..records.events import Header, Step
from .edits import edits_problems
from .fixed_point import check_fixed_point
from .joint_texts import joint_problems
from .mixtures import mixture_problems

UNKNOWN = "details not re-derived"
MOST = 1 << 40  # that a detail may count as
D = TypeVar("D", bound=Detail)
# name of a check -> what is wrong with a detail of a step, a phrase each; knobs are those of the part that recorded it
Check = Callable[[Any, Step, Mapping[str, Any]], Iterator[str]]
CHECKS: dict[str, Check] = {
    "edits": edits_problems,
    "fixed_point": check_fixed_point,
    "joint_texts": joint_problems,
    "text_mixture": mixture_problems,
}
# checks that follow a run over its steps, or need its prompt; they are in `check.py`
OVER_STEPS: frozenset[str] = frozenset(
    {
        *("answers", "beam_search", "blocks", "drawn_texts", "labelled answers", "labels", "lines"),
        *("fills", "pictures", "ranked answers", "spans", "text_vote", "threads", "tree_search", "turns"),
    }
)


def knobs_of(header: Header, step: int, form: Form) -> Mapping[str, Any]:
    """The knobs of the part that records details of this form, in the method that `step` was made with."""
    part = method_at(header, step).get(form.part)
    return part if isinstance(part, dict) else {}


def details_by_check(header: Header, step: Step, check: str) -> list[Detail]:
    """The details of a step with a declaration that names this check."""
    return [x for x in step.details or () if (form := header.details.get(x.name)) and form.check == check]


def tallies_by_check(
    header: Header, step: Step, check: str, columns: Mapping[str, str], values: Mapping[str, str]
) -> tuple[list[TallyDetail], list[str]]:
    """The tallies of a step with a declaration that names this check, and the problems of those that it cannot follow.

    columns, values: name -> the type that it needs, with a ? after it if an entry may be null
    """
    tallies = []
    problems = []
    for detail in details_by_check(header, step, check):
        form = header.details[detail.name]
        where = f"{detail.name[:20]}, which the check {check!r} derives again,"
        if not isinstance(form, TallyForm) or not isinstance(detail, TallyDetail):
            problems.append(f"{where} is no tally")
            continue
        wrong = _missing_names(form.columns, detail.columns, columns)
        wrong += _missing_names(form.values, {name: [x] for name, x in detail.values.items()}, values)
        if wrong:
            problems.append(f"{where} lacks {', '.join(wrong)}")
        else:
            tallies.append(detail)
    return tallies, problems


def _missing_names(
    declared: Sequence[DetailColumn], held: Mapping[str, Sequence[Any]], needed: Mapping[str, str]
) -> list[str]:
    """The names that a check needs and the tally lacks, or holds with another type or with nulls."""
    types = {x.name: x.type for x in declared}
    return [
        name
        for name, kind in needed.items()
        if types.get(name) != kind.rstrip("?")
        or name not in held
        or (not kind.endswith("?") and any(x is None for x in held[name]))
    ]


def detail_by_check(header: Header, step: Step, check: str, kind: type[D]) -> D | None:
    """The first detail of that shape with a declaration that names this check; None if the step has none."""
    return next((x for x in details_by_check(header, step, check) if isinstance(x, kind)), None)


def tally_reading(
    header: Header, step: Step, detail: Detail, text: Callable[[Sequence[int]], str] | None = None
) -> TallyReading | None:
    """A tally with its declaration; None for another shape, or if the header has none. text: ids -> text, for sentences"""
    form = header.details.get(detail.name)
    if not isinstance(detail, TallyDetail) or not isinstance(form, TallyForm):
        return None
    return TallyReading(detail, form, knobs_of(header, step.step, form), step.emitted, text)


def matrix_reading(
    header: Header, step: Step, detail: Detail, text: Callable[[Sequence[int]], str] | None = None
) -> MatrixReading | None:
    """The same of a matrix."""
    form = header.details.get(detail.name)
    if not isinstance(detail, MatrixDetail) or not isinstance(form, MatrixForm):
        return None
    return MatrixReading(detail, form, knobs_of(header, step.step, form), step.emitted, text)


def find_tally(
    header: Header, step: Step, name: str, text: Callable[[Sequence[int]], str] | None = None
) -> TallyReading | None:
    """The first tally of that name; None if the step has none that the header declares."""
    tallies = (tally_reading(header, step, x, text) for x in step.details or () if x.name == name)
    return next(filter(None, tallies), None)


def _check_copies(read: TallyReading, header: Header) -> Iterator[str]:
    """Check that the tokens that a step emitted are in the prompt where the tally says that they are copied from."""
    for index in read.emitting_rows if read.form.source else []:
        places, tokens = read.sources(index), read.tokens(index)
        stand = [None if x is None or x >= len(header.prompt) else int(header.prompt[x]) for x in places]
        if stand != tokens:
            yield f"row {index + 1} of {read.detail.name} holds {tokens}, and the prompt has {stand}"


def canvas_reading(
    header: Header, step: Step, detail: Detail, text: Callable[[Sequence[int]], str] | None = None
) -> CanvasReading | None:
    """A canvas with its declaration; None for another shape, or if the header has none. text: as in `tally_reading`"""
    form = header.details.get(detail.name)
    if not isinstance(detail, CanvasDetail) or not isinstance(form, CanvasForm):
        return None
    return CanvasReading(detail, form, knobs_of(header, step.step, form), step.n, len(step.emitted), text)


def details_problems(header: Header, step: Step, counts: Counter[str]) -> Iterator[str]:
    """Problems of the details of a step, a phrase each; adds what was derived again to `counts`."""
    due: list[DueLook] = []
    known = True
    for detail in step.details or ():
        form = header.details.get(detail.name)
        if form is None:
            known = False
            counts[UNKNOWN] += 1
            continue
        if (read := tally_reading(header, step, detail)) is not None:
            yield from tally_problems(read, step.emitted)
            yield from _check_copies(read, header)
            due += due_looks(read)
        if (matrix := matrix_reading(header, step, detail)) is not None:
            yield from matrix_problems(matrix)
        if not form.check and (canvas := canvas_reading(header, step, detail)) is not None:
            yield from canvas_problems(canvas)
        if form.check in CHECKS:
            yield from CHECKS[form.check](detail, step, knobs_of(header, step.step, form))
        elif form.check and form.check not in OVER_STEPS:
            counts[UNKNOWN] += 1
        if form.counted:
            counts[form.counted] += _detail_count(read)
    if known:
        yield from looks_problems(step.looks or (), due)


def _detail_count(read: TallyReading | None) -> int:
    """As how many a detail counts."""
    if read is None or not read.form.count:
        return 1
    return int(min(max(read.whole_scope.value(read.form.count) or 0, 0), MOST))
