"""Spans: the check of an answer that is the best of all spans of a passage of the prompt."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..details.matrix import MatrixReading
from ..details.shapes import TallyDetail
from ..details.spans import BEST, rank_spans, span_costs
from ..details.tally import TallyReading
from ..records.events import Header, Step
from .details import details_by_check, matrix_reading, tally_reading

SPANS = "spans"  # the check, as declarations name it
ROUNDING = 1e-5  # of single floats, as a share


class ListedSpan(NamedTuple):
    """A span that is listed: its first token in the passage, from 0, how many it has, and what it costs in nats."""

    begin: int
    size: int
    tokens: list[int]
    loss: float
    greedy: bool

    @property
    def place(self) -> tuple[int, int]:
        """Its place."""
        return self.begin, self.size


def spans_problems(header: Header, step: Step) -> Iterator[str]:
    """Problems of the spans of a step, a phrase each.

    A tally with a declaration that names the check "spans" lists spans of a passage of the prompt, the answer first. Its
    columns are `begin` (counted from the passage's first token), `size`, `tokens`, `loss` and `greedy`. Its values are `start`
    (the position of the passage), `length` and `gap`; its knob is `normal`. A matrix with the tally's rows as cells holds the
    loss of each span.
    """
    for detail in details_by_check(header, step, SPANS):
        read = tally_reading(header, step, detail)
        spans = [] if read is None else _parse_spans(read.detail.columns)
        if read is None or not spans:
            yield "it lists no spans with a place, tokens and a loss"
            continue
        yield from _check_prompt_tokens(read, spans, header.prompt.tolist())
        gap, greedy = read.whole_scope.entry("gap"), [x.place for x in spans if x.greedy]
        if len(greedy) != (gap is not None):
            yield f"it lists {len(greedy)} greedy spans, and its gap is {gap}"
        for matrix in filter(None, (matrix_reading(header, step, x) for x in step.details or ())):
            if matrix.form.cells_of == detail.name:
                yield from _check_losses(read, spans, matrix)


def passage_tokens(header: Header, step: Step) -> int:
    """The number of tokens in the passages of a step with listed spans."""
    tallies = (x for x in details_by_check(header, step, SPANS) if isinstance(x, TallyDetail))
    lengths = (x.values.get("length") for x in tallies)
    return sum(x for x in lengths if type(x) is int)


def _parse_spans(columns: dict[str, list[Any]]) -> list[ListedSpan]:
    """The spans of a tally; [] where an entry is not what it has to be."""
    entries = [columns.get(name, []) for name in ListedSpan._fields]
    if len({*map(len, entries)}) != 1:
        return []
    spans = [ListedSpan(*row) for row in zip(*entries, strict=True)]
    well = (
        type(x.begin) is int
        and type(x.size) is int
        and type(x.tokens) is list
        and isinstance(x.loss, int | float)
        and isinstance(x.greedy, int | float)
        for x in spans
    )
    return spans if all(well) else []


def _check_prompt_tokens(read: TallyReading, spans: list[ListedSpan], prompt: Sequence[int]) -> Iterator[str]:
    """Check that the spans hold the tokens of the prompt."""
    start, length = (read.whole_scope.entry(name) for name in ("start", "length"))
    if type(start) is not int or type(length) is not int or start < 0 or length < 1:
        yield f"its passage has {length} tokens at {start}"
        return
    if start + length > len(prompt):
        yield f"its passage ends at token {start + length} of a prompt of {len(prompt)}"
        return
    for begin, size, tokens, _, _ in spans:
        if not (begin >= 0 and size >= 1 and begin + size <= length):
            yield f"it names the span {[begin, size]} of a passage of {length} tokens"
        elif tokens != (due := list(prompt[start + begin : start + begin + size])):
            yield f"the span {[begin, size]} holds {tokens}, and the prompt has {due}"


def _check_losses(read: TallyReading, spans: list[ListedSpan], matrix: MatrixReading) -> Iterator[str]:
    """Check that the listed spans are the best of all, and have their losses."""
    losses, places = matrix.detail.numbers, [x.place for x in spans]
    if losses is None:
        return
    rows, columns = losses.shape
    inside = all(0 <= begin < rows and 1 <= size <= columns for begin, size in places)
    if rows != read.whole_scope.entry("length") or not inside:
        yield f"its losses have {rows} rows and {columns} columns, and it lists {places}"
        return
    normal = bool(read.whole_scope.entry("length_normalization"))
    values = span_costs(losses.astype(np.float64), normal)
    own, least = float(values[places[0][0], places[0][1] - 1]), float(values.min())
    if not own <= least + ROUNDING * max(1.0, abs(own)):
        yield f"the span {list(places[0])} is worth {own:.6g}, and another {least:.6g}"
    greedy = [x.place for x in spans if x.greedy]
    due = [*dict.fromkeys([places[0], *rank_spans(losses, normal, BEST), *greedy])]
    if places != due:
        yield f"it lists the spans {places}, and {due} are the best"
    for begin, size, _, loss, _ in spans:
        held = float(losses[begin, size - 1])
        if not math.isclose(held, loss, rel_tol=ROUNDING, abs_tol=ROUNDING):
            yield f"the span {[begin, size]} has a loss of {loss:.6g}, and {held:.6g} among all spans"
    if (gap := matrix.detail.values.get("gap")) != read.whole_scope.entry("gap"):
        yield f"its losses have the gap {gap}, and its list {read.whole_scope.entry('gap')}"
    marks = [[begin, size - 1, "answer"] for begin, size in places[:1]]
    marks += [[begin, size - 1, "greedy"] for begin, size in greedy]
    if matrix.detail.marks != marks:
        yield f"it marks {matrix.detail.marks}, and {marks} are due"
