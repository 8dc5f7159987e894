"""Explain: one decision of a trace as arithmetic, in words and numbers, derived again from what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from decodescope.engine.core.arguments import check_choice, check_whole_number
from decodescope.engine.core.params import ParamError
from decodescope.engine.trace import Trace, TraceError
from decodescope.engine.trace.file.named_trace import trace_of

from .block import explain_block
from .card import Card
from .evictions import explain_eviction
from .exits import explain_exit
from .explanation import Explanation, ExplanationLine
from .step_explainer import StepExplainer

__all__ = ["Explanation", "decisions", "explain"]

WHATS: dict[str, Callable[..., Explanation]] = {
    "exit": explain_exit,
    "eviction": explain_eviction,
    "step": explain_block,
}


def explain(
    given: Any,
    step: int,
    node: int | None = None,
    what: str | None = None,
    *,
    position: int | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> Card:
    """Why `node` of `step` was kept or refused; without a node, where the target's own token came from.

    what: another decision of the step: "exit", why its last pass left where it did; "eviction", why the entry of `position` in
    `layer` and KV `head` left the target's cache, or is still there after the step (an argument that is not given: the first
    entry that left in it); "step", what became of its block or draft as a whole, and the signals that the parts recorded
    given: a trace, what `run` returned, or a path. Nodes are numbered as in the trace: 0 is the first drafted one. Raises
    TraceError where there is nothing to explain, ParamError where a number is no whole number, or where `what` is no such word
    or does not go with the rest.
    """
    trace, step = trace_of(given), check_whole_number(step, "step")
    node = None if node is None else check_whole_number(node, "node")
    if not 0 <= step < len(trace.steps):
        raise TraceError(f"There is no step {step}: the trace has {len(trace.steps)}, counted from 0.")
    record = trace.steps[step]
    if what != "eviction" and (position, layer, head) != (None, None, None):
        raise ParamError(
            'position, layer and head name an entry of the cache: give what="eviction" with them.'
        )
    if what is None:
        case = StepExplainer(trace, record)
        explained = case.extra() if node is None else case.node(node)
        return Card(**vars(_add_violations(trace, step, explained)))
    if node is not None:
        raise ParamError(f"node = {node}: {what!r} is recorded for a whole step; leave node or what out.")
    entry = dict(position=position, layer=layer, head=head) if what == "eviction" else {}
    explained = WHATS[check_choice(what, "what", tuple(WHATS))](trace, record, **entry)
    return Card(**vars(_add_violations(trace, step, explained)))


def _add_violations(trace: Trace, step: int, explained: Explanation) -> Explanation:
    """With the last step, what the finished text breaks of what its run was held to."""
    if trace.end is not None and step == len(trace.steps) - 1:
        explained.lines += [ExplanationLine(text) for text in trace.end.violations or []]
    return explained


def decisions(given: Any, ok: bool | None = None) -> Iterator[tuple[int, int]]:
    """(step, node) of every trial, or of those that were accepted (True) or rejected (False); `given` as for `explain`."""
    for step in trace_of(given).steps:
        if step.trials is not None:
            yield from (
                (step.step, n)
                for n, was in zip(step.trials.node, step.trials.ok, strict=True)
                if ok in (None, was)
            )
