"""Fills of a canvas derived again: what a canvas held, what its selector had to commit, and the text that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..details.canvas_fill import (
    confidence_of,
    factor_count,
    filter_bars,
    find_cut,
    leap_bars,
    least_confident_places,
    recorded_mask,
    remask_count,
    scheduled_count,
)
from ..details.exploration import place_bars
from ..details.shapes import CanvasDetail
from ..encoding.forks import method_at
from ..records.events import Header, Step
from ..records.parts import part_description
from ..records.phases import is_deciding_pass
from ..values.grammar import OPEN
from ..values.limits import TEXTS
from .details import detail_by_check
from .explorations import exploration_problems
from .pictures import PictureValidator, contiguous_tokens
from .vetoes import VetoValidator

_LAST = 1 << 53  # after every step
# count, bars and anchors, as a selector's knobs give them
Due = tuple[int, np.ndarray | None, list[int] | None]


@dataclass
class _CanvasState:
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
    """Follows the canvases of a run. `checked` counts the fills that were derived again. `underived` counts those with a count
    and bars that could not be: of an unknown selector, of a branch, or of a fork before another selector's turn."""

    def __init__(self, header: Header):
        self._header = header
        self._canvas: _CanvasState | None = None
        self._whole = header.parent is None  # a branch begins in the midst of a canvas
        self._pictures = PictureValidator(header)
        self._vetoes: VetoValidator | None = None
        self.checked = self.underived = 0

    def lose(self) -> None:
        """Another strategy goes on from here: the canvas is another one."""
        self._canvas = None
        self._pictures.lose()

    def problems(self, step: Step) -> Iterator[str]:
        """Problems of the fill of a step, a phrase each."""
        cells = detail_by_check(self._header, step, "pictures", CanvasDetail)
        if cells is not None:
            yield from self._pictures.problems(step, cells)
            self.checked += 1
            self.underived += not self._pictures.derived
        fill = detail_by_check(self._header, step, "fills", CanvasDetail)
        if fill is None:
            return
        if self._canvas is None or len(self._canvas.tokens) == self._canvas.length:
            self._canvas = _CanvasState(fill.start, fill.length, {})
            self._vetoes = VetoValidator(self._header)
            if self._whole and fill.start != step.n:
                yield f"its canvas begins at {fill.start}, behind a text of {step.n} tokens"
        canvas = self._canvas
        if (fill.start, fill.length) != (canvas.start, canvas.length):
            yield f"its canvas has {fill.length} places from {fill.start} on, and had {canvas.length} from {canvas.start} on"
            return
        if self._whole:
            yield from self._check_block(step, fill, canvas)
            yield from _check_passes(step, fill, canvas)
        yield from self._check_choice(step, fill, canvas)
        before = (
            [canvas.tokens.get(fill.start + i, OPEN) for i in range(fill.length)]
            if fill.vetoes is not None
            else []
        )
        yield from _apply_commit(fill, canvas)
        if self._whole and self._vetoes is not None:
            yield from self._vetoes.problems(
                fill, before, _part_record(self._header, "strategy", step.step).get("grammar")
            )
        if self._whole:
            yield from _check_emission(step, canvas)
        self.checked += 1

    def _part_word(self, kind: str, word: str, step: Step) -> Any:
        """A word of the step's part's description; the header describes only the parts that the run ended with."""
        same = _part_record(self._header, kind, step.step) == _part_record(self._header, kind, _LAST)
        return part_description(self._header, kind).get(word) if same else None

    def _block_count(self, step: Step) -> int:
        """How many blocks the selector of a step fills side by side."""
        span = _part_record(self._header, "unmasking", step.step).get("parallel_blocks")
        trying = self._part_word("unmasking", "commits", step) == "tries"
        return span if trying and type(span) is int and 0 < span <= TEXTS else 1

    def _check_block(self, step: Step, fill: CanvasDetail, canvas: _CanvasState) -> Iterator[str]:
        """The block is the first that is not full, and its open places are those that nothing was committed at."""
        size = self._part_word("strategy", "places", step)
        end = canvas.start + canvas.length
        first_open = next((p for p in range(canvas.start, end) if p not in canvas.tokens), end)
        if type(size) is int and size > 0:
            first = canvas.start + (first_open - canvas.start) // size * size
            edge, behind = min(first + size, end), min(first + size * self._block_count(step), end)
            if fill.block != [first, behind]:
                yield f"it fills the block {fill.block}, and [{first}, {behind}] is due"
            if fill.edge != (edge if edge < behind else None):
                yield f"its first block ends before {fill.edge}, and {edge} is due"
        due = [p for p in range(*fill.block) if p not in canvas.tokens and p not in canvas.written]
        if fill.open.tolist() != due:
            yield f"it says that {fill.open.tolist()} are open, and the fills before it leave {due}"

    def _check_choice(self, step: Step, fill: CanvasDetail, canvas: _CanvasState) -> Iterator[str]:
        """Check that commits follow from ranks and bars, these from the selector's knobs, and that tokens are the
        candidates."""
        yield from _check_commit(fill)
        knobs = _part_record(self._header, "unmasking", step.step)
        due = _DUE.get(self._part_word("unmasking", "commits", step))
        if due is None or not self._whole:
            self.underived += 1
            return
        derive, takes = due
        numbers = {x: knobs[x] for x in takes if type(knobs.get(x)) in (int, float)}
        if len(numbers) < len(takes) or not _are_counts(numbers):
            yield "the header's unmasking lacks the knobs from which its choice follows"
            return
        count, bars, anchors = derive(numbers, fill, canvas.passes)
        cut = None
        if knobs.get("cut_after_end") is True and bars is not None:
            cut = find_cut(fill.open, fill.candidate, confidence_of(fill), bars, self._header.stop_tokens)
        if cut != fill.cut:
            yield f"it drops everything from {fill.cut} on, and by its candidates {cut} is due"
        again = _places_to_remask(numbers, fill, canvas) if derive is _revise_due else None
        if count != fill.count:
            yield f"it commits the {fill.count} best, and by its selector {count} are due"
        if _as_list(bars) != _as_list(fill.columns.get("bars")):
            yield "its bars are not those that its selector gives"
        if anchors is not None and anchors != fill.anchors:
            yield f"its anchors are {fill.anchors}, and the confidences give {anchors}"
        if again != fill.reopened:
            yield f"it masks {fill.reopened} again, and by its selector {again} are due"
        if derive is _tries_due or fill.explored is not None:
            yield from exploration_problems(numbers, fill, canvas.last, self._header.stop_tokens)


def _check_commit(fill: CanvasDetail) -> Iterator[str]:
    """Places and tokens are those that the recorded count, bars, order and candidates give."""
    taken = recorded_mask(fill) & ~np.isin(fill.open, [*fill.refused_places])
    if fill.reopened is not None and len(fill.places) < len(fill.open):
        yield "it masks places again and leaves others open"
    if fill.places != fill.open[taken].tolist():
        yield f"it commits {fill.places}, but count, bars and confidences give {fill.open[taken].tolist()}"
    elif fill.tokens != fill.candidate[taken].tolist():
        yield f"it commits the tokens {fill.tokens}, but the candidates are {fill.candidate[taken].tolist()}"
    order = _as_list(fill.columns.get("order"))
    if order is not None and sorted(order) != list(range(len(fill))):
        yield "its order is no order of the open places"


def _are_counts(knobs: Mapping[str, Any]) -> bool:
    """True if each knob that counts something is a whole number, and not below its minimum."""
    return all(type(knobs[x]) is int and knobs[x] >= least for x, least in _LEAST_COUNT.items() if x in knobs)


def _as_list(column: np.ndarray | None) -> list[float] | None:
    return None if column is None else column.tolist()


def _part_record(header: Header, kind: str, step: int) -> Mapping[str, Any]:
    """Name and knobs of a part that `step` was made with."""
    part = method_at(header, step).get(kind)
    return part if isinstance(part, dict) else {}


def _check_passes(step: Step, fill: CanvasDetail, canvas: _CanvasState) -> Iterator[str]:
    """Check that the pass fed the rows that its cache leaves to it, and recorded the cache's age."""
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
    fed = [one.tokens for one in step.passes if is_deciding_pass(one)]
    if fed and fed != [due]:
        yield f"its passes fed {fed} rows, and with the cache {fill.cache[:20]!r} {due} are due"


def _apply_commit(fill: CanvasDetail, canvas: _CanvasState) -> Iterator[str]:
    """Enter what a pass commits, and masks again."""
    column = dict(zip(fill.open.tolist(), confidence_of(fill).tolist(), strict=True))
    for place, token in zip(fill.places, fill.tokens, strict=True):
        if fill.reopened is not None:
            canvas.written[place] = token, column.get(place, 0.0)
        elif canvas.tokens.setdefault(place, token) != token:
            yield f"it commits token {token} at {place}, where token {canvas.tokens[place]} is final"
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


def _check_emission(step: Step, canvas: _CanvasState) -> Iterator[str]:
    """Check that the text goes on with the contiguous tokens after it."""
    due = contiguous_tokens(canvas.tokens, canvas.start + canvas.emitted)
    if step.emitted != due[: len(step.emitted)]:
        yield f"it emitted {step.emitted}, and what follows the text is {due}"
    canvas.emitted += len(step.emitted)


def _schedule_due(knobs: Mapping[str, Any], fill: CanvasDetail, passes: int) -> Due:
    first, behind = fill.block
    return scheduled_count(behind - first, knobs["steps"], passes), None, None


def _bar_due(knobs: Mapping[str, Any], fill: CanvasDetail, passes: int) -> Due:
    if knobs["factor"] > 0:
        return factor_count(confidence_of(fill), knobs["factor"]), None, None
    return 1, np.full(len(fill.open), knobs["tau"], np.float32), None


def _leap_due(knobs: Mapping[str, Any], fill: CanvasDetail, passes: int) -> Due:
    anchors, bars = leap_bars(
        fill.open, confidence_of(fill), knobs["tau"], knobs["relaxed_tau"], knobs["anchor_radius"]
    )
    return 1, bars, anchors.tolist()


def _filter_due(knobs: Mapping[str, Any], fill: CanvasDetail, passes: int) -> Due:
    final = fill.columns.get("final")
    bars = None if final is None else filter_bars(final, knobs["filter_threshold"])
    return _schedule_due(knobs, fill, passes)[0], bars, None


def _tries_due(knobs: Mapping[str, Any], fill: CanvasDetail, passes: int) -> Due:
    bars = place_bars(fill.open, fill.edge or fill.block[1], knobs["tau"], knobs["later_block_margin"])
    if fill.explored is None:
        return 1, bars, None
    return 0, np.where(fill.open == fill.explored.place, np.float32(0), bars), None


def _revise_due(knobs: Mapping[str, Any], fill: CanvasDetail, passes: int) -> Due:
    return len(fill.open), None, None


def _places_to_remask(knobs: Mapping[str, Any], fill: CanvasDetail, canvas: _CanvasState) -> list[int]:
    """The places, of all those filled in the block after the pass, that are masked again."""
    first, behind = fill.block
    confidence = {place: c for place, (_, c) in canvas.written.items()}
    confidence |= dict(zip(fill.open.tolist(), confidence_of(fill).tolist(), strict=True))
    return least_confident_places(confidence, remask_count(behind - first, knobs["steps"], canvas.passes))


# knobs that count something, and the least that each may be
_LEAST_COUNT = {"steps": 1, "parallel_blocks": 1, "candidates": 1, "anchor_radius": 0, "min_sure_places": 0}
# how a choice follows, by the selector's word, and the knobs that it takes
_DUE: dict[str, tuple[Callable[[Mapping[str, Any], CanvasDetail, int], Due], set[str]]] = {
    "schedule": (_schedule_due, {"steps"}),
    "bar": (_bar_due, {"tau", "factor"}),
    "leap": (_leap_due, {"tau", "relaxed_tau", "anchor_radius"}),
    "revise": (_revise_due, {"steps"}),
    "filter": (_filter_due, {"filter_threshold", "steps"}),
    "tries": (
        _tries_due,
        {"tau", "later_block_margin", "parallel_blocks", "candidates", "min_sure_places", "gain"},
    ),
}
