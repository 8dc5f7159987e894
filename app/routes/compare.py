"""Comparing: the routes of the Compare page: runs of several methods on one prompt, their events in one stream, figures."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from decodescope.app.basis.refusal import Refused
from decodescope.app.http.body import body_of
from decodescope.app.http.watchers import Watchers
from decodescope.app.runs.catalogue.presets import PRESETS
from decodescope.app.runs.compare.comparison import FEWEST_RUNS, MOST_RUNS, begin_all, choices_of
from decodescope.app.runs.compare.comparison_table import Figures, as_csv
from decodescope.app.runs.compare.repeats import MOST, Repeats
from decodescope.app.runs.preset_choice import taken
from decodescope.app.runs.recipe import opening
from decodescope.app.runs.record_stream import Channel
from decodescope.app.runs.run_service import GONE, PROMPT, RunService
from decodescope.app.runs.stream import Reader, stream

from .catalogue import models_of
from .hardware import answer
from .library import FRESH

BODY = 4 * PROMPT  # bytes of a question
WATCHED = 64  # open streams of several runs
SPARED = ("laws", "passes")  # of a step: no pane shows them, whatever is chosen there
AFTER = re.compile(r"-?[0-9]{1,11}(,-?[0-9]{1,11}){0,3}")


def add(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:
    """Add the routes to the application; refused(status, sentence) makes a refusal."""

    @api.get("/ds/compare")
    def choices(request: Request) -> Response:
        begin = replace(opening(), models=models_of(request))
        rows = [
            {"key": key, "title": x.title, "why": play.check(taken(begin, key, play.names))}
            for key, x in PRESETS.items()
        ]
        of = play.state(models_of(request))["models"]
        return answer(
            {"presets": rows, "models": of, "prompt": begin.prompt, "seed": begin.seed, "new": begin.max_new}
        )

    @api.post("/ds/compare/start")
    async def start(request: Request) -> Response:
        asked = choices_of(await body_of(request, BODY))
        return answer({"runs": [x.run for x in await asyncio.to_thread(begin_all, play, asked)]})

    repeats = Repeats(play)
    _events(api, play, refused)
    _figures(api, play, repeats, refused)
    _repeats(api, play, repeats)


def _named(play: RunService, runs: str, fewest: int = FEWEST_RUNS) -> list[Channel]:
    """The runs of a question. Raises Refused."""
    names = list(dict.fromkeys(x for x in runs.split(",") if x))
    if not fewest <= len(names) <= MOST_RUNS:
        raise Refused(f"{fewest} to {MOST_RUNS} different runs are compared; {len(names)} were named.")
    channels = [play.find(name) for name in names]
    if None in channels:
        raise Refused(GONE, 404)
    return [x for x in channels if x is not None]


def _events(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:
    """The route of the events of several runs."""
    watchers = Watchers(WATCHED, refused)

    @api.get("/ds/compare/events")
    async def events(request: Request) -> Response:
        after = request.query_params.get("after", "")
        channels = await asyncio.to_thread(_named, play, request.query_params.get("runs", ""), 1)
        if not AFTER.fullmatch(after) or len(places := [int(x) for x in after.split(",")]) != len(channels):
            return refused(
                400, "Say the number of each run's last step as ?after=-1,12, one per run; -1 is none."
            )
        # an event of the k-th run is called "k-step" and so on
        each = enumerate(zip(channels, places, strict=True))
        readers = [Reader(channel, max(-1, n), play.ahead, SPARED, f"{k}-") for k, (channel, n) in each]
        return watchers.answer(lambda: stream(*readers))


async def _compared(play: RunService, runs: str, work: Callable[[list[Channel]], Response]) -> Response:
    """The answer of `work` on the runs of a question, made in a thread."""
    return await asyncio.to_thread(lambda: work(_named(play, runs)))


def _figures(
    api: FastAPI, play: RunService, repeats: Repeats, refused: Callable[[int, str], Response]
) -> None:
    """The routes of the figures of compared runs."""
    figures = Figures()

    @api.get("/ds/compare/summary")
    async def summary(runs: str = "") -> Response:
        return await _compared(play, runs, lambda channels: answer(figures.told(channels)))

    @api.get("/ds/compare/table.{kind}")
    async def table(kind: str, runs: str = "", base: str = "0", repeat: str = "") -> Response:
        def work(channels: list[Channel]) -> Response:
            if kind not in ("csv", "json") or base not in [str(i) for i in range(len(channels))]:
                return refused(
                    404, "The table comes as table.csv or table.json; base is the number of a run, from 0."
                )
            rows = figures.table(channels, int(base), repeats.record(repeat))
            name = {"content-disposition": f'attachment; filename="decodescope-compare.{kind}"', **FRESH}
            if kind == "json":
                return JSONResponse(rows, headers=name)
            return Response(as_csv(rows["rows"]), media_type="text/csv; charset=utf-8", headers=name)

        return await _compared(play, runs, work)


def _repeats(api: FastAPI, play: RunService, repeats: Repeats) -> None:
    """The routes of repeats."""

    def told(name: str) -> Response:
        record = repeats.record(name)
        if record is None:
            raise Refused("These repeats are not here any more: start them again.")
        return answer(record)

    @api.post("/ds/compare/repeat")
    async def again(request: Request) -> Response:
        said = await body_of(request, BODY)
        times, runs = said.get("times"), said.get("runs")
        if not isinstance(times, int) or isinstance(times, bool) or not isinstance(runs, list):
            raise Refused(f'Send {{"runs": [...], "times": n}}, n up to {MOST}.')
        named = ",".join(map(str, runs[: MOST_RUNS + 1]))
        return await _compared(play, named, lambda channels: answer(repeats.start(channels, times).record()))

    @api.get("/ds/compare/repeat/{name}")
    def rounds(name: str) -> Response:
        return told(name)

    @api.post("/ds/compare/repeat/{name}/stop")
    def stop(name: str) -> Response:
        repeats.stop(name)
        return told(name)
