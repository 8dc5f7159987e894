"""The verify-cost curve: how long a pass over n rows takes on this device, for drafters that size their trees by it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.executor import Executor
from decodescope.engine.model.forward.feed import Feed

from ..bases.lane import Lane
from ..bases.policy import CachePolicy

HELD = 128  # entries in the cache while measuring


def verify_costs(
    decoder: Decoder, rows: Sequence[int], executor: Executor | None = None, repeats: int = 3
) -> list[float]:
    """Median microseconds of a pass over each number of rows after a cache of 128 entries.

    Measured once per decoder and kept on it; about 50 ms for a small model on two cores.
    """
    missing = [n for n in rows if n not in decoder.costs]
    if missing:
        lane = Lane("measured", decoder, CachePolicy(), executor=executor)
        lane.read([0] * min(HELD, decoder.spec.max_positions // 2))
        for n in missing:
            times = [pass_us(lane, n) for _ in range(repeats + 1)]
            decoder.costs[n] = statistics.median(times[1:])
    return [decoder.costs[n] for n in rows]


def pass_us(lane: Lane, rows: int) -> float:
    """Microseconds of one pass over `rows` rows after the lane's entries; nothing of the pass is kept."""
    lane.forward(Feed.causal_chain([0] * rows, len(lane.tokens), lane.decoder.device))
    lane.rollback()
    return lane.take_passes()[-1].wall_us


def fastest_row_count(decoder: Decoder, tokens: Mapping[int, float], executor: Executor | None = None) -> int:
    """The number of rows with the most expected tokens per microsecond on this device; of equal ones the first. tokens: rows
    -> the tokens that a pass with that many rows is expected to yield."""
    costs = dict(zip(tokens, verify_costs(decoder, list(tokens), executor), strict=True))
    return max(tokens, key=lambda rows: tokens[rows] / costs[rows])
