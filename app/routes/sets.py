"""Sets: the routes for running several methods on a set of prompts on the Compare page.

POST /ds/compare/set            the prompts, as app/runs/prompts.py reads them, and {"methods", "seed", "new", "sampler",
                                "temperature"}, as for one prompt: begins the runs
GET  /ds/compare/set/ID         the results so far, or the stored ones
GET  /ds/compare/set/ID/table.csv, /ds/compare/set/ID/page.html
POST /ds/compare/set/ID/stop    ends it; what was recorded stays
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response

from decodescope.app.http.body import read_json_body
from decodescope.app.runs.compare.comparison import parse_choices
from decodescope.app.runs.compare.prompt_sets import MOST, PromptSets, as_csv
from decodescope.app.runs.prompts import requested_prompts
from decodescope.app.runs.run_service import RunService
from decodescope.lab.reports.prompts import page

from .hardware import json_response
from .library import FRESH

BODY = 16 << 20  # bytes of a set of prompts


def add(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:
    """Add the routes to the application; refused(status, sentence) makes a refusal."""
    sets = PromptSets(play)

    @api.post("/ds/compare/set")
    async def begin(request: Request) -> Response:
        said = await read_json_body(request, BODY)

        def work() -> dict[str, Any]:
            return sets.start(
                parse_choices({**said, "prompt": "set"}), requested_prompts(said, MOST)
            ).record()

        return json_response(await asyncio.to_thread(work))

    @api.get("/ds/compare/set/{name}")
    async def state(name: str) -> Response:
        return json_response(await asyncio.to_thread(sets.record, name))

    @api.post("/ds/compare/set/{name}/stop")
    async def stop(name: str) -> Response:
        await asyncio.to_thread(sets.stop, name)
        return json_response(await asyncio.to_thread(sets.record, name))

    @api.get("/ds/compare/set/{name}/{file}")
    async def saved(name: str, file: str) -> Response:
        forms = {"table.csv": (as_csv, "text/csv"), "page.html": (page, "text/html")}
        if file not in forms:
            return refused(404, "A set comes as table.csv or page.html.")
        write, kind = forms[file]
        text = await asyncio.to_thread(lambda: write(sets.record(name)))
        head = {
            "content-disposition": f'attachment; filename="decodescope-set.{file[-4:].strip(".")}"',
            **FRESH,
        }
        return Response(text.encode("utf-8", "replace"), media_type=f"{kind}; charset=utf-8", headers=head)
