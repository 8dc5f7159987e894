"""Attempts: counts wrong attempts to sign in, for each address and each name."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

MOST = 5  # wrong attempts
SPAN = 60.0  # seconds in which they count
KEYS = 10_000  # addresses and names that are counted at once; above it the oldest go


class AttemptLimiter:
    """Allows MOST wrong attempts in SPAN seconds for each key. An attempt counts from its beginning, so that a hundred at
    once are no way around the limit; one that was right is forgiven."""

    def __init__(self, now: Callable[[], float] = time.monotonic):
        self._now = now
        self._times: dict[str, deque[float]] = {}

    def begin(self, *keys: str) -> bool:
        """Count an attempt for all these keys; False, and none counted, if one of them has used up its attempts."""
        start = self._now()
        if any(len(self._recent(key, start)) >= MOST for key in keys):
            return False
        for key in keys:
            times = self._times.pop(key, None) or deque()  # again at the end: the newest
            times.append(start)
            self._times[key] = times
        while len(self._times) > KEYS:
            del self._times[next(iter(self._times))]
        return True

    def forgive(self, *keys: str) -> None:
        """Take back the last attempt of each key."""
        for key in keys:
            times = self._times.get(key)
            if times:
                times.pop()
                if not times:
                    del self._times[key]

    def _recent(self, key: str, start: float) -> deque[float]:
        times = self._times.get(key, deque())
        while times and times[0] <= start - SPAN:
            times.popleft()
        if not times:
            self._times.pop(key, None)
        return times
