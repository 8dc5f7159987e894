"""Stream limiter: counts the open event streams of one route."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from fastapi.responses import Response, StreamingResponse


class StreamLimiter:
    """The number of open streams; at most `most`. refused(status, sentence) makes a refusal."""

    def __init__(self, most: int, refused: Callable[[int, str], Response]):
        self.most, self._refused = most, refused
        self._open = 0

    def answer(self, events: Callable[[], AsyncGenerator[bytes, None]]) -> Response:
        """The stream of `events`, counted from its first byte until the reader leaves; a refusal if the limit is reached."""
        if self._open >= self.most:
            return self._refused(503, f"{self._open} pages are watching, which is the limit; close one.")

        async def body() -> AsyncGenerator[bytes, None]:
            self._open += 1
            try:
                async with aclosing(events()) as parts:
                    async for part in parts:
                        yield part
            finally:
                self._open -= 1

        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(body(), media_type="text/event-stream", headers=headers)
