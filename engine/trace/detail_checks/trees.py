"""Checks of trees: what a strategy recorded of the texts that it followed, by its own declaration, from step to step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..details.declarations import TreeForm
from ..details.shapes import TallyDetail, TreeDetail
from ..details.tree import TreeReading, tree_problems
from ..records.events import Header, Step
from .details import knobs_of

Text = Callable[[Sequence[int]], str]


def tree_form(header: Header, detail: TreeDetail) -> TreeForm | None:
    """The declaration of a tree; None if the header has none."""
    form = header.details.get(detail.name)
    return form if isinstance(form, TreeForm) else None


def declared_trees(header: Header, step: Step | None) -> list[tuple[TreeDetail, TreeForm]]:
    """The trees of a step that the header declares."""
    held = () if step is None else step.details or ()
    return [
        (detail, form)
        for detail in held
        if isinstance(detail, TreeDetail) and (form := tree_form(header, detail)) is not None
    ]


def tree_reading(
    header: Header,
    step: Step,
    detail: TreeDetail,
    form: TreeForm,
    before: Step | None = None,
    text: Text | None = None,
) -> TreeReading:
    """A tree with its declaration. before: the step before, None if there is none or it is unknown;  text: ids -> text"""
    judged = step.detail(form.judged) if form.judged else None
    earlier = None if before is None else before.detail(detail.name)
    return TreeReading(
        detail,
        form,
        knobs_of(header, step.step, form),
        step.emitted,
        before=earlier if isinstance(earlier, TreeDetail) else None,
        known=before is not None or step.step == 0,
        judged=judged if isinstance(judged, TallyDetail) else None,
        text=text,
    )


def settles_at_end(header: Header, step: Step) -> bool:
    """True if the text is settled only at the end of the run: until then steps emit what may be replaced."""
    return any(form.settles_at_end for _, form in declared_trees(header, step))


class TreeValidator:
    """Checks trees of all shapes, each by its declaration and against the tree of the step before. begins: True if the trace
    holds the beginning of the run; a branch goes on in the midst of its texts."""

    def __init__(self, header: Header, begins: bool):
        self._header = header
        self._known = begins
        self._before: Step | None = None

    def lose(self) -> None:
        """Forget the step before: it is unknown, or differs."""
        self._before, self._known = None, False

    def problems(self, step: Step) -> Iterator[str]:
        """Problems of the trees of this step, the next one."""
        before, known = self._before, self._known
        self._before, self._known = step, True
        for detail, form in declared_trees(self._header, step):
            reading = tree_reading(self._header, step, detail, form, before)
            reading.known = known
            if detail.earlier and known:
                yield from _check_parents(reading, step)
            yield from tree_problems(reading)


def _check_parents(reading: TreeReading, step: Step) -> Iterator[str]:
    """Nodes with a parent that does not exist, or that did not go on."""
    if reading.before is not None:
        outcomes = TreeReading(reading.before, reading.form, {}, ()).nodes_by_fate("open")
        count = len(outcomes)  # those that go on come first
    elif reading.form.batch:
        ran = [one.batch for one in step.passes if one.lane == "target"]
        count = ran[-1] if ran else 1
    else:
        return
    for node, parent in enumerate(reading.detail.parents):
        if parent >= count:
            yield f"its {reading.form.noun} {node + 1} goes on from {parent + 1}, and the step before has {count}"
