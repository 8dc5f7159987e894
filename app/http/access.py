"""Access: who may come in. Everybody, who has the token, who has a name and a password, or whom a proxy names."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from .asgi import Header, Receive, Scope, Send, header_values, refuse, send_answer
from .attempts import AttemptLimiter
from .sessions import LIFE, Sessions
from .sign_in_page import refusal_page, sign_in_page, sign_out_page
from .users import UserFile, clean_name, is_right_password
from .visitor import Network, Visitor, find_visitor

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
COOKIE = "decodescope"
USER = "decodescope.user"  # of a scope: the name of who asks; None where nobody has a name
SIGNED_IN = "decodescope.signed_in"  # of a scope: whether there is something to sign out of
SIGN_IN, SIGN_OUT = "/ds/sign-in", "/ds/sign-out"
MOST_FORM = 8192  # bytes
AT_ONCE = 2  # passwords that are checked at once: each takes 16 MiB
HTML = b"text/html; charset=utf-8"
# a page with a form says where the form came from; "no-referrer" would make that "null"
FORM_POLICY = (b"referrer-policy", b"same-origin")
BLOCKED = "Too many wrong attempts from this address or for this name: wait a minute, then try again."
UNKNOWN = "You are not signed in: load the page again, and sign in there."
NO_NAME = "This lab is opened through its proxy, which says who you are; this request did not come with a name from it."


@dataclass(frozen=True)
class AccessSettings:
    """Who may come in, and how the lab is reached; without token, users and user_header everybody may.

    names:       further hosts that may be asked for, `name` (any port) or `name:port`
    root_path:   the path below which a proxy serves the lab, such as "/lab"; empty if none does
    token:       who brings it, as `/?token=...` or in the form, may come in until the server ends
    users:       names and passwords
    user_header: the header in which a named proxy says who asks
    proxies:     addresses of proxies whose X-Forwarded headers and user_header are believed
    secure:      visitors always come by https, so a cookie never travels without it
    """

    names: tuple[str, ...] = ()
    root_path: str = ""
    token: str | None = None
    users: UserFile | None = None
    user_header: str | None = None
    proxies: tuple[Network, ...] = ()
    secure: bool = False


class Access:
    """Signs visitors in and out, and says who asks. port: of this server"""

    def __init__(self, port: int, settings: AccessSettings):
        self.port, self.settings = port, settings
        self.limiter = AttemptLimiter()
        self.sessions = Sessions(self._secret_of)
        self._checking = asyncio.Semaphore(AT_ONCE)

    async def admit(self, scope: Scope, receive: Receive, send: Send) -> Scope | None:
        """The scope with the name of who asks; None if the request was answered here."""
        settings = self.settings
        visitor = find_visitor(scope, settings.proxies)
        name: str | None = None
        if visitor.https or settings.secure:
            scope = {**scope, "scheme": "wss" if scope["type"] == "websocket" else "https"}
        if settings.user_header is not None:
            name = self._name_by_proxy(scope, visitor)
            if name is None:
                await self._turn_away(scope, receive, send)
                return None
            return {**scope, USER: name, SIGNED_IN: False}
        if settings.users is None and settings.token is None:
            return {**scope, USER: None, SIGNED_IN: False}
        name = self._signed_in(scope)
        if scope["type"] == "http" and await self._answer_itself(scope, receive, send, visitor, name):
            return None
        if name is None:
            await self._turn_away(scope, receive, send)
            return None
        return {**scope, USER: name or None, SIGNED_IN: True}

    def _secret_of(self, name: str) -> str | None:
        users = self.settings.users
        if users is not None:
            return users.hash_of(name)
        return self.settings.token if name == "" else None

    def _name_by_proxy(self, scope: Scope, visitor: Visitor) -> str | None:
        given = header_values(scope, (self.settings.user_header or "").lower().encode())
        if not visitor.named_proxy or len(given) != 1:
            return None
        name = given[0].encode("latin-1").decode("utf-8", "replace").strip()
        return name if 0 < len(name) <= 128 and name.isprintable() else None

    def _signed_in(self, scope: Scope) -> str | None:
        """The name in this request's cookie; "" is who has the token, None nobody."""
        names = (self.sessions.name_in(value) for value in self._cookies(scope))
        return next((name for name in names if name is not None), None)

    def _cookies(self, scope: Scope) -> list[str]:
        name = self._cookie_name(scope)
        return [value for line in header_values(scope, b"cookie") for value in cookie_values(line, name)]

    def _cookie_name(self, scope: Scope) -> str:
        """A cookie belongs to a host with all its ports, so its name says which lab it is of: the port of this server, and the
        one that was asked for where that is another."""
        asked = _asked_port(scope)
        return f"{COOKIE}-{self.port}" + ("" if asked in (None, self.port) else f"-{asked}")

    async def _answer_itself(
        self, scope: Scope, receive: Receive, send: Send, visitor: Visitor, name: str | None
    ) -> bool:
        """Answer what is about signing in and out; whether it was that."""
        path, method = scope["path"], scope["method"]
        if path == "/" and method in ("GET", "HEAD") and self.settings.users is None:
            given = _form(scope.get("query_string", b"")).get("token", "")
            if not given:
                return False
            if name is not None or method == "HEAD":
                await self._redirect(scope, send, "./")  # without the token in the address
            else:
                await self._try_token(scope, send, visitor, given)
            return True
        if path == SIGN_IN and method in ("GET", "POST"):
            if method == "POST":
                await self._try_form(scope, send, visitor, await _read_form(receive))
            elif name is not None:
                await self._redirect(scope, send, "../")
            else:
                await self._show_form(scope, send, 200)
            return True
        if path == SIGN_OUT and method in ("GET", "POST"):
            if name is None:
                await self._redirect(scope, send, "../")
            elif method == "GET":
                await send_answer(scope, send, 200, sign_out_page(name), HTML, [FORM_POLICY])
            else:
                for value in self._cookies(scope):
                    self.sessions.end(value)
                await self._redirect(scope, send, "../", self._cookie(scope, visitor, "", 0))
            return True
        return False

    async def _try_form(self, scope: Scope, send: Send, visitor: Visitor, form: dict[str, str]) -> None:
        users = self.settings.users
        if users is None:
            await self._try_token(scope, send, visitor, form.get("token", "").strip())
            return
        name = clean_name(form.get("name", ""))
        keys = (f"address {visitor.key}", *([] if name is None else [f"name {name}"]))
        if not self.limiter.begin(*keys):
            await self._show_form(scope, send, 429, BLOCKED)
            return
        async with self._checking:
            stored = None if name is None else users.hash_of(name)
            right = await asyncio.to_thread(is_right_password, form.get("password", ""), stored)
        if name is None or not right:
            await self._show_form(scope, send, 401, "Name or password is not right.")
            return
        self.limiter.forgive(*keys)
        await self._let_in(scope, send, visitor, name)

    async def _try_token(self, scope: Scope, send: Send, visitor: Visitor, given: str) -> None:
        key = f"address {visitor.key}"
        if not self.limiter.begin(key):
            await self._show_form(scope, send, 429, BLOCKED)
        elif not hmac.compare_digest(_digest(given), _digest(self.settings.token or "")):
            await self._show_form(
                scope, send, 401, "This token is not right: a new one is printed at each start."
            )
        else:
            self.limiter.forgive(key)
            await self._let_in(scope, send, visitor, "")

    async def _let_in(self, scope: Scope, send: Send, visitor: Visitor, name: str) -> None:
        cookie = self._cookie(scope, visitor, self.sessions.issue(name), LIFE)
        await self._redirect(scope, send, "./" if scope["path"] == "/" else "../", cookie)

    def _cookie(self, scope: Scope, visitor: Visitor, value: str, seconds: int) -> Header:
        # Where nobody stands between, the lab is not below its prefix.
        direct = _host(scope) in {f"{name}:{self.port}" for name in LOOPBACK}
        path = "/" if direct else f"{self.settings.root_path}/"
        secure = "; Secure" if self.settings.secure or visitor.https else ""
        said = f"{self._cookie_name(scope)}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"
        return b"set-cookie", said.encode()

    async def _redirect(self, scope: Scope, send: Send, to: str, *more: Header) -> None:
        """Send the browser elsewhere; the address is relative, so that it holds below any prefix."""
        await send_answer(scope, send, 303, b"", HTML, [(b"location", to.encode()), *more])

    async def _show_form(self, scope: Scope, send: Send, status: int, wrong: str = "") -> None:
        action = "sign-in" if scope["path"] == SIGN_IN else "ds/sign-in"
        page = sign_in_page(action, self.settings.users is not None, wrong)
        wait = [(b"retry-after", b"60")] if status == 429 else []
        await send_answer(scope, send, status, page, HTML, [FORM_POLICY, *wait])

    async def _turn_away(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer who has not signed in: a browser that opens the page gets a page, all others a sentence."""
        proxied = self.settings.user_header is not None
        opens = scope["type"] == "http" and scope["path"] == "/" and scope["method"] in ("GET", "HEAD")
        if not opens or not any("text/html" in x for x in header_values(scope, b"accept")):
            await refuse(scope, receive, send, 401, NO_NAME if proxied else UNKNOWN)
        elif proxied:
            await send_answer(scope, send, 401, refusal_page(NO_NAME), HTML)
        else:
            await self._show_form(scope, send, 401)


def cookie_values(line: str, name: str) -> list[str]:
    """The values of a cookie in a Cookie header. Cookies of others may look like anything; they are skipped."""
    parts = (part.strip().partition("=") for part in line.split(";"))
    return [value.strip().strip('"') for key, sign, value in parts if sign and key.strip() == name]


def _host(scope: Scope) -> str:
    return "".join(header_values(scope, b"host")[:1]).lower()


def _asked_port(scope: Scope) -> int | None:
    """The port in the Host header; None if it names none, or none that can be."""
    try:
        return urlsplit(f"//{_host(scope)}").port
    except ValueError:
        return None


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


def _form(content: bytes) -> dict[str, str]:
    try:
        fields = parse_qs(content.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=16)
    except ValueError:
        return {}
    return {name: values[0] for name, values in fields.items()}


async def _read_form(receive: Receive) -> dict[str, str]:
    """The fields of a form; none if it is larger than MOST_FORM."""
    body = bytearray()
    while len(body) <= MOST_FORM:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            return _form(bytes(body)) if len(body) <= MOST_FORM else {}
    return {}
