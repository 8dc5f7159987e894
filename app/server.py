"""Server: our routes, the page mounted behind them, and the guard around both."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import secrets
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse

from decodescope.app.http.guard import Guard
from decodescope.app.http.late import Late
from decodescope.app.routes import (
    cache as caching,
)
from decodescope.app.routes import (
    catalogue as methods,
)
from decodescope.app.routes import (
    compare as comparing,
)
from decodescope.app.routes import (
    debugger as debugging,
)
from decodescope.app.routes import files as knob_files
from decodescope.app.routes import (
    hardware as pricing,
)
from decodescope.app.routes import (
    library as files,
)
from decodescope.app.routes import (
    report as reports,
)
from decodescope.app.runs.channel import BATCH, stream
from decodescope.app.runs.play import GONE, Play
from decodescope.app.runs.recipe import smaller
from decodescope.engine.core.refusal import Refusal
from decodescope.lab.views.bundle import bundle

from .limits import Limits
from .places import traces
from .refusal import Refused

WEB = Path(__file__).resolve().parent.parent / "lab" / "web"
KINDS = {".js": "text/javascript", ".css": "text/css"}
# address below /ds/web/ -> kind; the folder `scope` is handed out as one script
FILES = {x.relative_to(WEB).as_posix(): KINDS[x.suffix] for x in WEB.rglob("*.*") if x.suffix in KINDS}
FILES = {name: kind for name, kind in FILES.items() if not name.startswith("scope/")} | {"scope.js": KINDS[".js"]}
NUMBER = re.compile(r"-?[0-9]{1,11}")
STREAMS = 200  # open event streams in all
PORT = 7860


class ServeError(Refusal):
    """The server cannot be started like this. One sentence."""


def app(play: Play, *, page: bool = True) -> FastAPI:
    """The application over `play`, without its guard. page=False leaves the mounted page out."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    api = FastAPI(title="DecodeScope", docs_url=None, redoc_url=None, openapi_url=None)
    fresh = {"cache-control": "no-cache"}
    open_streams = 0

    def refused(status: int, sentence: str) -> Response:
        return JSONResponse({"error": sentence}, status, headers={"cache-control": "no-store"})

    def answer(data: Any) -> Response:
        return JSONResponse(data, headers={"cache-control": "no-store"})

    @api.exception_handler(Refused)
    def unreadable(request: Request, error: Exception) -> Response:
        return refused(422, str(error))

    @api.exception_handler(Exception)
    def failed(request: Request, error: Exception) -> Response:
        what = f"Something went wrong inside ({type(error).__name__})"
        return refused(500, f"{what}: load the page again, and please report it if that does not help.")

    @api.get("/ds/web/{name:path}")
    def web(name: str) -> Response:
        if name not in FILES:
            return refused(404, "There is no such file.")
        if name == "scope.js":
            return Response(bundle(), media_type=FILES[name], headers=fresh)
        return FileResponse(WEB / name, media_type=FILES[name], headers=fresh)

    @api.get("/ds/state")
    def state() -> Response:
        return answer(play.state())

    @api.get("/ds/limits")
    def limits() -> Response:
        return answer({"limits": play.limits.rows()})

    @api.post("/gradio_api/upload")
    def upload() -> Response:
        return refused(404, "Nothing is kept under this address: traces are added on the Library page.")

    @api.get("/ds/run/{run}")
    def status(run: str) -> Response:
        channel = play.find(run)
        if channel is None:
            return refused(404, GONE)
        state = {**channel.state(), "ahead": play.ahead(channel)}
        if channel.end is not None and channel.end.reason == "out_of_memory" and channel.wire is not None:
            state |= {"smaller": smaller(channel.wire.header), "estimate": channel.estimate}
        return answer(state)

    @api.get("/ds/run/{run}/events")
    async def events(run: str, request: Request) -> Response:
        nonlocal open_streams
        channel = await asyncio.to_thread(play.find, run)
        if channel is None:
            return refused(404, GONE)
        after = request.headers.get("last-event-id") or request.query_params.get("after") or "-1"
        if not NUMBER.fullmatch(after):
            return refused(400, "The number of the last step is not a number.")
        if open_streams >= STREAMS:
            return refused(503, f"{open_streams} pages are watching, which is the limit; close one.")

        async def body() -> Any:
            nonlocal open_streams
            open_streams += 1
            try:
                async for part in stream(channel, max(-1, int(after)), play.ahead):
                    yield part
            finally:
                open_streams -= 1

        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(body(), media_type="text/event-stream", headers=headers)

    @api.get("/ds/run/{run}/range")
    async def steps(run: str, request: Request) -> Response:
        channel = await asyncio.to_thread(play.find, run)
        if channel is None:
            return refused(404, GONE)
        asked = [request.query_params.get(x, "") for x in ("from", "to")]
        if not all(NUMBER.fullmatch(x) and x[0] != "-" for x in asked):
            return refused(400, "Ask for steps as ?from=0&to=16, with whole numbers.")
        first, last = map(int, asked)
        if first > last:
            return refused(400, f"from = {first} lies behind to = {last}.")
        if first > channel.count:
            return refused(404, f"The run has {channel.count} steps; there is no step {first}.")
        body = await asyncio.to_thread(channel.range, first, min(last, first + BATCH))
        return Response(body, media_type="application/json", headers={"cache-control": "no-store"})

    debugging.add(api, play, refused)  # before what takes any other word behind a run

    @api.post("/ds/run/{run}/{action}")
    def act(run: str, action: str) -> Response:
        channel = play.find(run)
        if channel is None:
            return refused(404, GONE)
        if action not in ("stop", "pause", "resume", "step"):
            return refused(404, "A run can be stopped, paused, resumed and stepped.")
        if not play.act(channel, action):
            return refused(409, "The run is over.")
        return answer(channel.state())

    files.add(api, play, refused)
    knob_files.add(api, play, refused)
    pricing.add(api, play, refused)
    comparing.add(api, play, refused)
    methods.add(api, play, refused)
    caching.add(api, play, refused)
    reports.add(api, play, refused)

    @api.api_route("/ds/{rest:path}", methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
    def nothing(rest: str) -> Response:
        return refused(404, "There is nothing here.")

    if page:
        import gradio as gr

        from decodescope.app.page.head import Head
        from decodescope.app.page.layout import STYLES
        from decodescope.app.page.layout import page as layout
        from decodescope.app.page.theme import theme

        gr.mount_gradio_app(
            api,
            layout(play),
            path="/",
            server_name="127.0.0.1",
            footer_links=[],
            run_history=False,
            show_error=False,
            allowed_paths=[],
            max_file_size="64mb",
            ssr_mode=False,
            enable_monitoring=False,
            pwa=False,
            mcp_server=False,
            theme=theme(),
            head=STYLES,
        )
        api.add_middleware(Head)
    return api


def names_of(host: str, allow_host: str | None) -> list[str]:
    """The further hosts that are answered for; raises ServeError if `host` is open to others and none is named."""
    names = [x.strip() for x in (allow_host or "").split(",") if x.strip()]
    if not loopback(host) and not names:
        raise ServeError(
            f"--host {host} lets other machines in: say under which name with --allow-host NAME, or leave --host out."
        )
    return names


def loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int | None) -> socket.socket:
    """A listening socket; without a port the first free one from 7860 on. Raises ServeError if there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in range(PORT, PORT + 40) if port is None else [port]:
        listening = socket.socket(family, socket.SOCK_STREAM)
        if os.name != "nt":  # there it would let two servers share the port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host.strip("[]"), candidate))
            listening.listen(128)
            return listening
        except OSError as error:
            listening.close()
            why = error.strerror or str(error)
    raise ServeError(f"The address {host}:{candidate} cannot be opened ({why}): choose another with --port.")


def serve(
    model: str = "lab",
    draft: str | None = "lab-draft",
    host: str = "127.0.0.1",
    port: int | None = None,
    data: str | Path | None = None,
    open_browser: bool = True,
    allow_host: str | None = None,
    models: str | Path | None = None,
    limits: Limits | None = None,
    further: Mapping[str, str] | None = None,
) -> None:
    """Open the lab and serve it until it is interrupted. Raises ServeError for settings that cannot work."""
    names = names_of(host, allow_host)
    folder = None if models is None else Path(models).expanduser()
    if folder is not None and not folder.is_dir():
        raise ServeError(f"There is no folder {str(folder)[:200]}: give --models one that holds folders of models.")
    token = None if loopback(host) else secrets.token_urlsafe(24)
    listening = bind(host, port)
    number = listening.getsockname()[1]
    shown = names[0] if names and token else ("localhost" if host == "localhost" else host)
    shown = f"[{shown}]" if shown.count(":") > 1 and not shown.startswith("[") else shown
    address = f"http://{shown}" + ("" if token and ":" in shown.split("]")[-1] else f":{number}") + "/"
    if token:
        address += f"?token={token}"

    play = Play(model, draft, traces(data), folder, limits, further)

    def build() -> FastAPI:
        try:
            return app(play)
        except BaseException:
            server.should_exit = True
            raise
        finally:
            play.load()

    late = Late(build)
    guard = Guard(late, number, names, token, play.limits.upload << 20)
    config = uvicorn.Config(guard, log_level="warning", server_header=False, timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    threading.Thread(target=_announce, args=(server, address, open_browser), daemon=True).start()
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        play.close()
        listening.close()
    if late.trouble is not None:
        raise late.trouble


def _announce(server: Any, address: str, open_browser: bool) -> None:
    """Say where the page is as soon as it answers, and open it."""
    while not server.started:
        if server.should_exit:
            return
        time.sleep(0.02)
    print(f"DecodeScope is at {address}\nStop it with Ctrl+C.", file=sys.stdout, flush=True)
    if open_browser:
        webbrowser.open(address)
