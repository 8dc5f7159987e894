"""Access: who may come in, by a token, by a name and a password, or by the name that a proxy gives."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from toylab import HERE, PORT

from decodescope.app.http import access as access_room
from decodescope.app.http.access import SIGNED_IN, USER, AccessSettings, cookie_values
from decodescope.app.http.access_options import AccessOptions, ServeError, access_settings, page_addresses
from decodescope.app.http.attempts import KEYS, MOST, SPAN, AttemptLimiter
from decodescope.app.http.guard import Guard
from decodescope.app.http.sessions import LIFE, Sessions
from decodescope.app.http.users import UserFile, UserFileError, add_user, is_right_password, read_users
from decodescope.app.http.visitor import find_visitor

TOKEN = "a-token-of-this-server"
RIGHT = f"/?token={TOKEN}"
PASSWORD = "correct horse"
# a page, its data, its files, and the library's: what a guard of some routes would forget
ROUTES = (
    "/ds/state",
    "/ds/run/x/events",
    "/ds/web/page.js",
    "/config",
    "/gradio_api/queue/data",
    "/assets/x.js",
)


class Answering:
    """An application that answers with the name of who asks, for any route."""

    def __init__(self) -> None:
        self.scopes: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.close"})
            return
        body = str(scope[USER]).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


def guarded(**settings: Any) -> Guard:
    return Guard(Answering(), PORT, AccessSettings(**settings))


def visitor(guard: Guard, address: str = "203.0.113.7", base: str = HERE, **more: Any) -> TestClient:
    """A browser at this address, whose requests come from the lab's own page."""
    headers = {"origin": base, "accept": "text/html,*/*"}
    return TestClient(
        guard, base_url=base, client=(address, 5000), headers=headers, follow_redirects=False, **more
    )


@pytest.fixture
def users(tmp_path: Path) -> UserFile:
    """A file with two names."""
    path = tmp_path / "users"
    for name in ("ann", "Björn"):
        add_user(path, name, f"{PASSWORD} {name}")
    return UserFile(path)


def sign_in(client: TestClient, name: str, password: str | None = None) -> Any:
    form = {"name": name, "password": f"{PASSWORD} {name}" if password is None else password}
    return client.post("/ds/sign-in", data=form)


# ---- the token


def test_a_token_lets_every_device_in_and_leaves_the_address() -> None:
    guard = guarded(token=TOKEN)
    for address in ("203.0.113.7", "203.0.113.8"):
        client = visitor(guard, address)
        assert client.get("/ds/state").status_code == 401
        answer = client.get(RIGHT)
        cookie = answer.headers["set-cookie"]
        assert answer.status_code == 303 and answer.headers["location"] == "./"
        assert all(x in cookie for x in ("HttpOnly", "SameSite=Lax", "Path=/;", f"Max-Age={12 * 3600}"))
        assert TOKEN not in cookie and "Secure" not in cookie
        assert client.get("/ds/state").text == "None", "nobody has a name"
        again = client.get(RIGHT)
        assert again.status_code == 303 and "set-cookie" not in again.headers


def test_previews_use_nothing_up() -> None:
    guard = guarded(token=TOKEN)
    for _ in range(20):
        assert visitor(guard).head(RIGHT).status_code == 303
        assert "set-cookie" not in visitor(guard).head(RIGHT).headers
        assert visitor(guard).get(RIGHT).status_code == 303
    client = visitor(guard)
    client.get(RIGHT)
    assert client.get("/").status_code == 200


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
def test_no_route_answers_who_has_not_signed_in(users: UserFile, method: str, route: str) -> None:
    for settings in (
        {"token": TOKEN},
        {"users": users},
        {"user_header": "X-Remote-User", "proxies": (ipaddress.ip_network("10.0.0.1"),)},
    ):
        guard = guarded(**settings)
        answer = visitor(guard).request(method, route, headers={"X-Remote-User": "ann"})
        assert answer.status_code == 401 and not guard.app.scopes
        assert method == "HEAD" or answer.json()["error"].endswith(".")


def test_no_websocket_is_opened_by_who_has_not_signed_in(users: UserFile) -> None:
    from starlette.websockets import WebSocketDisconnect

    for settings in ({"token": TOKEN}, {"users": users}):
        guard = guarded(**settings)
        with (
            pytest.raises(WebSocketDisconnect),
            visitor(guard).websocket_connect("/x", headers={"host": HERE[7:]}),
        ):
            pass
        assert not guard.app.scopes
    client = visitor(guarded(token=TOKEN))
    cookie = client.get(RIGHT).headers["set-cookie"].partition(";")[0]
    with client.websocket_connect("/x", headers={"host": HERE[7:], "cookie": cookie}):
        pass


def test_a_wrong_token_is_refused_five_times_a_minute_for_each_address() -> None:
    now = [100.0]
    guard = guarded(token=TOKEN)
    guard.access.limiter = AttemptLimiter(lambda: now[0])
    client = visitor(guard)
    assert [client.get("/?token=wrong").status_code for _ in range(MOST)] == [401] * MOST
    last = client.get(RIGHT)
    assert last.status_code == 429 and last.headers["retry-after"] == "60", (
        "also the right one, else it could be guessed"
    )
    assert client.post("/ds/sign-in", data={"token": TOKEN}).status_code == 429
    assert visitor(guard, "203.0.113.8").get(RIGHT).status_code == 303
    now[0] += SPAN
    assert client.get(RIGHT).status_code == 303


def test_the_token_can_be_typed() -> None:
    client = visitor(guarded(token=TOKEN))
    page = client.get("/")
    assert page.status_code == 401 and 'name="token"' in page.text and "<script" not in page.text
    assert client.get("/?token=").status_code == 401
    assert client.post("/ds/sign-in", data={"token": f" {TOKEN} "}).headers["location"] == "../"
    assert client.get("/").status_code == 200


def test_a_session_ends_after_twelve_hours() -> None:
    now = [1000.0]
    sessions = Sessions(lambda name: "secret", lambda: now[0])
    value = sessions.issue("ann")
    now[0] += LIFE - 1
    assert sessions.name_in(value) == "ann"
    now[0] += 1
    assert sessions.name_in(value) is None


def test_no_changed_cookie_holds() -> None:
    sessions = Sessions({"ann": "1", "": "2"}.get)
    value = sessions.issue("ann")
    until, name, nonce, signature = value.split(".")
    changed = [
        ".".join((str(int(until) + 1), name, nonce, signature)),
        ".".join((until, "", nonce, signature)),
        ".".join((until, name, nonce + "x", signature)),
        ".".join((until, name, nonce, signature[:-1])),
        *("", "...", "a.b.c.d", "1" * 5000, f"{until}.{name}.{nonce}.é", f"٣.{name}.{nonce}.{signature}"),
        Sessions({"ann": "1"}.get).issue("ann"),
    ]
    assert sessions.name_in(value) == "ann"
    assert [x for x in changed if sessions.name_in(x) is not None] == []


# ---- cookies


@pytest.mark.parametrize(
    "others",
    [
        "a=b c",
        "bad{name}=1",
        'x="open',
        "=",
        ";;;",
        "k=\xff",
        "expires=Thu, 1 Jan 1970",
        "decodescope=x",
        "a" * 3000,
    ],
)
def test_no_cookie_of_another_program_signs_anybody_out(others: str) -> None:
    client = visitor(guarded(token=TOKEN))
    given = client.get(RIGHT).headers["set-cookie"].partition(";")[0]
    client.cookies.clear()
    for line in (f"{others}; {given}", f"{given}; {others}", f"{others};{given};{others}"):
        assert client.get("/ds/state", headers={"cookie": line.encode("latin-1")}).status_code == 200, line
    assert client.get("/ds/state", headers={"cookie": others.encode("latin-1")}).status_code == 401


def test_two_labs_of_one_host_keep_their_visitors() -> None:
    """By two ports, behind one proxy, and through two tunnels to servers that have the same port."""
    said = []
    for port in (7860, 7861):
        guard = Guard(Answering(), port, AccessSettings(token=TOKEN))
        for asked in (port, 9000, 9001):
            answer = visitor(guard, base=f"http://127.0.0.1:{asked}").get(RIGHT)
            said.append(answer.headers["set-cookie"].partition("=")[0])
    assert len(set(said)) == 6
    assert cookie_values("a=1; a = 2 ;aa=3;a", "a") == ["1", "2"]


# ---- names and passwords


def test_who_has_a_name_comes_in_under_it(users: UserFile) -> None:
    guard = guarded(users=users)
    client = visitor(guard)
    page = client.get("/")
    assert page.status_code == 401 and 'name="password"' in page.text and "<script" not in page.text
    assert page.headers["referrer-policy"] == "same-origin", (
        "else the browser says that the form is of no origin"
    )
    for name in ("ann", "Björn"):
        assert sign_in(client, name).headers["location"] == "../"
        assert client.get("/ds/state").text == name
        assert guard.app.scopes[-1][SIGNED_IN]
    assert client.get("/ds/sign-in").headers["location"] == "../"


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("ann", ""),
        ("ann", "correct horse"),
        ("", ""),
        ("nobody", PASSWORD),
        ("a:b", "x"),
        ("ann\n", "x"),
        ("x" * 999, "x"),
    ],
)
def test_wrong_names_and_passwords_are_refused_alike(users: UserFile, name: str, password: str) -> None:
    client = visitor(guarded(users=users))
    answer = sign_in(client, name, password)
    assert answer.status_code == 401 and "Name or password is not right." in answer.text
    assert client.get("/ds/state").status_code == 401
    assert client.get(RIGHT).status_code == 401, "a lab with names has no token"


def test_attempts_are_limited_for_an_address_and_for_a_name(
    users: UserFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(access_room, "is_right_password", lambda given, stored: bool(asked.append(given)))
    guard = guarded(users=users)
    one = visitor(guard)
    assert [sign_in(one, f"name{i}").status_code for i in range(MOST + 1)] == [401] * MOST + [429]
    guard = guarded(users=users)
    many = [visitor(guard, f"203.0.113.{i}") for i in range(MOST + 1)]
    assert [sign_in(x, "ann").status_code for x in many] == [401] * MOST + [429]
    assert len(asked) == 2 * MOST, "no password is compared once the attempts are used up"
    assert sign_in(many[-1], "Björn").status_code == 401, "of another name"
    alike = [visitor(guard, f"2001:db8::{i}") for i in range(MOST + 1)]
    assert [sign_in(x, f"other{i}").status_code for i, x in enumerate(alike)] == [401] * MOST + [429]


def test_the_count_of_attempts_is_bounded() -> None:
    limiter = AttemptLimiter(lambda: 1.0)
    for i in range(KEYS + 100):
        limiter.begin(f"address {i}")
    assert len(limiter._times) == KEYS
    limiter.forgive(f"address {KEYS}")
    assert len(limiter._times) == KEYS - 1, "who was right leaves nothing"


def test_a_changed_password_and_a_removed_name_end_their_sessions(users: UserFile) -> None:
    guard = guarded(users=users)
    clients = {name: visitor(guard) for name in ("ann", "Björn")}
    for name, client in clients.items():
        sign_in(client, name)
    assert add_user(users.path, "ann", "another password")
    assert clients["ann"].get("/ds/state").status_code == 401
    assert clients["Björn"].get("/ds/state").text == "Björn"
    users.path.write_text("nonsense")
    assert clients["Björn"].get("/ds/state").text == "Björn", "a file that cannot be read changes nothing"
    users.path.write_text("# nobody\n")
    assert clients["Björn"].get("/ds/state").status_code == 401


def test_signing_out_ends_the_session_also_where_the_cookie_was_copied(users: UserFile) -> None:
    for settings, begin in (
        ({"users": users}, lambda client: sign_in(client, "ann")),
        ({"token": TOKEN}, lambda client: client.get(RIGHT)),
    ):
        client = visitor(guarded(**settings))
        copied = begin(client).headers["set-cookie"].partition(";")[0]
        page = client.get("/ds/sign-out")
        assert page.status_code == 200 and 'action="sign-out"' in page.text
        assert client.get("/ds/state").status_code == 200, "looking at the button changes nothing"
        gone = client.post("/ds/sign-out")
        assert gone.headers["location"] == "../" and "Max-Age=0" in gone.headers["set-cookie"]
        assert client.get("/ds/state").status_code == 401
        assert client.get("/ds/state", headers={"cookie": copied}).status_code == 401
        assert client.post("/ds/sign-out", headers={"origin": "http://evil.example"}).status_code == 403


@pytest.mark.parametrize("body", [b"x" * 9000, b"&" * 5000, b"\xff\xfe=\0", b"name=%ff&password=%00", b""])
def test_a_form_that_no_page_sends_is_refused(users: UserFile, body: bytes) -> None:
    answer = visitor(guarded(users=users)).post("/ds/sign-in", content=body)
    assert answer.status_code == 401


# ---- the file of users


def test_a_password_is_kept_as_a_salted_hash(tmp_path: Path) -> None:
    path = tmp_path / "users"
    assert not add_user(path, "ann", PASSWORD) and not add_user(path, "bob", PASSWORD)
    first, second = read_users(path).values()
    assert PASSWORD not in path.read_text() and first != second and path.stat().st_mode & 0o077 == 0
    assert is_right_password(PASSWORD, first) and not is_right_password(PASSWORD + " ", first)
    assert not is_right_password(PASSWORD, None) and not is_right_password("x" * 5000, first)
    assert [x.name for x in tmp_path.iterdir()] == ["users"]


HASH = "scrypt$16384$8$1$" + "A" * 24 + "$" + "A" * 43 + "="
LINES = {
    "no hash": "ann:",
    "no name": f":{HASH}",
    "a password": "ann:secret",
    "too dear": f"ann:{HASH.replace('16384', '524288')}",
    "no power of two": f"ann:{HASH.replace('16384', '16383')}",
    "another method": f"ann:{HASH.replace('scrypt', 'bcrypt')}",
    "a space in a name": f"an n:{HASH}",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_line_that_is_none_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "users"
    path.write_text(f"# names\n\nok:{HASH}\n{line}\n")
    with pytest.raises(UserFileError, match=r"Line 4 .*--add-user"):
        UserFile(path)


def test_files_that_hold_no_users_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "users"
    for content, why in ((b"", "no name"), (b"\xff\xfe", "UTF-8"), (b"#" * (1 << 20 | 1), "1 MiB")):
        path.write_bytes(content)
        with pytest.raises(UserFileError, match=why):
            UserFile(path)
    with pytest.raises(UserFileError, match="cannot be read"):
        UserFile(tmp_path)


def test_a_command_adds_a_user(
    tmp_path: Path, said: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    path = tmp_path / "users"

    def add(name: str, password: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(password + "\n"))
        return said("app", "--add-user", name, "--users", str(path))

    code, out, _ = add("ann", PASSWORD)
    assert code == 0 and "can sign in" in out and PASSWORD not in out
    assert "new password" in add("ann", "another one")[1]
    assert is_right_password("another one", read_users(path)["ann"])
    for name, password, why in (("a b", PASSWORD, "1 to 64"), ("bob", "short", "8 to 1024")):
        code, out, error = add(name, password)
        assert code == 2 and not out and why in error and error.count("\n") == 1
    assert said("app", "--add-user", "bob")[2].startswith("--add-user NAME needs --users FILE")


# ---- proxies


PROXY = {"proxies": (ipaddress.ip_network("10.0.0.0/24"),)}


def test_a_header_names_the_visitor_only_if_the_named_proxy_sends_it() -> None:
    guard = guarded(user_header="X-Remote-User", **PROXY)
    for address, headers, status in [
        ("10.0.0.9", [("x-remote-user", "ann")], 200),
        ("10.0.0.9", [("X-REMOTE-USER", "ann")], 200),
        ("::ffff:10.0.0.9", [("x-remote-user", "ann")], 200),
        ("10.0.0.9", [], 401),
        ("10.0.0.9", [("x-remote-user", " ")], 401),
        ("10.0.0.9", [("x-remote-user", "ann"), ("x-remote-user", "bob")], 401),
        ("10.0.0.9", [("x-remote-user", "a" * 200)], 401),
        ("10.0.1.9", [("x-remote-user", "ann")], 401),
        ("127.0.0.1", [("x-remote-user", "ann"), ("x-forwarded-for", "10.0.0.9")], 401),
        ("testclient", [("x-remote-user", "ann")], 401),
    ]:
        answer = visitor(guard, address).get("/ds/state", headers=[*headers, ("origin", HERE)])
        assert answer.status_code == status, (address, headers)
        assert status == 401 or answer.text == "ann"
    assert "<form" not in visitor(guard, "10.0.0.9").get("/").text


def seen(peer: str, told: str = "", **more: str) -> Any:
    names = {"x-forwarded-for": told, **{k.replace("_", "-"): v for k, v in more.items()}}
    headers = [(k.encode(), v.encode()) for k, v in names.items() if v]
    return find_visitor({"client": (peer, 1), "headers": headers}, PROXY["proxies"])


def test_attempts_are_counted_for_the_visitor_behind_a_named_proxy() -> None:
    assert seen("10.0.0.9", "203.0.113.7").key == "203.0.113.7"
    assert seen("10.0.0.9", "1.1.1.1, 203.0.113.7").key == "203.0.113.7", (
        "the first one is what the visitor wrote"
    )
    assert seen("10.0.0.9", "203.0.113.7, 10.0.0.8").key == "203.0.113.7", "through two named proxies"
    assert seen("10.0.0.9", "nonsense").key == "10.0.0.9"
    assert seen("203.0.113.9", "1.1.1.1").key == "203.0.113.9", "from nobody else it is believed"
    assert seen("10.0.0.9", "2001:db8::1").key == seen("2001:db8::2").key == "2001:db8::/64"
    assert seen("unix").key == "?"


def test_a_cookie_is_secure_where_the_named_proxy_says_https_or_the_owner_does() -> None:
    said = {"x-forwarded-proto": "https"}
    for address, headers, secure, expected in [
        ("10.0.0.9", said, False, True),
        ("10.0.0.9", {}, False, False),
        ("203.0.113.7", said, False, False),
        ("203.0.113.7", {}, True, True),
    ]:
        guard = guarded(token=TOKEN, secure=secure, **PROXY)
        answer = visitor(guard, address).get(RIGHT, headers=headers)
        assert ("; Secure" in answer.headers["set-cookie"]) == expected, (address, headers, secure)
    client = visitor(guarded(**PROXY), "203.0.113.7")
    client.get("/", headers=said | {"x-forwarded-host": "evil.example", "x-forwarded-prefix": "/x"})
    heard = client.app.app.scopes[-1]  # type: ignore[attr-defined]
    assert not [k for k, _ in heard["headers"] if k.startswith(b"x-forwarded")] and heard["scheme"] == "http"


def test_a_prefix_is_taken_off_where_the_proxy_leaves_it() -> None:
    guard = guarded(root_path="/user/a/lab", token=TOKEN, names=("lab.example",))
    client = visitor(guard, base="http://lab.example")
    assert "Path=/user/a/lab/;" in client.get("/user/a/lab" + RIGHT).headers["set-cookie"]
    assert visitor(guard).get(RIGHT).headers["set-cookie"].count("Path=/;") == 1, (
        "without the proxy there is no prefix"
    )
    assert client.get("/user/a/lab").headers["location"] == "/user/a/lab/"
    open_guard = guarded(root_path="/lab")
    for path, inside in (
        ("/lab/ds/state", "/ds/state"),
        ("/ds/state", "/ds/state"),
        ("/lab/", "/"),
        ("/labs/x", "/labs/x"),
    ):
        visitor(open_guard).get(path)
        assert open_guard.app.scopes[-1]["path"] == inside


# ---- where a request comes from

SITES = {"same-origin": 200, "none": 200, None: 200, "cross-site": 403, "same-site": 403, "new-word": 403}


@pytest.mark.parametrize(("site", "status"), SITES.items())
def test_a_page_elsewhere_makes_no_work(site: str | None, status: int) -> None:
    """Image tags, frames, scripts: requests that name no origin."""
    guard = guarded()
    for kind in ("image", "script", "iframe", "empty", "video"):
        mode = "navigate" if kind == "iframe" else "no-cors"
        told = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": kind} if site else {}
        client = TestClient(guard, base_url=HERE)
        for path in ("/ds/state", "/", "/gradio_api/file=x", "/ds/sign-in"):
            assert client.get(path, headers=told).status_code == status, (kind, path)
    assert status == 200 or not guard.app.scopes


def test_a_link_elsewhere_opens_the_page_and_nothing_else() -> None:
    client = TestClient(guarded(), base_url=HERE)
    told = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/", headers=told).status_code == 200
    assert client.get("/ds/run/x/export.html", headers=told).status_code == 403
    assert client.post("/", headers=told).status_code == 403


@pytest.mark.parametrize(
    ("host", "origin", "site", "status"),
    [
        ("lab.example", "https://lab.example", "same-origin", 200),
        ("lab.example", "https://lab.example", None, 200),
        (
            f"127.0.0.1:{PORT}",
            "https://lab.example",
            "same-origin",
            200,
        ),  # a proxy that does not pass the host on
        (f"127.0.0.1:{PORT}", "https://lab.example", None, 403),
        (f"127.0.0.1:{PORT}", "https://lab.example", "cross-site", 403),
        (
            f"127.0.0.1:{PORT}",
            "https://evil.example",
            "same-origin",
            403,
        ),  # a name that was bound to the proxy
        (f"127.0.0.1:{PORT}", None, "same-origin", 200),  # a proxy that takes the origin out
        (f"127.0.0.1:{PORT}", None, None, 403),
        (f"127.0.0.1:{PORT}", "null", "same-origin", 403),
        ("localhost:9000", "http://localhost:9000", "same-origin", 200),  # a tunnel with a port of its own
        ("localhost:9000", "http://localhost:3000", "same-site", 403),
    ],
)
def test_origins_behind_proxies_and_tunnels(
    host: str, origin: str | None, site: str | None, status: int
) -> None:
    headers = (
        {"host": host} | ({"origin": origin} if origin else {}) | ({"sec-fetch-site": site} if site else {})
    )
    client = TestClient(guarded(names=("lab.example",)), base_url=HERE)
    assert client.post("/ds/x", headers=headers).status_code == status


# ---- the options


def test_whoever_can_be_reached_by_others_asks_who_they_are(
    users: UserFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DECODESCOPE_TOKEN", raising=False)
    asks = lambda host="127.0.0.1", **given: access_settings(host, AccessOptions(**given))  # noqa: E731
    assert asks().token is None and asks(root_path="/lab/").root_path == "/lab"
    for given in (
        {"allow_host": "lab.example"},
        {"host": "0.0.0.0", "allow_host": "lab.example"},
        {"require_token": True},
    ):
        made = asks(**given)
        assert made.token and len(made.token) >= 32
        assert all(x.endswith(f"/?token={made.token}") for x in page_addresses("127.0.0.1", PORT, made))
    named = asks(allow_host="lab.example", users=users.path)
    assert (
        named.token is None and named.users is not None and "token" not in page_addresses("::1", 1, named)[0]
    )
    monkeypatch.setenv("DECODESCOPE_TOKEN", TOKEN)
    assert asks(require_token=True).token == TOKEN
    monkeypatch.setenv("DECODESCOPE_TOKEN", "short")
    with pytest.raises(ServeError, match="DECODESCOPE_TOKEN"):
        asks(require_token=True)


def test_addresses_are_those_that_others_and_this_machine_use() -> None:
    made = AccessSettings(names=("lab.example",), root_path="/lab", token="t", secure=True)
    assert page_addresses("127.0.0.1", 7860, made) == [
        "https://lab.example/lab/?token=t",
        "http://127.0.0.1:7860/?token=t",
    ]
    assert page_addresses("0.0.0.0", 7860, AccessSettings(names=("a.b",))) == ["http://a.b:7860/"]
    assert page_addresses("0.0.0.0", 7860, AccessSettings(names=("a.b:81",))) == ["http://a.b:81/"]
    assert page_addresses("::1", 7860, AccessSettings()) == ["http://[::1]:7860/"]
    assert page_addresses("localhost", 7860, AccessSettings()) == ["http://localhost:7860/"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"user_header": "X-User"}, "--user-header needs --proxy"),
        ({"user_header": "X User", "proxies": ("::1",)}, "no name of a header"),
        ({"proxies": ("proxy.example",)}, "--proxy 'proxy.example' is no address"),
        ({"root_path": "lab"}, "--root-path 'lab' is no path"),
        ({"root_path": "/a/../b"}, "--root-path"),
        ({"root_path": '/"><script>'}, "--root-path"),
        ({"users": "/nowhere/users"}, "cannot be read"),
    ],
)
def test_options_that_cannot_work_are_refused_in_a_sentence(given: dict[str, Any], why: str) -> None:
    with pytest.raises((ServeError, UserFileError), match=why):
        access_settings("127.0.0.1", AccessOptions(**given))


def test_two_ways_to_say_who_asks_are_refused(users: UserFile) -> None:
    with pytest.raises(ServeError, match="leave one of them out"):
        access_settings("127.0.0.1", AccessOptions(users=users.path, user_header="X-User", proxies=("::1",)))
