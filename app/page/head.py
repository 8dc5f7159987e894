"""Head: the part of the page that draws the picture before the page library has started."""

from __future__ import annotations

import hashlib
from typing import Any

from decodescope.app.http.access import SIGNED_IN
from decodescope.app.http.asgi import App, Receive, Scope, Send
from decodescope.lab.views.bundle import WEB

# The mark of the scripts that the tabs of a browser share. It is in the address of their worker, so a page of a new version
# starts a worker of its own.
SHARED = ("events/worker.js", "events/hub.js", "events/connection.js")
MARK = hashlib.sha256(b"".join((WEB / name).read_bytes() for name in SHARED)).hexdigest()[:16]
HEAD = b"""
<meta name="decodescope-events" content="%s">
<link rel="stylesheet" href="ds/web/styles/scope.css">
<link rel="stylesheet" href="ds/web/styles/page.css">
<link rel="stylesheet" href="ds/web/styles/walk.css">
<link rel="modulepreload" href="ds/web/scope.js">
<link rel="modulepreload" href="ds/web/shared/address.js">
<link rel="modulepreload" href="ds/web/events/follow.js">
<link rel="modulepreload" href="ds/web/runs/runs.js">
<link rel="modulepreload" href="ds/web/tabs.js">
<link rel="modulepreload" href="ds/web/tour/tour.js">
<link rel="modulepreload" href="ds/web/tour/walk.js">
<link rel="modulepreload" href="ds/web/runs/landing.js">
<link rel="modulepreload" href="ds/web/export/save.js">
<script>
%s</script>
""" % (MARK.encode(), (WEB / "boot.js").read_bytes())
# The page library makes the address of everything it asks for from that of one request, as the server sees it. Behind a proxy
# this may be another host, scheme or path than the browser's; the page itself knows where it is.
CONFIGURED = b"<script data-gradio-mode>"
WHERE = b"""<script>gradio_config.root = new URL(".", location.href).href.slice(0, -1);</script>"""
ROOT, OWN_ROOT = b"const root = ", b"const root = gradio_config.root || "
ABSOLUTE = b"""<link rel="manifest" href="/manifest.json" />"""  # of no use here, and wrong below a prefix
LEAVE = b"""<meta name="ds-signed-in">"""  # the page then has a way to sign out


class HeadMiddleware:
    """Puts HEAD at the beginning of the page's head, because the page library adds its own only once it runs, and tells the
    library where the page is.
    The browser does not cache the page: an old one, shown while a new server starts, would request parts that do not come."""

    def __init__(self, app: App):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection; all but the page itself pass through."""
        if scope["type"] != "http" or scope["path"] != "/" or scope["method"] != "GET":
            await self.app(scope, receive, send)
            return
        plain = [(key, value) for key, value in scope["headers"] if key.lower() != b"accept-encoding"]
        start: dict[str, Any] = {}
        parts: list[bytes] = []

        async def kept(message: Any) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            elif message["type"] == "http.response.body":
                parts.append(message.get("body", b""))
                if not message.get("more_body"):
                    body = b"".join(parts)
                    if start["status"] == 200:
                        more = HEAD + (LEAVE if scope.get(SIGNED_IN) else b"")
                        body = body.replace(b"<head>", b"<head>" + more, 1).replace(ABSOLUTE, b"", 1)
                        body = body.replace(CONFIGURED, WHERE + CONFIGURED, 1).replace(ROOT, OWN_ROOT, 1)
                    others = [
                        (k, v)
                        for k, v in start["headers"]
                        if k.lower() not in (b"content-length", b"cache-control")
                    ]
                    own = [(b"content-length", b"%d" % len(body)), (b"cache-control", b"no-store")]
                    await send({**start, "headers": [*others, *own]})
                    await send({"type": "http.response.body", "body": body})

        await self.app({**scope, "headers": plain}, receive, kept)
