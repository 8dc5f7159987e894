"""Events: the routes of a browser's one event stream, which carries the runs that all its pages follow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.responses import Response

from decodescope.app.http.body import read_json_body
from decodescope.app.http.stream_limiter import StreamLimiter
from decodescope.app.runs.browser_streams import BrowserStreams, parse_changes
from decodescope.app.runs.run_service import RunService

from .hardware import json_response

STREAMS = 200  # open streams of browsers
BODY = 1 << 18  # bytes of a request


def add(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:
    """Add the routes to the application; refused(status, sentence) makes a refusal."""
    watchers = StreamLimiter(STREAMS, refused)
    streams = BrowserStreams(play.runs_ahead)

    @api.get("/ds/events")
    async def events() -> Response:
        return watchers.answer(streams.open)

    @api.post("/ds/events/{stream}")
    async def change(stream: str, request: Request) -> Response:
        streams.check(stream)
        added, dropped = parse_changes(await read_json_body(request, BODY))
        channels = await asyncio.to_thread(lambda: [play.find(x.run) for x in added])
        streams.change(stream, [*zip(added, channels, strict=True)], dropped)
        return json_response({"runs": len(added)})
