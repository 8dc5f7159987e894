"""Quiet log: failures of requests in one line a minute, without stack traces, so that no visitor can fill the terminal."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

SPAN = 60.0  # seconds between two lines
SHOWN = 300  # characters of a line
LOG = logging.getLogger("decodescope.server")
LOUD = ("uvicorn.error", "asyncio", LOG.name)  # what writes about requests that fail


class LineLimiter(logging.Filter):
    """Lets one record in SPAN seconds through, as one line: what failed, with which error, and where."""

    def __init__(self, now: Callable[[], float] = time.monotonic):
        super().__init__()
        self._now = now
        self._last = float("-inf")
        self._dropped = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this record is written."""
        now = self._now()
        if now - self._last < SPAN:
            self._dropped += 1
            return False
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage().strip().partition("\n")[0]
        text += f" ({_place_of(error)})" if error is not None else ""
        text = "".join(x if x.isprintable() else "?" for x in text)[:SHOWN]
        more = f"; {self._dropped} more since the last line" if self._dropped else ""
        record.msg, record.args = text + more, ()
        record.exc_info = record.exc_text = record.stack_info = None
        self._last, self._dropped = now, 0
        return True


LIMITER = LineLimiter()
LOG.addFilter(LIMITER)


def limit_log() -> None:
    """Limit what the server writes about requests to the lines of one LineLimiter."""
    for name in LOUD:
        logger = logging.getLogger(name)
        if LIMITER not in logger.filters:
            logger.addFilter(LIMITER)


def log_failure(error: BaseException | None = None) -> None:
    """Write an error, or the one that is being handled, in the place of a stack trace."""
    LOG.warning("A request of the page failed inside", exc_info=error or sys.exc_info()[1])


def _place_of(error: BaseException) -> str:
    """Type of an error, and the last line of code that it passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"
