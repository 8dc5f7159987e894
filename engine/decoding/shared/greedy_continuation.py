"""Chained: a lane that writes on by itself, the likeliest token after each of its own, in one call."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from decodescope.engine.model.forward.executor import EngineFault, not_finite_reason
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.records.events import Pass

from ..bases.lane import Lane


def is_unobserved(lane: Lane) -> bool:
    """True if nothing observes what a lane does between tokens that it writes: nothing is asked of its passes, its prompt
    has ended, and it has no reference, no extra entries and no evictions."""
    quiet = (
        not lane.needs
        and lane.prompt is None
        and lane.rule is None
        and lane.watch is None
        and lane.reference is None
    )
    beside = lane.cache.waiting or lane.cache.outside or lane.cache.shared or lane.cache.tree is not None
    return quiet and not beside and not lane.policy.does and not lane.kv_compression.does


def continue_greedily(lane: Lane, token: int, count: int, rows: list[Tensor] | None = None) -> list[int]:
    """The `count` likeliest tokens after what `lane` holds and `token`, one after another: one pass for each, which reads and
    commits the token before it. Passes, entries and records are those of `Lane.forward` and `commit`, without their work for
    observers (`is_unobserved`). Raises EngineFault as they do, with the lane as it was. rows: gets the logits [V] of each.

    The choice of a pass is fed to the next on the device; the CPU reads the results once, after the last pass.
    """
    executor = lane.executor
    cache = lane.cache
    at = len(lane.tokens)
    fed, positions = torch.tensor([[token], [at]], device=lane.decoder.device).chunk(2)
    chosen: list[Tensor] = []
    peaks: list[Tensor] = []
    held = []
    together = []
    marks = [executor.mark()]
    try:
        for i in range(count):
            held.append(cache.lengths())
            logits = executor.run(lane.decoder, Feed(fed, positions + i, highest=at + i), cache)
            together.append(executor.together)
            cache.commit((0,))
            peak, fed = logits[0].max(-1, keepdim=True)
            chosen.append(fed)
            peaks.append(peak)
            if rows is not None:
                rows.append(logits[0, -1])
            marks.append(executor.mark())
        where = f"a draft pass of {lane.name} ({lane.decoder.spec.name})"
        fault = next(filter(None, (not_finite_reason(peak, where) for peak in torch.cat(peaks).cpu())), None)
        if fault is not None:
            raise fault
    except EngineFault:
        cache.truncate(at)
        raise
    written: list[int] = torch.cat(chosen).flatten().tolist()
    lane.tokens += [token, *written[:-1]]
    lane.best = written[-1:]
    times = [executor.elapsed_us(*pair) for pair in pairwise(marks)]
    figures = zip(held, times, together, strict=True)
    lane.passes += [Pass(lane.name, "draft", 1, n, us, together=runs) for n, us, runs in figures]
    return written
