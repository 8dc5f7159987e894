"""Library: downloads from the page (a run's trace, its page, a report of it) and uploads to it: traces, examples."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, PlainTextResponse, Response, StreamingResponse

from decodescope.app.basis.storage import UPLOAD
from decodescope.app.http.guard import TOO_LARGE
from decodescope.app.http.json_answer import JsonAnswer
from decodescope.app.runs.catalogue.examples import Example, examples
from decodescope.app.runs.catalogue.tours import tours
from decodescope.app.runs.library import Library
from decodescope.app.runs.recipe import as_json, choice_from_header
from decodescope.app.runs.record_stream import RecordStream
from decodescope.app.runs.run_service import GONE, RunService
from decodescope.engine.trace import Trace, TraceError, open_trace

LARGEST = 64 << 20  # maximum bytes of a trace that becomes one HTML file
GOING = "The run is still going: stop it, or wait for its end."


def add(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:
    """Add the routes to the application; refused(status, sentence) makes a refusal."""

    @api.get("/ds/examples")
    def listed() -> Response:
        rows = [
            {
                "run": x.run,
                "title": x.title,
                "about": x.about,
                "model": x.model,
                "settings": _example_settings(x),
                "tour": [stop.record() for stop in tours().get(x.name, ())],
            }
            for x in examples()
        ]
        return JsonAnswer(rows, headers={"cache-control": "no-store"})

    @api.get("/ds/going")
    def going() -> Response:
        return JsonAnswer({"rows": play.active_runs()}, headers=FRESH)

    @api.get("/ds/run/{run}/report")
    def report(run: str) -> Response:
        channel = play.find(run)
        if channel is None:
            return refused(404, GONE)
        return PlainTextResponse(_failure_report(channel), headers=FRESH)

    _add_export_routes(api, play, refused)
    _add_library_routes(api, Library(play), refused)


class FinishedRuns:
    """The finished runs, and their files in other forms."""

    def __init__(self, play: RunService, refused: Callable[[int, str], Response]):
        self._play, self._refused = play, refused

    def channel(self, run: str) -> RecordStream | Response:
        """The run's channel, or the refusal."""
        channel = self._play.find(run)
        if channel is None:
            return self._refused(404, GONE)
        if channel.is_active:
            return self._refused(409, GOING)
        return channel if channel.path.is_file() else self._refused(404, "The trace of this run was removed.")

    def file_response(self, run: str, write: Callable[[Trace], str], name: str, kind: str) -> Response:
        """A download of the run as `write` formats it, in a file called `name`."""
        channel = self.channel(run)
        if isinstance(channel, Response):
            return channel
        if channel.path.stat().st_size > LARGEST:
            return self._refused(
                413, f"The trace is larger than {LARGEST >> 20} MiB: use decodescope trace export."
            )
        try:
            with closing(open_trace(channel.path)) as opened:
                content = write(opened)
        except TraceError as error:
            return self._refused(422, " ".join(str(error).split()))
        headers = {"content-disposition": f'attachment; filename="{name}"', **FRESH}
        return Response(
            content.encode("utf-8", "replace"), media_type=f"{kind}; charset=utf-8", headers=headers
        )


def _add_export_routes(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:
    """The routes of a finished run's file and of its other forms."""
    sealed = FinishedRuns(play, refused)

    @api.get("/ds/run/{run}/trace")
    def trace(run: str) -> Response:
        channel = sealed.channel(run)
        if isinstance(channel, Response):
            return channel
        return FileResponse(
            channel.path, media_type="application/octet-stream", filename=f"{run}.dstrace", headers=FRESH
        )

    @api.get("/ds/run/{run}/export.html")
    def html(run: str) -> Response:
        from decodescope.lab.views.export import export_html

        return sealed.file_response(run, export_html, f"decodescope-{run}.html", "text/html")

    @api.get("/ds/run/{run}/perfetto.json")
    def perfetto(run: str) -> Response:
        from decodescope.lab.views.perfetto import export_perfetto

        def events(trace: Trace) -> str:
            return json.dumps(export_perfetto(trace), separators=(",", ":"))

        return sealed.file_response(run, events, f"decodescope-{run}.perfetto.json", "application/json")

    @api.get("/ds/run/{run}/decisions.csv")
    def decisions(run: str) -> Response:
        from decodescope.lab.decision.decision_csv import export_csv

        channel = sealed.channel(run)
        if isinstance(channel, Response):
            return channel
        try:
            opened = open_trace(channel.path)
        except TraceError as error:
            return refused(422, " ".join(str(error).split()))

        def lines() -> Iterator[bytes]:
            try:
                yield from (line.encode("utf-8", "replace") for line in export_csv(opened))
            finally:
                opened.close()

        headers = {"content-disposition": f'attachment; filename="decodescope-{run}-decisions.csv"', **FRESH}
        return StreamingResponse(lines(), media_type="text/csv; charset=utf-8", headers=headers)


def _add_library_routes(api: FastAPI, library: Library, refused: Callable[[int, str], Response]) -> None:  # noqa: C901
    """The routes of the traces in the folder."""

    @api.get("/ds/library")
    def traces() -> Response:
        return JsonAnswer(library.listing(), headers=FRESH)

    @api.post("/ds/library")
    async def upload(request: Request) -> Response:
        name = "".join(x for x in request.query_params.get("name", "")[:200] if x.isprintable()) or "The file"
        try:
            await asyncio.to_thread(library.play.check_disk)
        except OSError as error:
            return refused(422, f"{name} was not taken: {error.strerror or error}.")
        part, most = library.play.folder / f".{secrets.token_hex(8)}{UPLOAD}", library.play.limits.upload
        try:
            with part.open("xb") as file:
                size = 0
                async for piece in request.stream():
                    size += len(piece)
                    if size > most << 20:
                        return refused(413, f"{name} {TOO_LARGE.format(most)}")
                    file.write(piece)
            return JsonAnswer(await asyncio.to_thread(library.take, part, name), headers=FRESH)
        except OSError as error:
            return refused(422, f"{name} was not taken: {error.strerror or error}.")
        finally:
            part.unlink(missing_ok=True)

    @api.post("/ds/library/{run}/{action}")
    async def changed(run: str, action: str, request: Request) -> Response:
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > 4096:
                return refused(413, "A name or a star takes fewer than 4096 bytes.")
        try:
            change = json.loads(body) if body else {}
        except (ValueError, RecursionError):
            change = None
        if not isinstance(change, dict):
            return refused(400, 'Send {"value": ...} as JSON.')
        value = change.get("value")
        if action == "name" and isinstance(value, str):
            await asyncio.to_thread(library.rename, run, value)
        elif action == "star" and isinstance(value, bool):
            await asyncio.to_thread(library.star, run, value)
        elif action in ("delete", "restore"):
            await asyncio.to_thread(library.delete if action == "delete" else library.restore, run)
        else:
            return refused(404, "A trace can be named (text), starred (true or false), deleted and restored.")
        return JsonAnswer({"run": run}, headers=FRESH)


def _failure_report(channel: RecordStream) -> str:
    """The data for diagnosing a failed run; without the prompt, which may be private."""
    end, state = channel.end, channel.state()
    rows: dict[str, Any] = {"run": channel.run, "steps": state["steps"], "status": state["status"]}
    if end is not None:
        rows |= {"ended": end.reason, "message": end.message}
    if channel.wire is not None:
        header = channel.wire.header
        rows |= {
            "decodescope": header.project,
            "model": f"{header.model.get('name')} {header.model.get('fingerprint', '')}",
            **{
                role: f"{lane.get('name')} {lane.get('fingerprint', '')}"
                for role, lane in header.lanes.items()
            },
            "method": json.dumps(header.method),
            "prompt": f"{len(header.prompt)} tokens",
            "new tokens": header.max_new_tokens,
            "seed": header.seed,
            "device": header.device_text,
            "torch": header.torch,
            "schema": header.schema,
        }
    return "".join(f"{name}: {value}\n" for name, value in rows.items())


@cache
def _example_settings(example: Example) -> str:
    """The settings of an example, as the page puts them into its controls."""
    trace = open_trace(example.path)
    try:
        return as_json(choice_from_header(trace.header))
    finally:
        trace.close()


FRESH = {"cache-control": "no-store"}
