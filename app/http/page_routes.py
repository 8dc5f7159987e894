"""Page routes: which addresses of the page library are answered. The page needs a few of its sixty."""

from __future__ import annotations

from .asgi import App, Receive, Scope, Send, refuse

# what the page asks the library for; a folder ends in /
NEEDED = (
    *("/", "/config", "/theme.css", "/favicon.ico", "/robots.txt", "/assets/", "/static/"),
    *("/gradio_api/queue/join", "/gradio_api/queue/data", "/gradio_api/cancel", "/gradio_api/reset"),
    *("/gradio_api/heartbeat/", "/gradio_api/startup-events", "/gradio_api/app_id", "/gradio_api/info"),
)
OURS = ("/ds/", "/gradio_api/upload")  # answered by routes of ours, before the library
LONGEST = 200  # characters of an address
PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-")


class PageRoutes:
    """Passes on what the page needs, and answers 404 to the rest: files, uploads, proxies and streams of the library."""

    def __init__(self, app: App):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection."""
        if scope["type"] not in ("http", "websocket") or scope["path"].startswith(OURS):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket" or not _is_needed(scope["path"]):
            await refuse(scope, receive, send, 404, "There is nothing here.")
        else:
            # the query of a page would be read as the name of another page, or of a stored one
            kept = b"" if scope["path"] in ("/", "/config") else scope.get("query_string", b"")
            await self.app({**scope, "query_string": kept}, receive, send)


def _is_needed(path: str) -> bool:
    if len(path) > LONGEST or not PLAIN.issuperset(path) or ".." in path:
        return False
    return path in NEEDED or any(x.endswith("/") and x != "/" and path.startswith(x) for x in NEEDED)
