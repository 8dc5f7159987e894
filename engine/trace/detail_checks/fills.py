"""Fills of a canvas derived again: what a canvas held, what its selector had to commit, and the text that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..details.explored import barred
from ..details.filled import (
    confidence_of,
    cut_at,
    factored,
    leapt,
    lowest,
    passed,
    remasked,
    scheduled,
    taken_of,
)
from ..details.shapes import CanvasDetail
from ..encoding.forks import method_at
from ..records.events import Header, Step
from ..records.parts import said
from ..records.phases import decides
from ..values.grammar import OPEN
from ..values.limits import TEXTS
from .details import detail_by_check
from .explorations import explorations
from .pictures import PictureValidator, standing
from .vetoes import Vetoes

_LAST = 1 << 53  # behind every step
# count, bars and anchors, as a selector's knobs give them
Due = tuple[int, np.ndarray | None, list[int] | None]


@dataclass
class _Canvas:
    """A canvas as its fills have left it so far. tokens: position -> token;  passes: made in the block that is being filled
    written: position -> token and confidence, of those that may be masked again;  last: the fill before this one"""

    start: int
    length: int
    tokens: dict[int, int]
    emitted: int = 0
    passes: int = 0
    written: dict[int, tuple[int, float]] = field(default_factory=dict)
    last: CanvasDetail | None = None


class FillValidator:
    """Follows the canvases of a run. `checked` counts the fills that were derived again, `underived` those of them whose count
    and bars could not be: of a selector that is not known, of a branch, or of a fork before another selector's turn."""

    def __init__(self, header: Header):
        self._header = header
        self._canvas: _Canvas | None = None
        self._whole = header.parent is None  # a branch begins in the midst of a canvas
        self._pictures = PictureValidator(header)
        self._vetoes: Vetoes | None = None
        self.checked = self.underived = 0

    def lose(self) -> None:
        """Another strategy goes on from here: the canvas is another one."""
        self._canvas = None
        self._pictures.lose()

    def problems(self, step: Step) -> Iterator[str]:
        """What is wrong with the fill of a step, a phrase each."""
        cells = detail_by_check(self._header, step, "pictures", CanvasDetail)
        if cells is not None:
            yield from self._pictures.problems(step, cells)
            self.checked += 1
            self.underived += not self._pictures.derived
        fill = detail_by_check(self._header, step, "fills", CanvasDetail)
        if fill is None:
            return
        if self._canvas is None or len(self._canvas.tokens) == self._canvas.length:
            self._canvas, self._vetoes = _Canvas(fill.start, fill.length, {}), Vetoes(self._header)
            if self._whole and fill.start != step.n:
                yield f"its canvas begins at {fill.start}, behind a text of {step.n} tokens"
        canvas = self._canvas
        if (fill.start, fill.length) != (canvas.start, canvas.length):
            yield f"its canvas has {fill.length} places from {fill.start} on, and had {canvas.length} from {canvas.start} on"
            return
        if self._whole:
            yield from self._block(step, fill, canvas)
            yield from _passes(step, fill, canvas)
        yield from self._choice(step, fill, canvas)
        before = (
            [canvas.tokens.get(fill.start + i, OPEN) for i in range(fill.length)]
            if fill.vetoes is not None
            else []
        )
        yield from _commit(fill, canvas)
        if self._whole and self._vetoes is not None:
            yield from self._vetoes.problems(
                fill, before, _part(self._header, "strategy", step.step).get("grammar")
            )
        if self._whole:
            yield from _emission(step, canvas)
        self.checked += 1

    def _says(self, kind: str, word: str, step: Step) -> Any:
        """What the part of a step says of itself; the header tells of those that the run ended with."""
        same = _part(self._header, kind, step.step) == _part(self._header, kind, _LAST)
        return said(self._header, kind).get(word) if same else None

    def _blocks(self, step: Step) -> int:
        """How many blocks the selector of a step fills side by side."""
        span = _part(self._header, "selector", step.step).get("span")
        trying = self._says("selector", "commits", step) == "tries"
        return span if trying and type(span) is int and 0 < span <= TEXTS else 1

    def _block(self, step: Step, fill: CanvasDetail, canvas: _Canvas) -> Iterator[str]:
        """The block is the first that is not full, and its open places are those that nothing was committed at."""
        size = self._says("strategy", "places", step)
        end = canvas.start + canvas.length
        first_open = next((p for p in range(canvas.start, end) if p not in canvas.tokens), end)
        if type(size) is int and size > 0:
            first = canvas.start + (first_open - canvas.start) // size * size
            edge, behind = min(first + size, end), min(first + size * self._blocks(step), end)
            if fill.block != [first, behind]:
                yield f"it fills the block {fill.block}, and [{first}, {behind}] is due"
            if fill.edge != (edge if edge < behind else None):
                yield f"its first block ends before {fill.edge}, and {edge} is due"
        due = [p for p in range(*fill.block) if p not in canvas.tokens and p not in canvas.written]
        if fill.open.tolist() != due:
            yield f"it says that {fill.open.tolist()} are open, and the fills before it leave {due}"

    def _choice(self, step: Step, fill: CanvasDetail, canvas: _Canvas) -> Iterator[str]:  # noqa: C901
        """What is committed follows from ranks and bars, these from the selector's knobs, and tokens are the candidates."""
        taken = taken_of(fill) & ~np.isin(fill.open, [*fill.refused])
        if fill.reopened is not None and len(fill.places) < len(fill.open):
            yield "it masks places again and leaves others open"
        if fill.places != fill.open[taken].tolist():
            yield f"it commits {fill.places}, but count, bars and confidences give {fill.open[taken].tolist()}"
        elif fill.tokens != fill.candidate[taken].tolist():
            yield f"it commits the tokens {fill.tokens}, but the candidates are {fill.candidate[taken].tolist()}"
        order = _numbers(fill.columns.get("order"))
        if order is not None and sorted(order) != list(range(len(fill))):
            yield "its order is no order of the open places"
        knobs, due = (
            _part(self._header, "selector", step.step),
            _DUE.get(self._says("selector", "commits", step)),
        )
        if due is None or not self._whole:
            self.underived += 1
            return
        derive, takes = due
        numbers = {x: knobs[x] for x in takes if type(knobs.get(x)) in (int, float)}
        whole = {x: numbers[x] for x in ("steps", "radius", "span", "tries", "least") if x in numbers}
        counted = {type(x) is int and x >= (name in ("steps", "span", "tries")) for name, x in whole.items()}
        if len(numbers) < len(takes) or False in counted:
            yield "the header's selector lacks the knobs from which its choice follows"
            return
        count, bars, anchors = derive(numbers, fill, canvas.passes)
        cut = None
        if knobs.get("cut") is True and bars is not None:
            cut = cut_at(fill.open, fill.candidate, confidence_of(fill), bars, self._header.stop_tokens)
        if cut != fill.cut:
            yield f"it drops what stands from {fill.cut} on, and by its candidates {cut} is due"
        again = _reopened(numbers, fill, canvas) if derive is _all else None
        if count != fill.count:
            yield f"it commits the {fill.count} best, and by its selector {count} are due"
        if _numbers(bars) != _numbers(fill.columns.get("bars")):
            yield "its bars are not those that its selector gives"
        if anchors is not None and anchors != fill.anchors:
            yield f"its anchors are {fill.anchors}, and the confidences give {anchors}"
        if again != fill.reopened:
            yield f"it masks {fill.reopened} again, and by its selector {again} are due"
        if derive is _explored or fill.explored is not None:
            yield from explorations(numbers, fill, canvas.last, self._header.stop_tokens)


def _numbers(column: np.ndarray | None) -> list[float] | None:
    return None if column is None else column.tolist()


def _part(header: Header, kind: str, step: int) -> Mapping[str, Any]:
    """Name and knobs of a part that `step` was made with."""
    part = method_at(header, step).get(kind)
    return part if isinstance(part, dict) else {}


def _passes(step: Step, fill: CanvasDetail, canvas: _Canvas) -> Iterator[str]:
    """The pass fed the rows that its cache leaves to it, and says how old that is."""
    end, (first, behind) = canvas.start + canvas.length, fill.block
    stale = 0 if fill.cache == "none" else canvas.passes
    if fill.stale != stale:
        yield f"it says that {fill.stale} passes were made since what it reads was, and there were {stale}"
    if stale == 0:
        due = end
    elif fill.cache == "prefix":
        due = end - first
    else:
        due = behind - first
    due *= 1 if fill.explored is None else len(fill.explored.tokens)
    fed = [one.tokens for one in step.passes if decides(one)]
    if fed and fed != [due]:
        yield f"its passes fed {fed} rows, and with the cache {fill.cache[:20]!r} {due} are due"


def _commit(fill: CanvasDetail, canvas: _Canvas) -> Iterator[str]:
    """Enter what a pass commits, and masks again."""
    column = dict(zip(fill.open.tolist(), confidence_of(fill).tolist(), strict=True))
    for place, token in zip(fill.places, fill.tokens, strict=True):
        if fill.reopened is not None:
            canvas.written[place] = token, column.get(place, 0.0)
        elif canvas.tokens.setdefault(place, token) != token:
            yield f"it commits token {token} at {place}, where token {canvas.tokens[place]} stands for good"
    for place in fill.reopened or []:
        if canvas.written.pop(place, None) is None:
            yield f"it masks {place} again, where nothing was written that may change"
    canvas.passes += 1
    canvas.last = fill
    if fill.reopened == []:
        canvas.tokens |= {place: token for place, (token, _) in canvas.written.items()}
    if fill.cut is not None:
        canvas.length = fill.cut - canvas.start
        canvas.tokens = {place: token for place, token in canvas.tokens.items() if place < fill.cut}
    edge = min(fill.edge or fill.block[1], canvas.start + canvas.length)
    if all(place in canvas.tokens for place in range(fill.block[0], edge)):
        canvas.written = {}
        canvas.passes = 0
        canvas.last = None


def _emission(step: Step, canvas: _Canvas) -> Iterator[str]:
    """The text goes on with what stands in one piece behind it."""
    due = standing(canvas.tokens, canvas.start + canvas.emitted)
    if step.emitted != due[: len(step.emitted)]:
        yield f"it emitted {step.emitted}, and what stands behind the text is {due}"
    canvas.emitted += len(step.emitted)


def _scheduled(knobs: Mapping[str, Any], fill: CanvasDetail, passes: int) -> Due:
    first, behind = fill.block
    return scheduled(behind - first, knobs["steps"], passes), None, None


def _flat(knobs: Mapping[str, Any], fill: CanvasDetail, passes: int) -> Due:
    if knobs["factor"] > 0:
        return factored(confidence_of(fill), knobs["factor"]), None, None
    return 1, np.full(len(fill.open), knobs["tau"], np.float32), None


def _leapt(knobs: Mapping[str, Any], fill: CanvasDetail, passes: int) -> Due:
    anchors, bars = leapt(fill.open, confidence_of(fill), knobs["tau"], knobs["relaxed"], knobs["radius"])
    return 1, bars, anchors.tolist()


def _filtered(knobs: Mapping[str, Any], fill: CanvasDetail, passes: int) -> Due:
    final = fill.columns.get("final")
    bars = None if final is None else passed(final, knobs["accept"])
    return _scheduled(knobs, fill, passes)[0], bars, None


def _explored(knobs: Mapping[str, Any], fill: CanvasDetail, passes: int) -> Due:
    bars = barred(fill.open, fill.edge or fill.block[1], knobs["tau"], knobs["beyond"])
    if fill.explored is None:
        return 1, bars, None
    return 0, np.where(fill.open == fill.explored.place, np.float32(0), bars), None


def _all(knobs: Mapping[str, Any], fill: CanvasDetail, passes: int) -> Due:
    return len(fill.open), None, None


def _reopened(knobs: Mapping[str, Any], fill: CanvasDetail, canvas: _Canvas) -> list[int]:
    """What is masked again of all that stands in the block behind the pass."""
    first, behind = fill.block
    confidence = {place: c for place, (_, c) in canvas.written.items()}
    confidence |= dict(zip(fill.open.tolist(), confidence_of(fill).tolist(), strict=True))
    return lowest(confidence, remasked(behind - first, knobs["steps"], canvas.passes))


# how a choice follows, by the selector's word, and the knobs that it takes
_DUE: dict[str, tuple[Callable[[Mapping[str, Any], CanvasDetail, int], Due], set[str]]] = {
    "schedule": (_scheduled, {"steps"}),
    "bar": (_flat, {"tau", "factor"}),
    "leap": (_leapt, {"tau", "relaxed", "radius"}),
    "revise": (_all, {"steps"}),
    "filter": (_filtered, {"accept", "steps"}),
    "tries": (_explored, {"tau", "beyond", "span", "tries", "least", "gain"}),
}
