"""Guard: which requests are allowed at all. A plain ASGI layer around everything, for HTTP and WebSocket alike.

A page on another site can send requests to a local port, or rebind its own name to this machine; so a request must name
this server (Host) and come from its own page (Origin). Every answer carries headers that keep the page's requests on
this machine.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from h11 import LocalProtocolError
from starlette.requests import ClientDisconnect

from decodescope.app.basis.limits import LabLimits

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
BODY = LabLimits().upload << 20  # bytes of one request
TOO_LARGE = "is larger than {} MiB, which is the limit: record a shorter run, or start the lab with a larger --upload."
COOKIE = "decodescope"
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


class Guard:
    """Checks Host, Origin, sign-in and size of a request, in that order, and adds the HEADERS to every answer.

    port:  of this server; a loopback name must come with it
    names: further hosts that may be asked for, `name` (any port) or `name:port`
    token: if given, a first visit must bring it (`/?token=...`) and gets a cookie for the ones after; it works once
    """

    def __init__(
        self, app: App, port: int, names: Iterable[str] = (), token: str | None = None, body: int = BODY
    ):
        self.app = app
        self.body = body
        self.token = token
        self.exact = {f"{name}:{port}" for name in LOOPBACK}
        if port == 80:
            self.exact |= set(LOOPBACK)
        self.any_port: set[str] = set()
        for name in names:
            (self.exact if urlsplit(f"//{name}").port else self.any_port).add(name.lower())
        self._session = secrets.token_urlsafe(32) if token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        send = _stop_after_close(send)
        refusal = self._refusal(scope)
        if refusal is not None:
            await _refuse(scope, receive, send, *refusal)
            return
        if self.token is not None and not self._is_signed_in(scope):
            await self._sign_in(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await self.app(scope, receive, send)
            return
        with contextlib.suppress(
            ClientDisconnect
        ):  # the client left in the middle of a body: nobody waits for an answer
            await self.app(scope, self._limit_body(receive), _with_headers(send))

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Status and sentence, if this request is refused."""
        hosts = _header_values(scope, b"host")
        if len(hosts) != 1 or not self._is_known_host(hosts[0]):
            return 403, (
                "This server answers only under its own names; start it with --allow-host NAME (or NAME:PORT) to add one."
            )
        origins = _header_values(scope, b"origin")
        reading = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if (
            len(origins) > 1
            or (not origins and not reading)
            or (origins and not _is_same_origin(origins[0], hosts[0]))
        ):
            return 403, "This request does not come from this server's own page, so it was not carried out."
        if scope["type"] == "http":
            length = _header_values(scope, b"content-length")
            if not length and _header_values(scope, b"transfer-encoding"):
                return 411, "A request with a body must say its length."
            if length and not (length[0].isascii() and length[0].isdigit() and len(length) == 1):
                return 400, "The length of the request is not a number."
            if length and (len(length[0]) > 15 or int(length[0]) > self.body):
                return 413, f"The request {TOO_LARGE.format(self.body >> 20)}"
        return None

    def _is_known_host(self, host: str) -> bool:
        host = host.lower()
        name = host[: host.rfind("]") + 1] if host.startswith("[") else host.partition(":")[0]
        rest = host[len(name) :]
        return host in self.exact or (name in self.any_port and (not rest or rest[1:].isdigit()))

    def _limit_body(self, receive: Receive) -> Receive:
        """The same messages; a body larger than the limit is cut off as if the client had left."""
        read = 0

        async def counted() -> MutableMapping[str, Any]:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            return message if read <= self.body else {"type": "http.disconnect"}

        return counted

    def _is_signed_in(self, scope: Scope) -> bool:
        assert self._session is not None
        for line in _header_values(scope, b"cookie"):
            try:
                morsel = SimpleCookie(line).get(COOKIE)
            except CookieError:
                continue
            if morsel is not None and hmac.compare_digest(morsel.value.encode(), self._session.encode()):
                return True
        return False

    async def _sign_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        right = bool(self.token) and hmac.compare_digest(given.encode(), (self.token or "").encode())
        if not right or scope["type"] != "http" or scope["method"] != "GET":
            await _refuse(
                scope, receive, send, 401, "Open the address that the server printed when it was started."
            )
            return
        self.token = ""  # used up
        cookie = f"{COOKIE}={self._session}; Path=/; HttpOnly; SameSite=Lax"
        headers = [(b"location", b"/"), (b"set-cookie", cookie.encode()), (b"content-length", b"0"), *HEADERS]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def _header_values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


def _is_same_origin(origin: str, host: str) -> bool:
    """Whether an Origin names this host; `null` names nobody."""
    scheme, _, rest = origin.partition("://")
    return scheme in ("http", "https") and rest.lower() == host.lower()


def _stop_after_close(send: Send) -> Send:
    """`send`, which sends nothing more after the server refused a body that is not HTTP, before we could answer."""
    answered = False

    async def sent(message: MutableMapping[str, Any]) -> None:
        nonlocal answered
        if answered:
            return
        try:
            await send(message)
        except LocalProtocolError as error:
            if "state=MUST_CLOSE" not in str(error):
                raise
            answered = True

    return sent


def _with_headers(send: Send) -> Send:
    async def sent(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            ours = {key for key, _ in HEADERS}
            others = [(k, v) for k, v in message.get("headers", ()) if k.lower() not in ours]
            message = {**message, "headers": [*others, *HEADERS]}
        await send(message)

    return sent


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, sentence: str) -> None:
    if scope["type"] == "websocket":
        await receive()  # its connect
        await send({"type": "websocket.close", "code": 1008, "reason": ""})
        return
    body = json.dumps({"error": sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
