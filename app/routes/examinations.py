"""Examinations: routes that run the draft doctor on the pair of a report, on the prompts of its runs.

GET  /ds/examination            ?runs=ID,ID: whether these can be examined, or `why` not; how many prompts are read at most; the
                                newest examination of these runs, if there is one
POST /ds/examination            {"runs": "ID,ID"}, finished runs: begins one
GET  /ds/examination/ID         how far it is; once it is over its result, with the charts that draw it
POST /ds/examination/ID/stop    ends it; then it has no result
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response

from decodescope.app.basis.refusal import RequestRefusal, explain_error
from decodescope.app.http.body import read_json_body
from decodescope.app.runs.run_service import RunService
from decodescope.engine.core.refusal import Refusal

from .examination_job import PROMPTS, ReportExaminations, find_examinable
from .hardware import json_response
from .report import find_finished_runs, page_chart

BODY = 16 << 10  # bytes of a request


def add(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:
    """Add the routes to the application; refused(status, sentence) makes a refusal."""
    examinations = ReportExaminations(play)

    async def answer(work: Callable[[], dict[str, Any]]) -> Response:
        try:
            return json_response(await asyncio.to_thread(work))
        except (ValueError, LookupError, ArithmeticError) as error:
            if isinstance(error, RequestRefusal):
                raise
            known = (
                explain_error(error) if isinstance(error, Refusal) else "a trace holds what no run writes."
            )
            return refused(422, f"This draft cannot be examined: {known}")

    @api.get("/ds/examination")
    async def offered(runs: str = "") -> Response:
        def work() -> dict[str, Any]:
            channels = find_finished_runs(play, runs)
            offer: dict[str, Any] = {"why": "", "most": PROMPTS}
            try:
                if channels[0].wire is not None:
                    find_examinable(channels[0].wire.header)
            except RequestRefusal as error:
                offer["why"] = str(error)
            latest = examinations.latest([x.run for x in channels])
            return {**offer, "latest": latest and with_charts(latest)}

        return await answer(work)

    @api.post("/ds/examination")
    async def begin(request: Request) -> Response:
        runs = (await read_json_body(request, BODY)).get("runs")
        if not isinstance(runs, str):
            return refused(400, 'Send {"runs": "ID,ID"}, the ids of the runs of a report.')
        return await answer(lambda: examinations.start(find_finished_runs(play, runs)))

    @api.get("/ds/examination/{name}")
    async def state(name: str) -> Response:
        return await answer(lambda: with_charts(examinations.record(name)))

    @api.post("/ds/examination/{name}/stop")
    async def stop(name: str) -> Response:
        await asyncio.to_thread(examinations.stop, name)
        return await answer(lambda: examinations.record(name))


def with_charts(record: dict[str, Any]) -> dict[str, Any]:
    """The record of an examination with a chart for each panel, once it has a result."""
    if record["result"] is None:
        return record
    from decodescope.lab.figures.measured.draft_examination import PANELS, figure

    charts = [page_chart(figure(record["result"], panels=[name])) for name in ("readings", *PANELS)]
    return {**record, "charts": charts}
