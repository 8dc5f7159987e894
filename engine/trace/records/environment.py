"""Environment: what else the machine had to do, as far as passes show it, and what was done about that between two steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..values.limits import TraceError

AS_GOOD = 1.05  # times as long as the fastest: as good, and leaves processors to others
STAYS = 1.1  # times as long as the fastest: no reason to change


@dataclass
class Environment:
    """The number of threads was chosen again after a step. The step's own times, and those of its passes, are from before.

    before, after: threads of the passes up to here, and from here on
    slower:   how many times longer the last passes took than when they were timed, while other programs used the processors,
              and at most as long as a thread with so little of a processor takes; None: it was time to see if more threads help
    rows:     maximum number of rows of those passes
    timed_us: threads (as text) -> microseconds of a pass of 1 row and of one of 16 with them, as timed here; if passes were
              slow, as timed last, with the earlier ones scaled by `slower`
    spent_us: how long the choice took; it is part of no step
    """

    before: int
    after: int
    timed_us: dict[str, list[float]]
    spent_us: float = 0.0
    slower: float | None = None
    rows: int | None = None


def mean_pass_time(took: Sequence[float]) -> float:
    """The single figure for pass times at several numbers of rows: their geometric mean."""
    return math.prod(took) ** (1 / len(took))


def choose_thread_count(took: Mapping[int, Sequence[float]], now: int | None = None) -> int:
    """In how many threads passes are to run, by what passes took in each number: the fewest that are as good as the fastest.
    now: in how many they run, which stays where little would be gained."""
    costs = {threads: mean_pass_time(times) for threads, times in took.items()}
    least = min(costs.values())
    if now in costs and costs[now] <= STAYS * least:
        return now
    return min(threads for threads, x in costs.items() if x <= AS_GOOD * least)


def validate_environment(one: Environment | None) -> None:
    """Check the record, if there is one. Raises TraceError."""
    if one is None:
        return
    if not one.timed_us or not all(
        key.isdecimal() and int(key) > 0 and key.isascii() for key in one.timed_us
    ):
        raise TraceError("environment.timed_us names no numbers of threads")
    if not all(times and all(math.isfinite(x) and x > 0 for x in times) for times in one.timed_us.values()):
        raise TraceError("environment.timed_us holds what is no time of a pass")
    due = choose_thread_count({int(key): times for key, times in one.timed_us.items()}, one.before)
    if one.after != due:
        raise TraceError(f"environment goes on in {one.after} threads, and by its times {due} are due")
    if one.slower is not None and not one.slower > 1:
        raise TraceError(
            f"environment.slower is {one.slower:g}, and passes that took no longer are no reason"
        )
