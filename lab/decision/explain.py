"""Explain: one decision of a trace as arithmetic, in words and numbers, derived again from what was recorded."""

from __future__ import annotations

from collections.abc import Iterator

from decodescope.engine.trace import Trace, TraceError

from .arithmetic import Case
from .card import Card
from .explanation import Explanation

__all__ = ["Explanation", "decisions", "explain"]


def explain(trace: Trace, step: int, node: int | None = None) -> Card:
    """Why `node` of `step` was kept or refused; without a node, where the target's own token came from.

    Nodes are numbered as in the trace: 0 is the first drafted one. Raises TraceError where there is nothing to explain.
    """
    if not 0 <= step < len(trace.steps):
        raise TraceError(f"There is no step {step}: the trace has {len(trace.steps)}, counted from 0.")
    found = Case(trace, trace.steps[step])
    return Card(**vars(found.extra() if node is None else found.node(node)))


def decisions(trace: Trace, ok: bool | None = None) -> Iterator[tuple[int, int]]:
    """(step, node) of every trial, or of those that were accepted (True) or refused (False)."""
    for step in trace.steps:
        if step.trials is not None:
            yield from ((step.step, n) for n, was in zip(step.trials.node, step.trials.ok, strict=True) if ok in (None, was))
