"""Explain: one decision of a trace as arithmetic, in words and numbers, derived again from what was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from decodescope.engine.core.arguments import whole
from decodescope.engine.trace import TraceError
from decodescope.engine.trace.given import trace_of

from .arithmetic import Case
from .card import Card
from .explanation import Explanation

__all__ = ["Explanation", "decisions", "explain"]


def explain(given: Any, step: int, node: int | None = None) -> Card:
    """Why `node` of `step` was kept or refused; without a node, where the target's own token came from.

    given: a trace, what `run` returned, or a path. Nodes are numbered as in the trace: 0 is the first drafted one. Raises
    TraceError where there is nothing to explain, ParamError where step or node is no whole number.
    """
    trace, step = trace_of(given), whole(step, "step")
    node = None if node is None else whole(node, "node")
    if not 0 <= step < len(trace.steps):
        raise TraceError(f"There is no step {step}: the trace has {len(trace.steps)}, counted from 0.")
    case = Case(trace, trace.steps[step])
    return Card(**vars(case.extra() if node is None else case.node(node)))


def decisions(given: Any, ok: bool | None = None) -> Iterator[tuple[int, int]]:
    """(step, node) of every trial, or of those that were accepted (True) or refused (False); `given` as for `explain`."""
    for step in trace_of(given).steps:
        if step.trials is not None:
            yield from ((step.step, n) for n, was in zip(step.trials.node, step.trials.ok, strict=True) if ok in (None, was))
