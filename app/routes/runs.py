"""Runs: the routes of one run: its state, events and steps, and the actions on it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.responses import Response

from decodescope.app.http.stream_limiter import StreamLimiter
from decodescope.app.runs.event_stream import EventReader, stream_events
from decodescope.app.runs.recipe import smaller_presets
from decodescope.app.runs.record_stream import BATCH
from decodescope.app.runs.run_service import GONE, RunService

from .hardware import json_response
from .library import FRESH

NUMBER = re.compile(r"-?[0-9]{1,11}")
STREAMS = 200  # open event streams in all


def add(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:  # noqa: C901
    """Add the routes to the application; refused(status, sentence) makes a refusal."""

    @api.get("/ds/run/{run}")
    def status(run: str) -> Response:
        channel = play.find(run)
        if channel is None:
            return refused(404, GONE)
        state = {**channel.state(), "ahead": play.runs_ahead(channel)}
        if channel.end is not None and channel.end.reason == "out_of_memory" and channel.wire is not None:
            state |= {"smaller": smaller_presets(channel.wire.header), "estimate": channel.estimate}
        return json_response(state)

    @api.get("/ds/run/{run}/range")
    async def steps(run: str, request: Request) -> Response:
        channel = await asyncio.to_thread(play.find, run)
        if channel is None:
            return refused(404, GONE)
        asked = [request.query_params.get(x, "") for x in ("from", "to")]
        if not all(NUMBER.fullmatch(x) and x[0] != "-" for x in asked):
            return refused(400, "Ask for steps as ?from=0&to=16, with whole numbers.")
        first, last = map(int, asked)
        if first > last:
            return refused(400, f"from = {first} lies behind to = {last}.")
        if first > channel.count:
            return refused(404, f"The run has {channel.count} steps; there is no step {first}.")
        body = await asyncio.to_thread(channel.range, first, min(last, first + BATCH))
        return Response(body, media_type="application/json", headers=FRESH)

    @api.post("/ds/run/{run}/{action}")
    def act(run: str, action: str) -> Response:
        channel = play.find(run)
        if channel is None:
            return refused(404, GONE)
        if action not in ("stop", "pause", "resume", "step"):
            return refused(404, "A run can be stopped, paused, resumed and stepped.")
        if not play.act(channel, action):
            return refused(409, "The run is over.")
        return json_response(channel.state())

    _add_event_route(api, play, refused)


def _add_event_route(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:
    """The route of a run's events."""
    watchers = StreamLimiter(STREAMS, refused)

    @api.get("/ds/run/{run}/events")
    async def events(run: str, request: Request) -> Response:
        channel = await asyncio.to_thread(play.find, run)
        if channel is None:
            return refused(404, GONE)
        after = request.headers.get("last-event-id") or request.query_params.get("after") or "-1"
        if not NUMBER.fullmatch(after):
            return refused(400, "The number of the last step is not a number.")
        return watchers.answer(
            lambda: stream_events(EventReader(channel, max(-1, int(after)), play.runs_ahead))
        )
