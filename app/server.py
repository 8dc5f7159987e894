"""Server: our routes, the page mounted behind them, and the guard around both."""

from __future__ import annotations

import gc
import os
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
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response

from decodescope.app.basis.limits import LabLimits
from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.basis.storage import ensure_writable, traces_folder
from decodescope.app.http.access_options import (
    AccessOptions,
    ServeError,
    access_settings,
    is_loopback,
    page_addresses,
)
from decodescope.app.http.guard import Guard
from decodescope.app.http.json_answer import JsonAnswer
from decodescope.app.http.page_routes import PageRoutes
from decodescope.app.http.quiet_log import limit_log, log_failure
from decodescope.app.http.startup import StartupApp
from decodescope.app.page.gradio_import import report_failures, skip_unused_imports
from decodescope.app.routes import batch as batches
from decodescope.app.routes import cache as caching
from decodescope.app.routes import calibrations, events, examinations, runs, sets, trainings, web
from decodescope.app.routes import catalogue as methods
from decodescope.app.routes import compare as comparing
from decodescope.app.routes import debugger as debugging
from decodescope.app.routes import files as knob_files
from decodescope.app.routes import hardware as pricing
from decodescope.app.routes import library as files
from decodescope.app.routes import models as model_routes
from decodescope.app.routes import recipe as recipes
from decodescope.app.routes import report as reports
from decodescope.app.runs.placed_key import USUAL, Placement, check_placement
from decodescope.app.runs.run_service import RunService
from decodescope.engine.core.paths import expand_path
from decodescope.engine.model.fetched.catalogue import find_fetchable
from decodescope.engine.sandbox.helper import end_helpers

PORT = 7860
# The page library's own statistics: none are sent, and no table of all events is built again after each event.
UNCOUNTED = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "GRADIO_ANALYTICS_MAX_EVENTS": "1",
    "GRADIO_ANALYTICS_CACHE_FREQUENCY": str(1 << 62),
}


def build_app(play: RunService, *, page: bool = True) -> FastAPI:
    """The application over `play`, without its guard. page=False leaves out the mounted page."""
    os.environ.update(UNCOUNTED)
    api = FastAPI(title="DecodeScope", docs_url=None, redoc_url=None, openapi_url=None)
    _add_error_handlers(api)
    web.add(api, play, refusal_response)
    for route in (debugging, recipes):  # before the routes that take any other word after a run
        route.add(api, play, refusal_response)
    for route in (
        events,
        runs,
        files,
        knob_files,
        pricing,
        sets,
        comparing,
        methods,
        caching,
        reports,
        examinations,
        batches,
        model_routes,
    ):
        route.add(api, play, refusal_response)

    calibrations.add(api, refusal_response)
    trainings.add(api, play)

    @api.api_route("/ds/{rest:path}", methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
    def nothing(rest: str) -> Response:
        return refusal_response(404, "There is nothing here.")

    if page:
        _mount_page(api, play)
    return api


def refusal_response(status: int, sentence: str, offer: str = "") -> Response:
    """A refusal as an answer. offer: the name of a model that would help and can be fetched"""
    said = {"error": sentence} | ({"offer": offer} if offer else {})
    return JsonAnswer(said, status, headers={"cache-control": "no-store"})


def _add_error_handlers(api: FastAPI) -> None:
    """Report every error in one sentence."""

    @api.exception_handler(RequestRefusal)
    def unreadable(request: Request, error: RequestRefusal) -> Response:
        return refusal_response(error.status, str(error), error.offer)

    api.add_exception_handler(Exception, _answer_failure)


def _answer_failure(request: Request, error: Exception) -> Response:
    what = f"Something went wrong inside ({type(error).__name__})"
    return refusal_response(500, f"{what}: load the page again, and please report it if that does not help.")


def _answer_misfit(request: Request, error: Exception) -> Response:
    """The page library fails with such errors on a request that its page does not send."""
    if not isinstance(error, RequestValidationError):
        log_failure(error)
    return refusal_response(
        422, "The request does not have the form that the page sends: load the page again."
    )


def _mount_page(api: FastAPI, play: RunService) -> None:
    """Mount the page after the routes."""
    with skip_unused_imports():
        import gradio as gr

        from decodescope.app.page.head import HeadMiddleware
        from decodescope.app.page.layout import STYLES
        from decodescope.app.page.layout import build_page as layout
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
    mounted: Any = api.routes[-1]
    mounted.app.add_exception_handler(Exception, _answer_failure)
    for misfit in (RequestValidationError, LookupError, ValueError, TypeError, OSError):
        mounted.app.add_exception_handler(misfit, _answer_misfit)
    report_failures(log_failure)
    api.add_middleware(HeadMiddleware)
    api.add_middleware(PageRoutes)


def bind(host: str, port: int | None) -> socket.socket:
    """A listening socket; without a port the first free one from 7860 on. Raises ServeError if there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in range(PORT, PORT + 40) if port is None else [port]:
        listening = socket.socket(family, socket.SOCK_STREAM)
        if os.name != "nt":  # on Windows it would let two servers share the port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host.strip("[]"), candidate))
            listening.listen(128)
            return listening
        except OSError as error:
            listening.close()
            why = error.strerror or str(error)
    raise ServeError(f"The address {host}:{candidate} cannot be opened ({why}): choose another with --port.")


def serve(  # noqa: PLR0913, PLR0915
    model: str = "lab",
    draft: str | None = "lab-draft",
    host: str = "127.0.0.1",
    port: int | None = None,
    data: str | Path | None = None,
    open_browser: bool = True,
    access: AccessOptions = AccessOptions(),  # noqa: B008 # it is frozen
    models: str | Path | None = None,
    limits: LabLimits | None = None,
    further: Mapping[str, str] | None = None,
    threads: int | None = None,
    place: Placement = USUAL,
    allow_get: bool = False,
) -> None:
    """Open the lab and serve it until it is interrupted. Raises a Refusal for settings that cannot work.
    threads: of a pass; None: chosen by timing, and watched;  place: type and device of the models, if nobody chooses others
    access: who may come in;  allow_get: visitors may fetch models, also from other machines"""
    settings = access_settings(host, access)
    if place.device:
        from decodescope.engine.model.layers.devices import device_named

        device_named(place.device)  # refuses one that is not here, as each command does
        place = check_placement(place)
    folder = None if models is None else expand_path(models)
    if folder is not None and not folder.is_dir():
        raise ServeError(
            f"There is no folder {str(folder)[:200]}: give --models one that holds folders of models."
        )
    kept = ensure_writable(traces_folder(data))
    listening = bind(host, port)
    number = listening.getsockname()[1]
    addresses = page_addresses(host, number, settings)

    play = RunService(model, draft, kept, folder, limits, further)
    play.models.choose_threads(threads)
    play.models.choose_placement(place)
    play.downloads.allowed = allow_get or is_loopback(host)

    def build() -> FastAPI:
        try:
            return build_app(play)
        except BaseException:
            server.should_exit = True
            raise
        finally:
            gc.freeze()  # modules, routes and the page stay: later collections need not look through them
            gc.enable()
            if (
                find_fetchable(model) is None
            ):  # a model of that size is loaded by the first run, not by opening a page
                play.models.load()

    late = StartupApp(build, end_helpers)
    guard = Guard(late, number, settings, play.limits.upload << 20)
    config = uvicorn.Config(  # what a proxy says is read by the guard, which knows the named ones
        guard,
        http="h11",
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
    limit_log()
    server = uvicorn.Server(config)
    threading.Thread(target=_announce, args=(server, addresses, open_browser), daemon=True).start()
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        play.close()
        listening.close()
    if late.trouble is not None:
        raise late.trouble


def _announce(server: Any, addresses: list[str], open_browser: bool) -> None:
    """Print the page's addresses as soon as it answers, and open the last one, which is this machine's own."""
    while not server.started:
        if server.should_exit:
            return
        time.sleep(0.02)
    here = "".join(f"On this machine it is at {x}\n" for x in addresses[1:])
    print(f"DecodeScope is at {addresses[0]}\n{here}Stop it with Ctrl+C.", file=sys.stdout, flush=True)
    if open_browser:
        webbrowser.open(addresses[-1])
