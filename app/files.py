"""Files: what can be taken from the page: a run's trace, its page, a report of it; and the list of examples."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from fastapi import FastAPI
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response

from ..engine.trace import TraceError, open_trace
from .events import Channel
from .examples import Example, examples
from .play import Play
from .recipe import as_json, recorded

LARGEST = 64 << 20  # bytes of a trace that is made into one HTML file
GONE = "This run is not here any more."
GOING = "The run is still going: stop it, or wait for its end."


def add(made: FastAPI, play: Play, refused: Callable[[int, str], Response]) -> None:
    """Add the routes to the application; refused(status, sentence) makes a refusal."""

    @made.get("/ds/examples")
    def listed() -> Response:
        rows = [{"run": x.run, "title": x.title, "about": x.about, "settings": _settings(x)} for x in examples()]
        return JSONResponse(rows, headers={"cache-control": "no-store"})

    def sealed(run: str) -> Any:
        """The finished run's channel, or the refusal."""
        channel = play.find(run)
        if channel is None:
            return refused(404, GONE)
        if not channel.over:
            return refused(409, GOING)
        return channel if channel.path.is_file() else refused(404, "The trace of this run was removed.")

    @made.get("/ds/run/{run}/report")
    def report(run: str) -> Response:
        channel = play.find(run)
        if channel is None:
            return refused(404, GONE)
        return PlainTextResponse(_report(channel), headers=FRESH)

    @made.get("/ds/run/{run}/trace")
    def trace(run: str) -> Response:
        channel = sealed(run)
        if isinstance(channel, Response):
            return channel
        return FileResponse(channel.path, media_type="application/octet-stream", filename=f"{run}.dstrace", headers=FRESH)

    @made.get("/ds/run/{run}/export.html")
    def html(run: str) -> Response:
        channel = sealed(run)
        if isinstance(channel, Response):
            return channel
        if channel.path.stat().st_size > LARGEST:
            return refused(413, f"The trace is larger than {LARGEST >> 20} MiB: use decodescope trace export.")
        from ..lab.export import export_html

        try:
            opened = open_trace(channel.path)
            try:
                page = export_html(opened)
            finally:
                opened.close()
        except TraceError as error:
            return refused(422, " ".join(str(error).split()))
        name = {"content-disposition": f'attachment; filename="decodescope-{run}.html"', **FRESH}
        return Response(page.encode("utf-8", "replace"), media_type="text/html; charset=utf-8", headers=name)


def _report(channel: Channel) -> str:
    """What somebody needs to look into a run that failed; without the prompt, which may be private."""
    end, state = channel.end, channel.state()
    rows: dict[str, Any] = {"run": channel.run, "steps": state["steps"], "status": state["status"]}
    if end is not None:
        rows |= {"ended": end.reason, "message": end.message}
    if channel.wire is not None:
        header = channel.wire.header
        rows |= {
            "decodescope": header.project,
            "model": f"{header.model.get('name')} {header.model.get('fingerprint', '')}",
            **{role: f"{lane.get('name')} {lane.get('fingerprint', '')}" for role, lane in header.lanes.items()},
            "method": json.dumps(header.method),
            "prompt": f"{len(header.prompt)} tokens",
            "new tokens": header.max_new_tokens,
            "seed": header.seed,
            "device": f"{header.device}, {header.dtype}, {header.threads} threads",
            "torch": header.torch,
            "schema": header.schema,
        }
    return "".join(f"{name}: {value}\n" for name, value in rows.items())


@cache
def _settings(example: Example) -> str:
    """What an example was made with, as the page puts it into its controls."""
    trace = open_trace(example.path)
    try:
        return as_json(recorded(trace.header))
    finally:
        trace.close()


FRESH = {"cache-control": "no-store"}
