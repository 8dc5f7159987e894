"""Files: the route for uploading the file of a knob."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.responses import Response

from decodescope.app.http.body import read_body
from decodescope.app.http.json_answer import JsonAnswer
from decodescope.app.runs.files import find_file_knob
from decodescope.app.runs.run_service import RunService
from decodescope.engine.core.files import FileRefusal


def add(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:
    """Add the route to the application; refused(status, sentence) makes a refusal."""

    @api.post("/ds/files/{kind}/{name}/{knob}")
    async def taken(kind: str, name: str, knob: str, request: Request) -> Response:
        """Store the body, a text file called ?name=..., and answer with the knob's new value."""
        declared = find_file_knob(kind, name, knob)
        called = request.query_params.get("name", "")[:200] or "file"
        try:
            await asyncio.to_thread(play.check_disk)
            text = await read_body(request, declared.most or 0, f"{name}.{knob}: the file")
            value = await asyncio.to_thread(play.files.take, text, called, declared.most or 0)
        except FileRefusal as no:
            return refused(422, f"{name}.{knob}: {no}")
        except OSError as error:
            return refused(
                422, f"{name}.{knob}: the file was not taken: {error.strerror or type(error).__name__}."
            )
        return JsonAnswer({"value": value}, headers={"cache-control": "no-store"})
