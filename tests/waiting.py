"""The one place where the tests wait for another thread or process: for a condition, never for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
LOOK = 0.01  # s between two looks
LONG = 120  # s that a condition may take on a machine that is busy with other things


def eventually(condition: Callable[[], T], said: str = "what was waited for did not come") -> T:
    """Call `condition` until its result is true, and return the result."""
    until = time.monotonic() + LONG
    while not (answer := condition()):
        assert time.monotonic() < until, said
        time.sleep(LOOK)
    return answer


def awaited(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread of its own and return its result.

    Our own thread already has a loop once a browser was driven in it.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def error_while_loop_runs(work: Callable[[], object], kind: type[Exception]) -> str:
    """The message of the error that `work` ends with, in a thread; the event loop beside it must go on all the time."""

    async def watch() -> tuple[BaseException | None, int]:
        task, looks = asyncio.create_task(asyncio.to_thread(work)), 0
        while not task.done():
            await asyncio.sleep(LOOK)
            looks += 1
        return task.exception(), looks

    error, looks = awaited(watch())
    assert isinstance(error, kind), error
    assert looks > 2, "the loop stood still"
    return str(error)
