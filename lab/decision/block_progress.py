"""Block progress: the passes of a method that settles blocks, pass by place of the text."""

from __future__ import annotations

from dataclasses import dataclass, field

from decodescope.engine.trace import Trace
from decodescope.engine.trace.details.declarations import CanvasForm
from decodescope.engine.trace.details.shapes import CanvasDetail


@dataclass
class BlockProgress:
    """The effect of passes over blocks on the places of the text. Steps without a block do not count.

    final: place -> the step after which its token was final
    since: place -> the first step from which on its token was always the one in the text
    forwarded: per step, final tokens beyond the one that every pass gives (CLLM's "fast-forwarded")
    stationary: per step, right tokens after the final ones, with a place before them that is not right yet or was only guessed
    (CLLM's "stationary")
    """

    final: dict[int, int] = field(default_factory=dict)
    since: dict[int, int] = field(default_factory=dict)
    forwarded: list[int] = field(default_factory=list)
    stationary: list[int] = field(default_factory=list)


def block_progress(trace: Trace) -> BlockProgress:
    """The staircase of a run. A place that has no token in the text yet, or never got one, is in no dictionary."""
    stairs = BlockProgress()
    text = {step.n + k: token for step in trace.steps for k, token in enumerate(step.emitted)}
    for step in trace.steps:
        block: CanvasDetail | None = step.detail_of("canvas")
        form = None if block is None else trace.header.details.get(block.name)
        if block is None or not isinstance(form, CanvasForm) or form.drawn != "chain":
            continue
        fixed = len(block.places)
        right = [text.get(block.start + k) == token for k, token in enumerate(block.candidate.tolist())]
        for place, ok in enumerate(right, block.start):
            if not ok:
                stairs.since.pop(place, None)
            else:
                stairs.since.setdefault(place, step.step)
        stairs.final |= {block.start + k: step.step for k in range(min(fixed, len(step.emitted)))}
        stairs.forwarded.append(fixed - 1)
        stairs.stationary.append(sum(right[fixed:]))
    return stairs
