"""Batches: routes that read a set of prompts and run one method on all of them.

POST /ds/prompts           {"text", "file"} or {"bench"}, as app/runs/prompts.py reads them: how many there are of which kinds
POST /ds/batch             the same with "kinds", "each", and {"method", "seed", "new", "models"}, and perhaps "batch": begins
                           the runs, so many in step; method is a preset, settings as text, or the id of a recorded run, which
                           has its models by itself
GET  /ds/batch             all batches, the newest first, without their prompts; also those of a server before this one
GET  /ds/batch/ID          progress: k of n, tokens, and each prompt with its run or why it was refused
POST /ds/batch/ID/stop     ends them; what was recorded stays
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.http.body import read_json_body
from decodescope.app.runs.compare.batch import MOST, PromptBatches
from decodescope.app.runs.compare.comparison import parse_choice, parse_models, parse_place
from decodescope.app.runs.prompts import available_prompts, requested_prompts
from decodescope.app.runs.recipe import choice_from_header
from decodescope.app.runs.run_service import RUN, RunChoice, RunService
from decodescope.engine.bench.questions.questions import count_kinds

from .hardware import json_response

BODY = 16 << 20  # bytes of a set of prompts


def add(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:
    """Add the routes to the application; refused(status, sentence) makes a refusal."""
    batches = PromptBatches(play)

    @api.post("/ds/prompts")
    async def prompts(request: Request) -> Response:
        whole = await asyncio.to_thread(available_prompts, await read_json_body(request, BODY))
        return json_response({"count": len(whole), "kinds": count_kinds(whole), "most": MOST})

    @api.post("/ds/batch")
    async def begin(request: Request) -> Response:
        said = await read_json_body(request, BODY)

        def work() -> dict[str, Any]:
            most = said.get("batch", 1)
            if type(most) is not int:
                raise RequestRefusal('Send "batch": n, a whole number: how many prompts go in step.')
            return batches.start(_requested_choice(play, said), requested_prompts(said, MOST), most).record()

        return json_response(await asyncio.to_thread(work))

    @api.get("/ds/batch")
    async def listed() -> Response:
        return json_response({"batches": await asyncio.to_thread(batches.summaries)})

    @api.get("/ds/batch/{name}")
    async def state(name: str) -> Response:
        return json_response(await asyncio.to_thread(batches.record, name))

    @api.post("/ds/batch/{name}/stop")
    async def stop(name: str) -> Response:
        await asyncio.to_thread(batches.stop, name)
        return json_response(await asyncio.to_thread(batches.record, name))


def _requested_choice(play: RunService, said: dict[str, Any]) -> RunChoice:
    """The method of a question, with its seed and new tokens. Raises RequestRefusal."""
    method, numbers = said.get("method"), [said.get(x) for x in ("seed", "new")]
    if not isinstance(method, str) or not all(type(x) is int for x in numbers):
        raise RequestRefusal(
            'Send {"method": ..., "seed": n, "new": n}: a preset, settings or a run, and two whole numbers.'
        )
    given: dict[str, Any] = dict(zip(("seed", "max_new"), numbers, strict=True))
    if not RUN.fullmatch(method):
        choice = parse_choice(method)
        return replace(choice, **given, **parse_place(said), models=parse_models(said) or choice.models)
    channel = play.find(method)
    if channel is None or channel.wire is None:
        raise RequestRefusal("The run whose method is wanted is not here any more: choose another method.")
    header = channel.wire.header
    return replace(choice_from_header(header), **given, models=play.find_recorded_models(header))
