"""Spans: what every span of a passage costs as an answer, which is the cheapest, and which one greedy decoding would write."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..values.limits import TraceError

ROUNDING = 1e-5  # of single floats, as a share
MOST = 1 << 18  # numbers of a map; a larger one is not kept


@dataclass
class Spans:
    """The spans of a passage, which is a part of the prompt, held against each other.

    start:  position of the passage's first token;  count: its tokens
    end:    the token that ends the answer, the likeliest of those that may
    best:   [first, tokens] of the answer, counted from the passage's first;  loss: nats, minus the logarithm of the probability
            of its tokens and of its end behind the prompt
    greedy: the same of the greedy text, None where that leaves the passage;  greedy_loss: its nats
    normal: whether what is least is the loss per token, the end counted, not the loss
    losses: float32 [count, T], of the span that begins at a token and has 1, 2, ... tokens; NaN where there is none. Left out
            where it has more than 262,144 numbers
    """

    start: int
    count: int
    end: int
    best: list[int]
    loss: float
    greedy: list[int] | None = None
    greedy_loss: float | None = None
    normal: bool = False
    losses: np.ndarray | None = None

    @property
    def gap(self) -> float | None:
        """Nats by which the greedy span is less likely than the answer; None: greedy decoding leaves the passage."""
        return None if self.greedy_loss is None else self.greedy_loss - self.loss


def judged(losses: np.ndarray, normal: bool) -> np.ndarray:
    """float [n, T]: what is minimised, infinite where there is no span."""
    per = np.arange(2, losses.shape[1] + 2) if normal else 1
    return np.where(np.isnan(losses), np.inf, losses / per)


def ranked(losses: np.ndarray, normal: bool, most: int) -> list[tuple[int, int]]:
    """(first, tokens) of the best spans, the best first, of equal ones the first; at most `most`."""
    values = judged(losses, normal).ravel()
    order = np.argsort(values, kind="stable")[:most]
    return [
        (int(at) // losses.shape[1], int(at) % losses.shape[1] + 1) for at in order if np.isfinite(values[at])
    ]


def consistent_spans(spans: Spans | None, vocab: int) -> None:
    """What must agree inside the record, if there is one. Raises TraceError."""
    if spans is None:
        return
    if spans.start < 0 or spans.count < 1 or not 0 <= spans.end < vocab:
        raise TraceError(
            f"spans has a passage of {spans.count} tokens at {spans.start}, and answers that end with {spans.end}"
        )
    for span in (spans.best, *([] if spans.greedy is None else [spans.greedy])):
        if len(span) != 2 or not (span[0] >= 0 and span[1] >= 1 and sum(span) <= spans.count):
            raise TraceError(f"spans names the span {span} of a passage of {spans.count} tokens")
    if (spans.greedy is None) != (spans.greedy_loss is None):
        raise TraceError("spans has a greedy span without its loss, or a loss without it")
    losses = spans.losses
    if losses is not None and (losses.ndim != 2 or len(losses) != spans.count or losses.dtype.kind != "f"):
        raise TraceError(
            f"spans.losses has the shape {list(losses.shape)}, where one row for each of {spans.count} is due"
        )
    if losses is not None and losses.shape[1] < max(spans.best[1], (spans.greedy or [0, 0])[1]):
        raise TraceError("spans.losses has no column for a span that it names")


def spans_problems(
    spans: Spans, emitted: Sequence[int], prompt: Sequence[int], knobs: Mapping[str, Any]
) -> Iterator[str]:
    """What is wrong with the record of a step that emitted these tokens behind `prompt`, by a strategy with these knobs, a
    phrase each."""
    if spans.start + spans.count > len(prompt):
        yield f"its passage ends at token {spans.start + spans.count} of a prompt of {len(prompt)}"
        return
    first = spans.start + spans.best[0]
    answer = [*prompt[first : first + spans.best[1]], spans.end]
    if list(emitted) != answer[: len(emitted)] or len(emitted) < spans.best[1]:
        yield f"it emitted {list(emitted)}, and its best span is {answer[:-1]}, which {spans.end} ends"
    if type(knobs.get("normal")) is bool and spans.normal != knobs["normal"]:
        yield f"its spans were {'' if spans.normal else 'not '}judged by the token, and its strategy says otherwise"
    if (
        not spans.normal
        and spans.greedy_loss is not None
        and spans.greedy_loss < spans.loss - _near(spans.loss)
    ):
        yield f"the greedy span has a loss of {spans.greedy_loss:.6g}, below the {spans.loss:.6g} of the best one"
    if spans.losses is None:
        return
    values = judged(spans.losses.astype(np.float64), spans.normal)
    own = float(values[spans.best[0], spans.best[1] - 1])
    if not own <= float(values.min()) + _near(own):
        yield f"the span {spans.best} is worth {own:.6g}, and another {float(values.min()):.6g}"
    for name, span, loss in (("best", spans.best, spans.loss), ("greedy", spans.greedy, spans.greedy_loss)):
        if span is not None and loss is not None:
            held = float(spans.losses[span[0], span[1] - 1])
            if not math.isclose(held, loss, rel_tol=ROUNDING, abs_tol=ROUNDING):
                yield f"the {name} span has a loss of {loss:.6g}, and {held:.6g} among all spans"


def _near(x: float) -> float:
    return ROUNDING * max(1.0, abs(x))
