"""Watchers: the open streams of events of one route, counted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from fastapi.responses import Response, StreamingResponse


class StreamLimiter:
    """How many streams are open; at most `most`. refused(status, sentence) makes a refusal."""

    def __init__(self, most: int, refused: Callable[[int, str], Response]):
        self.most, self._refused = most, refused
        self._open = 0

    def answer(self, events: Callable[[], AsyncIterator[bytes]]) -> Response:
        """The stream of `events`, counted from its first byte until it is left; a refusal where as many are open as may be."""
        if self._open >= self.most:
            return self._refused(503, f"{self._open} pages are watching, which is the limit; close one.")

        async def body() -> AsyncIterator[bytes]:
            self._open += 1
            try:
                async for part in events():
                    yield part
            finally:
                self._open -= 1

        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(body(), media_type="text/event-stream", headers=headers)
