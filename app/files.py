"""Files: what can be taken from the page: a run's trace, a run as one HTML file; and the list of examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.responses import FileResponse, JSONResponse, Response

from .examples import examples
from .play import Play

LARGEST = 64 << 20  # bytes of a trace that is made into one HTML file
GONE = "This run is not here any more."
GOING = "The run is still going: stop it, or wait for its end."


def add(made: FastAPI, play: Play, refused: Callable[[int, str], Response]) -> None:
    """Add the routes to the application; refused(status, sentence) makes a refusal."""

    @made.get("/ds/examples")
    def listed() -> Response:
        rows = [{"run": x.run, "title": x.title, "about": x.about} for x in examples()]
        return JSONResponse(rows, headers={"cache-control": "no-store"})

    def sealed(run: str) -> Any:
        """The finished run's channel, or the refusal."""
        channel = play.find(run)
        if channel is None:
            return refused(404, GONE)
        if not channel.over:
            return refused(409, GOING)
        return channel if channel.path.is_file() else refused(404, "The trace of this run was removed.")

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
        from ..engine.trace import TraceError, open_trace
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


FRESH = {"cache-control": "no-store"}
