"""Startup: an application that answers at once, while the real one is still being built in the background."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from .asgi import Receive, Scope, Send

WAITING = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>DecodeScope</title><link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark; }
body { margin: 24px; font: 15px/1.5 -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif; }
</style></head><body><p>DecodeScope is starting.</p><script>
const asks = () => fetch("ds/started", { cache: "no-store" }).then((answer) => answer.status === 200, () => false);
const again = () => asks().then((there) => (there ? location.reload() : setTimeout(again, 1000)));
again();
</script></body></html>
"""  # a <meta> refresh would keep an address with a # unchanged
STARTED = "/ds/started"  # is answered as soon as the application is there: 200, or 202 where it is not
PATIENCE = 20.0  # seconds


class StartupApp:
    """Builds an application in a thread as soon as the server runs; until then a page that waits for it.

    close: called when the server ends, so that no thread has to wait for long work
    """

    def __init__(self, build: Callable[[], Any], close: Callable[[], None] = lambda: None):
        self.build = build
        self.close = close
        self.app: Any = None
        self.trouble: BaseException | None = None
        self._context: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, or the server's start and end."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["path"] == STARTED and scope["type"] == "http":
            await self._answer_started(send)
        elif self.app is not None:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1013, "reason": ""})
        else:
            page = scope["path"] == "/"
            body = (
                WAITING
                if page
                else json.dumps({"error": "The server is starting; ask again in a moment."}).encode()
            )
            kind = b"text/html; charset=utf-8" if page else b"application/json"
            headers = [
                (b"content-type", kind),
                (b"cache-control", b"no-store"),
                (b"content-length", b"%d" % len(body)),
            ]
            await send({"type": "http.response.start", "status": 200 if page else 503, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    async def _answer_started(self, send: Send) -> None:
        until = asyncio.get_running_loop().time() + PATIENCE
        while self.app is None and self.trouble is None and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.1)
        headers = [(b"cache-control", b"no-store"), (b"content-length", b"0")]
        status = 202 if self.app is None else 200
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        building = asyncio.create_task(self._build())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        building.cancel()
        self.close()
        if self._context is not None:
            await self._context.__aexit__(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})

    async def _build(self) -> None:
        try:
            app = await asyncio.to_thread(self.build)
            context = app.router.lifespan_context(app)
            await context.__aenter__()
        except Exception as error:
            self.trouble = error
            raise
        self._context, self.app = context, app
