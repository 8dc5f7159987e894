"""Canvas: one pass over places that are settled in any order, by what the header declares of it."""

from __future__ import annotations

from collections.abc import Sequence

from decodescope.engine.trace import Step, Trace
from decodescope.engine.trace.detail_checks.details import canvas_reading
from decodescope.engine.trace.details.canvas import CanvasReading
from decodescope.engine.trace.details.shapes import CanvasDetail
from decodescope.lab.formatting.numbers import said
from decodescope.lab.formatting.tokens import shown_id

from .explanation import Explanation, Line


def canvas_explanation(trace: Trace, step: Step) -> Explanation | None:
    """What a pass settled of its open places, and why; None where the step has no canvas that the header declares."""

    def text(ids: Sequence[int]) -> str:
        return "".join(said(shown_id(token, trace.pieces)) for token in ids)

    detail: CanvasDetail | None = step.detail_of("canvas")
    read = None if detail is None else canvas_reading(trace.header, step, detail, text)
    if read is None or detail is None:
        return None
    form, whole = read.form, read.whole
    first = detail.tokens[:1] if form.drawn == "canvas" else detail.candidate[:1].tolist()
    token = shown_id(first[0], trace.pieces) if first else ""
    explained = Explanation("target", form.title, token, whole.first(form.where), form.how)
    explained.lines = [*_open_places(read), *(Line(" ".join(x), y) for x, y in [_reasons(read)] if x)]
    explained.lines += map(Line, whole.all(form.closing))
    explained.test = whole.first(form.test)
    explained.agrees = read.follows
    if form.drawn == "chain":
        explained.agrees = explained.agrees and step.emitted == detail.tokens[: len(step.emitted)]
    return explained


def _open_places(read: CanvasReading) -> list[Line]:
    """What the pass did, and the open places of which the declaration has something to say."""
    form = read.form
    named = [(row, row.first(form.row)) for row in read.rows]
    rows = tuple(f"place {row.raw('place')}: {words}" for row, words in named if words)
    words = " ".join(read.whole.all(form.lines))
    return [Line(words), Line(form.table, rows)] if form.table and rows else [Line(words, rows)]


def _reasons(read: CanvasReading) -> tuple[list[str], tuple[str, ...]]:
    return read.whole.all(read.form.reasons), tuple(read.whole.all(read.form.sums))
