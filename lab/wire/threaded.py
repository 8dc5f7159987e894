"""Threaded: what a view is told of the threads that wrote in a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from decodescope.engine.trace.details.threads import Threads

GIVEN = 24  # tokens that a thread was given, the last ones


def threaded(threads: Threads, texts: Callable[[list[int]], list[Any]]) -> dict[str, Any]:
    """The threads that wrote, what each did, those that began, with what they were given and how much of it, and those that
    ended. texts: ids -> tokens as views have them"""
    begun = [[x.thread, x.parent, x.at, texts(x.given[-GIVEN:]), len(x.given)] for x in threads.begun]
    ended = [[x.thread, x.why] for x in threads.ended]
    return {
        "threads": {"alive": threads.alive, "tokens": texts(threads.tokens), "begun": begun, "ended": ended}
    }
