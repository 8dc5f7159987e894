"""Batches: the routes by which a page reads a set of prompts and runs one method on all of them.

POST /ds/prompts           {"text", "file"} or {"bench"}, as app/runs/prompts.py reads them: how many there are of which kinds
POST /ds/batch             the same with "kinds", "each", and {"method", "seed", "new", "models"}, and perhaps "batch": begins
                           the runs, so many in step; method is a preset, settings as text, or the id of a recorded run, which
                           has its models by itself
GET  /ds/batch             all batches, the newest first, without their prompts; also those of a server before this one
GET  /ds/batch/ID          where they stand: k of n, tokens, and each prompt with its run or why it was refused
POST /ds/batch/ID/stop     ends them; what was recorded stays
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response

from decodescope.app.basis.refusal import Refused
from decodescope.app.http.body import body_of
from decodescope.app.runs.compare.batch import MOST, Batches
from decodescope.app.runs.compare.comparison import choice_of, models_of
from decodescope.app.runs.prompts import asked, offered
from decodescope.app.runs.recipe import recorded
from decodescope.app.runs.run_service import RUN, Choice, RunService
from decodescope.engine.bench.questions.questions import kinds

from .hardware import answer

BODY = 16 << 20  # bytes of a set of prompts


def add(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:
    """Add the routes to the application; refused(status, sentence) makes a refusal."""
    batches = Batches(play)

    @api.post("/ds/prompts")
    async def prompts(request: Request) -> Response:
        whole = await asyncio.to_thread(offered, await body_of(request, BODY))
        return answer({"count": len(whole), "kinds": kinds(whole), "most": MOST})

    @api.post("/ds/batch")
    async def begin(request: Request) -> Response:
        said = await body_of(request, BODY)

        def work() -> dict[str, Any]:
            most = said.get("batch", 1)
            if type(most) is not int:
                raise Refused('Send "batch": n, a whole number: how many prompts go in step.')
            return batches.start(_choice(play, said), asked(said, MOST), most).record()

        return answer(await asyncio.to_thread(work))

    @api.get("/ds/batch")
    async def listed() -> Response:
        return answer({"batches": await asyncio.to_thread(batches.listed)})

    @api.get("/ds/batch/{name}")
    async def state(name: str) -> Response:
        return answer(await asyncio.to_thread(batches.record, name))

    @api.post("/ds/batch/{name}/stop")
    async def stop(name: str) -> Response:
        await asyncio.to_thread(batches.stop, name)
        return answer(await asyncio.to_thread(batches.record, name))


def _choice(play: RunService, said: dict[str, Any]) -> Choice:
    """The method of a question, with its seed and new tokens. Raises Refused."""
    method, numbers = said.get("method"), [said.get(x) for x in ("seed", "new")]
    if not isinstance(method, str) or not all(type(x) is int for x in numbers):
        raise Refused(
            'Send {"method": ..., "seed": n, "new": n}: a preset, settings or a run, and two whole numbers.'
        )
    given: dict[str, Any] = dict(zip(("seed", "max_new"), numbers, strict=True))
    if not RUN.fullmatch(method):
        choice = choice_of(method)
        return replace(choice, **given, models=models_of(said) or choice.models)
    channel = play.find(method)
    if channel is None or channel.wire is None:
        raise Refused("The run whose method is wanted is not here any more: choose another method.")
    header = channel.wire.header
    return replace(recorded(header), **given, models=play.recorded_with(header))
