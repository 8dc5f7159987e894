"""Models: the routes that fetch models onto the server's machine.

GET  /ds/models              those of the table, whether visitors may fetch, and the download that is going or was last
GET  /ds/models/plan?name=   what fetching a model takes: size, licence, room on the disk
POST /ds/models/get          {"name": ...} begins to fetch one
POST /ds/models/stop         stops; what was fetched is kept
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.responses import Response

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.http.body import read_json_body
from decodescope.app.runs.model_downloads import table_rows
from decodescope.app.runs.recipe import first_settings
from decodescope.app.runs.run_service import RunService

from .hardware import json_response

BODY = 4 << 10  # bytes of a request


def add(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:
    """Add the routes to the application; refused(status, sentence) makes a refusal."""
    downloads = play.downloads

    @api.get("/ds/models")
    def listed() -> Response:
        rows = [{**x, "begin": first_settings(x["name"])} for x in table_rows()]
        return json_response({"models": rows, "allowed": downloads.allowed, "download": downloads.state()})

    @api.get("/ds/models/plan")
    def plan(request: Request) -> Response:
        return json_response(downloads.plan(request.query_params.get("name", "")))

    @api.post("/ds/models/get")
    async def get(request: Request) -> Response:
        said = await read_json_body(request, BODY)
        name = said.get("name")
        if not isinstance(name, str):
            raise RequestRefusal('The request must name a model: {"name": "smollm2-135m-instruct"}.')
        return json_response(await asyncio.to_thread(downloads.start, name))

    @api.post("/ds/models/stop")
    def stop() -> Response:
        return json_response(downloads.stop())
