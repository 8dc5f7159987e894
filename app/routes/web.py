"""Web: the routes of the page's scripts and sheets, and of its requests before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, Response

from decodescope.app.runs.catalogue.knobs import knob_declarations
from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.lab.views.bundle import ENTRY, PARTS, core_script, part_module, part_script

from .catalogue import query_choice
from .hardware import json_response

WEB = Path(__file__).resolve().parents[2] / "lab" / "web"
KINDS = {".js": "text/javascript", ".css": "text/css"}
# address below /ds/web/ -> kind; the folder `scope` is served as one script, plus one for each part that few runs need
FILES = {x.relative_to(WEB).as_posix(): KINDS[x.suffix] for x in WEB.rglob("*.*") if x.suffix in KINDS}
SCRIPTS = {part_module(name): name for name in PARTS}
FILES = {name: kind for name, kind in FILES.items() if not name.startswith("scope/")}
FILES |= dict.fromkeys((ENTRY, *SCRIPTS), KINDS[".js"])


def add(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:
    """Add the routes to the application; refused(status, sentence) makes a refusal."""
    fresh = {"cache-control": "no-cache"}

    @api.get("/ds/web/{name:path}")
    def web(name: str) -> Response:
        if name not in FILES:
            return refused(404, "There is no such file.")
        if name == ENTRY:
            return Response(core_script(), media_type=FILES[name], headers=fresh)
        if name in SCRIPTS:
            return Response(part_script(SCRIPTS[name]), media_type=FILES[name], headers=fresh)
        return FileResponse(WEB / name, media_type=FILES[name], headers=fresh)

    @api.get("/ds/knobs.json")
    def every_knob(request: Request) -> Response:
        knobs = knob_declarations()
        mark = f'W/"{knobs.mark}"'  # weak: the same text, compressed or not
        headers = {**fresh, "etag": mark, "vary": "accept-encoding"}
        if mark in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(knobs.text, media_type="application/json", headers=headers)
        return Response(
            knobs.packed, media_type="application/json", headers={**headers, "content-encoding": "gzip"}
        )

    @api.get("/ds/state")
    def state(request: Request) -> Response:
        return json_response(play.models.state(play.model_keys(query_choice(request, RunChoice("")))))

    @api.get("/ds/limits")
    def limits() -> Response:
        return json_response({"limits": play.limits.rows()})

    @api.post("/gradio_api/upload")
    def upload() -> Response:
        return refused(404, "Nothing is kept under this address: traces are added on the Library page.")
