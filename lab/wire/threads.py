"""Threads on the wire: the message fields on the threads that wrote in a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from decodescope.engine.trace.details.declarations import ThreadsForm
from decodescope.engine.trace.details.shapes import ThreadsDetail
from decodescope.engine.trace.details.threads import threads_scope
from decodescope.engine.trace.records.events import Header, Step

GIVEN = 24  # number of last tokens given to a thread that are sent


def encode_threads(header: Header, step: Step, texts: Callable[[list[int]], list[Any]]) -> dict[str, Any]:
    """The threads that wrote in a step, the step in a clause, what each wrote, those that began and those that ended.
    A beginning thread has the tokens that it was given, and their number. Empty if the step has no threads. texts: ids ->
    tokens as views have them"""
    threads: ThreadsDetail | None = step.detail_of("threads")
    if threads is None:
        return {}
    form = header.details.get(threads.name)
    begun = [[x.thread, x.parent, x.at, texts(x.given[-GIVEN:]), len(x.given)] for x in threads.begun]
    ended = [[x.thread, x.why] for x in threads.ended]
    return {
        "threads": {
            "name": threads.name,
            "says": threads_scope(threads, len(step.emitted)).say_first(form.says)
            if isinstance(form, ThreadsForm)
            else "",
            "alive": threads.alive,
            "tokens": texts(threads.tokens),
            "begun": begun,
            "ended": ended,
        }
    }
