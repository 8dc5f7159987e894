"""ASGI: the types of a connection, the headers of every answer, and short answers without a framework."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

# The page library makes functions from strings and writes inline styles: both must stay allowed. Nothing may be fetched from,
# sent to, or framed by another origin.
POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "media-src 'self' blob:",
        "worker-src 'self' blob:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'self'",
        "object-src 'none'",
        "frame-ancestors 'self'",
    )
)
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"content-security-policy", POLICY.encode()),
)
JSON = b"application/json"


def header_values(scope: Scope, name: bytes) -> list[str]:
    """All values of a header, as text."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


async def send_answer(
    scope: Scope, send: Send, status: int, body: bytes = b"", kind: bytes = JSON, more: Iterable[Header] = ()
) -> None:
    """Send one whole answer with the HEADERS, where `more` does not name them; HEAD gets no body."""
    further = list(more)
    named = {key for key, _ in further}
    headers = [
        (b"content-type", kind),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        *further,
        *(header for header in HEADERS if header[0] not in named),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def refuse(  # the three of a connection
    scope: Scope, receive: Receive, send: Send, status: int, sentence: str, more: Iterable[Header] = ()
) -> None:
    """Answer with a status and one sentence as JSON; a WebSocket is closed."""
    if scope["type"] == "websocket":
        await receive()  # its connect
        await send({"type": "websocket.close", "code": 1008, "reason": ""})
        return
    await send_answer(scope, send, status, json.dumps({"error": sentence}).encode(), more=more)
