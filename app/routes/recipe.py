"""Recipe: the routes for copying: the displayed run, or the settings of the controls, as command, Python or link.

GET  /ds/run/RUN/recipe     ?way=command|python|link: {"text", "way", "note"}, of the run
POST /ds/run/RUN/differs    {"settings"}: how those differ from the run's, {"differs": [words, ...], "settings": the run's}
POST /ds/recipe             {"settings", "way"}: as the first, of the settings
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response

from decodescope.app.basis.refusal import RequestRefusal, explain_error
from decodescope.app.http.body import read_json_body
from decodescope.app.runs.compare.settings_diff import choice_of_run, differences
from decodescope.app.runs.recipe import WAYS, as_json, fork_command, from_json, recipe
from decodescope.app.runs.record_stream import RecordStream
from decodescope.app.runs.run_service import PROMPT, RunChoice, RunService

from .hardware import answer_for_run, json_response

BODY = 4 * PROMPT  # bytes of a question
FORKED = "The run was forked off another one: this makes a run of its settings from the beginning."
TEMPLATED = (
    "The prompt was put by a chat template, and this record does not hold the turn itself: give it with --chat instead of "
    "this text, whose marks would be read as plain text."
)


def add(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:
    """Add the routes to the application; refused(status, sentence) makes a refusal."""

    async def of(run: str, work: Callable[[RecordStream], Any]) -> Response:
        return await answer_for_run(
            play, refused, run, work, "The settings of this run cannot be read from its record"
        )

    @api.get("/ds/run/{run}/recipe")
    async def copied(run: str, way: str = WAYS[0]) -> Response:
        def work(channel: RecordStream) -> dict[str, Any]:
            choice = choice_of_run(play, channel)
            return {
                "text": recipe(choice, play.models.names, _check_way(way)),
                "way": way,
                "note": _rerun_note(channel, choice),
            }

        return await of(run, work)

    @api.post("/ds/run/{run}/differs")
    async def differs(run: str, request: Request) -> Response:
        settings = str((await read_json_body(request, BODY)).get("settings") or "")

        def work(channel: RecordStream) -> dict[str, Any]:
            own, now = choice_of_run(play, channel), from_json(settings)
            assert channel.wire is not None
            return {"differs": differences(play, channel.wire.header, own, now), "settings": as_json(own)}

        return await of(run, work)

    @api.post("/ds/recipe")
    async def written(request: Request) -> Response:
        body = await read_json_body(request, BODY)
        way = _check_way(str(body.get("way")))

        def work() -> dict[str, Any]:
            return {
                "text": recipe(from_json(str(body.get("settings") or "")), play.models.names, way),
                "way": way,
                "note": "",
            }

        try:
            return json_response(await asyncio.to_thread(work))
        except ValueError as error:
            return refused(422, explain_error(error))


def _rerun_note(channel: RecordStream, choice: RunChoice) -> str:
    """How a new run with the settings of a channel's run will differ from it; empty: not at all."""
    assert channel.wire is not None
    header = channel.wire.header
    notes = [(FORKED, header.fork is not None), (TEMPLATED, header.chat and not choice.source.is_templated)]
    said = [note for note, holds in notes if holds]
    if command := fork_command(header):
        said.append(f"The fork itself: {command}")
    return " ".join(said)


def _check_way(way: str) -> str:
    """The way, if it exists. Raises RequestRefusal."""
    if way not in WAYS:
        raise RequestRefusal(f"Settings are copied as {', '.join(WAYS)}.")
    return way
