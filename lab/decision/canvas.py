"""Canvas: one pass over places that are settled in any order, described by the header's declaration."""

from __future__ import annotations

from collections.abc import Sequence

from decodescope.engine.trace import Step, Trace
from decodescope.engine.trace.detail_checks.details import canvas_reading
from decodescope.engine.trace.details.canvas import CanvasReading
from decodescope.engine.trace.details.shapes import CanvasDetail
from decodescope.lab.formatting.numbers import quote_token
from decodescope.lab.formatting.tokens import visible_token

from .explanation import Explanation, ExplanationLine


def explain_canvas(trace: Trace, step: Step) -> Explanation | None:
    """Which open places a pass settled, and why; None if the step has no canvas that the header declares."""

    def text(ids: Sequence[int]) -> str:
        return "".join(quote_token(visible_token(token, trace.pieces)) for token in ids)

    detail: CanvasDetail | None = step.detail_of("canvas")
    read = None if detail is None else canvas_reading(trace.header, step, detail, text)
    if read is None or detail is None:
        return None
    form, whole = read.form, read.whole_scope
    first = detail.tokens[:1] if form.drawn == "canvas" else detail.candidate[:1].tolist()
    token = visible_token(first[0], trace.pieces) if first else ""
    explained = Explanation("target", form.title, token, whole.say_first(form.where), form.how)
    explained.lines = [
        *_open_places(read),
        *(ExplanationLine(" ".join(x), y) for x, y in [_reason_lines(read)] if x),
    ]
    explained.lines += map(ExplanationLine, whole.say_all(form.closing))
    explained.test = whole.say_first(form.test)
    explained.agrees = read.follows_declaration
    if form.drawn == "chain":
        explained.agrees = explained.agrees and step.emitted == detail.tokens[: len(step.emitted)]
    return explained


def _open_places(read: CanvasReading) -> list[ExplanationLine]:
    """What the pass did, and the open places that the declaration describes."""
    form = read.form
    named = [(row, row.say_first(form.row)) for row in read.rows]
    rows = tuple(f"place {row.entry('place')}: {words}" for row, words in named if words)
    words = " ".join(read.whole_scope.say_all(form.lines))
    return (
        [ExplanationLine(words), ExplanationLine(form.table, rows)]
        if form.table and rows
        else [ExplanationLine(words, rows)]
    )


def _reason_lines(read: CanvasReading) -> tuple[list[str], tuple[str, ...]]:
    return read.whole_scope.say_all(read.form.reasons), tuple(read.whole_scope.say_all(read.form.sums))
