"""Guard: which requests are allowed at all. A plain ASGI layer around everything, for HTTP and WebSocket alike.

A page on another site can send requests to a local port, or rebind its own name to this machine; so a request must name
this server (Host) and come from its own page (Origin, Sec-Fetch-Site). Every answer carries headers that keep the page's
requests on this machine. access.py says who may come in.
"""

from __future__ import annotations

import contextlib
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import urlsplit

from h11 import LocalProtocolError
from starlette.requests import ClientDisconnect

from decodescope.app.basis.limits import LabLimits

from .access import LOOPBACK, Access, AccessSettings
from .asgi import HEADERS, App, Receive, Scope, Send, header_values, refuse, send_answer

BODY = LabLimits().upload << 20  # bytes of one request
LONGEST_PATH = 4096  # characters
TOO_LARGE = "is larger than {} MiB, which is the limit: record a shorter run, or start the lab with a larger --upload."
NAMELESS = (
    "This server answers only under its own names; start it with --allow-host NAME (or NAME:PORT) to add one."
)
FOREIGN = "This request does not come from this server's own page, so it was not carried out."


class Guard:
    """Checks Host, Origin, size and sign-in of a request, in that order, and adds the HEADERS to every answer.

    port:   of this server
    access: who may come in, and under which names
    """

    def __init__(self, app: App, port: int, access: AccessSettings | None = None, body: int = BODY):
        settings = access or AccessSettings()
        self.app = app
        self.body = body
        self.access = Access(port, settings)
        self.prefix = settings.root_path
        self.exact: set[str] = set()
        # Also with the port of a tunnel, which is another than ours. No page of another site has a loopback name, and one that
        # another program serves here has another port than the one it asks.
        self.any_port = set(LOOPBACK)
        for name in settings.names:
            (self.exact if urlsplit(f"//{name}").port else self.any_port).add(name.lower())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        send = _stop_after_close(send)
        if self.prefix and scope["type"] == "http" and scope["path"] == self.prefix:
            await send_answer(scope, send, 307, more=[(b"location", f"{self.prefix}/".encode())])
            return
        scope = self._below_prefix(scope)
        refusal = self._refusal(scope)
        if refusal is not None:
            await refuse(scope, receive, send, *refusal)
            return
        admitted = await self.access.admit(scope, receive, send)
        if admitted is None:
            return
        # The page library would believe these of anybody.
        plain = [(k, v) for k, v in admitted["headers"] if not k.lower().startswith(b"x-forwarded-")]
        admitted = {**admitted, "headers": plain}
        if scope["type"] == "websocket":
            await self.app(admitted, receive, send)
            return
        with contextlib.suppress(
            ClientDisconnect
        ):  # the client left in the middle of a body: nobody waits for an answer
            await self.app(admitted, self._limit_body(receive), _with_headers(send))

    def _below_prefix(self, scope: Scope) -> Scope:
        """The scope without the prefix, where a proxy leaves it in the path."""
        if not self.prefix or not scope["path"].startswith(f"{self.prefix}/"):
            return scope
        prefix, raw = self.prefix.encode(), scope.get("raw_path") or b""
        raw = raw[len(prefix) :] if raw.startswith(prefix) else raw
        return {**scope, "path": scope["path"][len(self.prefix) :], "raw_path": raw}

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Status and sentence, if this request is refused."""
        hosts = header_values(scope, b"host")
        if len(hosts) != 1 or not self._is_known_host(hosts[0]):
            return 403, NAMELESS
        if not self._comes_from_own_page(scope, hosts[0]):
            return 403, FOREIGN
        if len(scope["path"]) > LONGEST_PATH or "\0" in scope["path"]:
            return 404, "There is nothing here."
        if scope["type"] == "http":
            length = header_values(scope, b"content-length")
            if not length and header_values(scope, b"transfer-encoding"):
                return 411, "A request with a body must say its length."
            if length and not (length[0].isascii() and length[0].isdigit() and len(length) == 1):
                return 400, "The length of the request is not a number."
            if length and (len(length[0]) > 15 or int(length[0]) > self.body):
                return 413, f"The request {TOO_LARGE.format(self.body >> 20)}"
        return None

    def _comes_from_own_page(self, scope: Scope, host: str) -> bool:
        """Whether no page of another origin has sent this request, by what a browser says of it and no page can change."""
        origins = header_values(scope, b"origin")
        sites = header_values(scope, b"sec-fetch-site")
        same = sites == ["same-origin"]
        reading = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if sites and not same and sites != ["none"] and not _opens_page(scope):
            return False
        if not origins:
            return reading or same  # a proxy may have taken it out
        return len(origins) == 1 and (
            _is_same_origin(origins[0], host)
            # a proxy that does not pass the Host on: the browser says that page and address have the same origin
            or (same and self._is_known_host(origins[0].partition("://")[2]))
        )

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


def _opens_page(scope: Scope) -> bool:
    """Whether somebody opens the page itself, in a window of its own; a link elsewhere may lead here."""
    said = [header_values(scope, name) for name in (b"sec-fetch-mode", b"sec-fetch-dest")]
    plain = scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == "/"
    return plain and said == [["navigate"], ["document"]]


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
