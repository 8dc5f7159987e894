"""Compare: the routes of the Compare page: runs of several methods on one prompt, and figures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.responses import Response

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.http.body import read_json_body
from decodescope.app.http.json_answer import JsonAnswer
from decodescope.app.runs.catalogue.presets import PRESETS
from decodescope.app.runs.compare.comparison import FEWEST_RUNS, MOST_RUNS, parse_choices, start_all
from decodescope.app.runs.compare.comparison_table import ComparisonTable, as_csv
from decodescope.app.runs.compare.repeats import MOST, Repeats
from decodescope.app.runs.preset_choice import apply_preset
from decodescope.app.runs.recipe import initial_choice
from decodescope.app.runs.record_stream import RecordStream
from decodescope.app.runs.run_service import GONE, PROMPT, RunService

from .catalogue import query_choice
from .hardware import json_response
from .library import FRESH

BODY = 4 * PROMPT  # bytes of a question


def add(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:
    """Add the routes to the application; refused(status, sentence) makes a refusal."""

    @api.get("/ds/compare")
    def choices(request: Request) -> Response:
        begin = query_choice(request, initial_choice())
        rows = [
            {"key": key, "title": x.title, "why": play.check(apply_preset(begin, key, play.models.names))}
            for key, x in PRESETS.items()
        ]
        of = play.models.state(play.model_keys(begin))["models"]
        return json_response(
            {"presets": rows, "models": of, "prompt": begin.prompt, "seed": begin.seed, "new": begin.max_new}
        )

    @api.post("/ds/compare/start")
    async def start(request: Request) -> Response:
        asked = parse_choices(await read_json_body(request, BODY))
        return json_response({"runs": [x.run for x in await asyncio.to_thread(start_all, play, asked)]})

    repeats = Repeats(play)
    _add_figure_routes(api, play, repeats, refused)
    _add_repeat_routes(api, play, repeats)


def _find_runs(play: RunService, runs: str) -> list[RecordStream]:
    """The runs of a question. Raises RequestRefusal."""
    names = list(dict.fromkeys(x for x in runs.split(",") if x))
    if not FEWEST_RUNS <= len(names) <= MOST_RUNS:
        raise RequestRefusal(
            f"{FEWEST_RUNS} to {MOST_RUNS} different runs are compared; {len(names)} were named."
        )
    channels = [play.find(name) for name in names]
    if None in channels:
        raise RequestRefusal(GONE, 404)
    return [x for x in channels if x is not None]


async def _answer_on_runs(
    play: RunService, runs: str, work: Callable[[list[RecordStream]], Response]
) -> Response:
    """The answer of `work` on the runs of a question, made in a thread."""
    return await asyncio.to_thread(lambda: work(_find_runs(play, runs)))


def _add_figure_routes(
    api: FastAPI, play: RunService, repeats: Repeats, refused: Callable[[int, str], Response]
) -> None:
    """The routes of the figures of compared runs."""
    figures = ComparisonTable()

    @api.get("/ds/compare/summary")
    async def summary(runs: str = "") -> Response:
        return await _answer_on_runs(play, runs, lambda channels: json_response(figures.compare(channels)))

    @api.get("/ds/compare/table.{kind}")
    async def table(kind: str, runs: str = "", base: str = "0", repeat: str = "") -> Response:
        def work(channels: list[RecordStream]) -> Response:
            if kind not in ("csv", "json") or base not in [str(i) for i in range(len(channels))]:
                return refused(
                    404, "The table comes as table.csv or table.json; base is the number of a run, from 0."
                )
            rows = figures.table(channels, int(base), repeats.record(repeat))
            name = {"content-disposition": f'attachment; filename="decodescope-compare.{kind}"', **FRESH}
            if kind == "json":
                return JsonAnswer(rows, headers=name)
            return Response(as_csv(rows["rows"]), media_type="text/csv; charset=utf-8", headers=name)

        return await _answer_on_runs(play, runs, work)


def _add_repeat_routes(api: FastAPI, play: RunService, repeats: Repeats) -> None:
    """The routes of repeats."""

    def told(name: str) -> Response:
        record = repeats.record(name)
        if record is None:
            raise RequestRefusal("These repeats are not here any more: start them again.")
        return json_response(record)

    @api.post("/ds/compare/repeat")
    async def again(request: Request) -> Response:
        said = await read_json_body(request, BODY)
        times, runs = said.get("times"), said.get("runs")
        if not isinstance(times, int) or isinstance(times, bool) or not isinstance(runs, list):
            raise RequestRefusal(f'Send {{"runs": [...], "times": n}}, n up to {MOST}.')
        named = ",".join(map(str, runs[: MOST_RUNS + 1]))
        return await _answer_on_runs(
            play, named, lambda channels: json_response(repeats.start(channels, times).record())
        )

    @api.get("/ds/compare/repeat/{name}")
    def rounds(name: str) -> Response:
        return told(name)

    @api.post("/ds/compare/repeat/{name}/stop")
    def stop(name: str) -> Response:
        repeats.stop(name)
        return told(name)
