"""Page routes: which addresses of the page library are answered, and that no request writes a stack trace."""

from __future__ import annotations

import http.client
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
from browser import served
from toylab import toy_play
from waiting import eventually

from decodescope.app.http.guard import Guard
from decodescope.app.http.page_routes import NEEDED
from decodescope.app.http.quiet_log import LIMITER, LOUD, SPAN, LineLimiter, limit_log
from decodescope.app.server import build_app

LONG = "a" * 5000
ODD = (
    "x",
    LONG,
    "%00",
    "a%00b",
    "%ed%a0%80",
    "%ff",
    "..%2f..%2f..%2fetc%2fpasswd",
    "%2fetc%2fpasswd",
    "%0d%0aX:%201",
    "C:%5cx",
)
QUERY = f"?session_hash={LONG}&page=%00&deep_link=..%2f..%2fx"
BODIES = (
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b"[" * 3000,
    b'{"data": 1}',
    b'{"data": [], "fn_index": 0, "session_hash": "\\ud800"}',
    b'{"data": [], "fn_index": 99999, "session_hash": "a"}',
    b'{"data": [], "fn_index": -1, "session_hash": "a"}',
    b'{"data": [], "fn_index": 1e400, "session_hash": "a"}',
    b'{"data": [{"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}], "fn_index": 0, "session_hash": "a"}',
    b'{"event_id": "x", "fn_index": 0, "session_hash": "\\u0000"}',
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[tuple[str, str]], Any]]:
    """A served page: its host, the routes of its library as (method, path), and the number of its events."""
    play = toy_play(tmp_path_factory.mktemp("traces"))
    app = build_app(play)
    (mounted,) = [x.app for x in app.routes if type(x).__name__ == "Mount"]
    routes = list(_walk(mounted.routes))
    assert len(routes) > 60, "the test needs the library's routes"
    with served(lambda port: Guard(app, port)) as address:
        limit_log()
        yield address.removeprefix("http://"), routes, mounted.get_blocks()
        for name in LOUD[:2]:
            logging.getLogger(name).removeFilter(LIMITER)
    play.close()


def _walk(routes: Any, before: str = "") -> Iterator[tuple[str, str]]:
    for route in routes:
        if getattr(route, "methods", None):
            yield from ((method, before + route.path) for method in route.methods)
        elif hasattr(route, "original_router"):
            yield from _walk(route.original_router.routes, before)
        elif hasattr(route, "routes"):
            yield from _walk(route.routes, before + getattr(route, "path", ""))


def ask(host: str, method: str, path: str, body: bytes | None = None) -> tuple[int, str, bytes]:
    """Status, kind and beginning of the answer; a stream is left at once."""
    connection = http.client.HTTPConnection(host, timeout=60)
    connection._validate_path = lambda url: None  # type: ignore[attr-defined] # as a program may write it
    headers = {"Origin": f"http://{host}", "Content-Type": "application/json"}
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    kind = answer.headers.get("content-type", "")
    content = b"" if "event-stream" in kind else answer.read(4096)
    connection.close()
    return answer.status, kind, content


def is_told(answer: tuple[int, str, bytes]) -> bool:
    """Whether an answer is no failure of ours, and a refusal says why in a sentence."""
    status, kind, content = answer
    if status < 400 or not content:
        return status < 500
    said = json.loads(content) if kind.startswith("application/json") else {}
    return status < 500 and isinstance(said.get("error") or said.get("detail"), str)


def test_no_request_of_any_route_writes_a_stack_trace(
    library: tuple[str, list[tuple[str, str]], Any], capfd: pytest.CaptureFixture[str]
) -> None:
    host, routes, _ = library
    wrong = []
    for method, route in routes:
        slots = re.findall(r"{[^}]*}", route)
        for odd in ODD if slots else ("",):
            path = re.sub(r"{[^}]*}", lambda _: odd, route)  # noqa: B023
            for query in ("", QUERY) if odd in ("", "x") else ("",):
                answer = ask(host, method, path + query, b"{}" if method == "POST" else None)
                if not is_told(answer):
                    wrong.append((method, path[:80], query[:40], *answer))
    folders = [x for x in NEEDED if x.endswith("/")]
    for folder in folders:
        for odd in (*ODD, "", "img", "js/", "..", "a/../b", "x" * 300, "x" * 150, "a//b", "."):
            answer = ask(host, "GET", folder + odd)
            if not is_told(answer):
                wrong.append((folder, odd[:40], *answer))
    assert not wrong, wrong[:10]
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err and (out + err).count("\n") <= 1, (out + err)[:2000]


def test_no_body_writes_a_stack_trace(
    library: tuple[str, list[tuple[str, str]], Any], capfd: pytest.CaptureFixture[str]
) -> None:
    host, _, blocks = library
    wrong = []
    for path in [x for x in NEEDED if x.startswith("/gradio_api/")]:
        for body in BODIES:
            answer = ask(host, "POST", path, body)
            if not is_told(answer):
                wrong.append((path, body[:80], *answer))
    values = (None, 1, "x", [], {"path": "/etc/passwd"}, "\ud800")
    for number, event in blocks.fns.items():
        for k, value in enumerate(values):
            visitor = f"v{number}x{k}"
            data = {
                "data": [value] * (len(event.inputs) - k % 2),
                "fn_index": number,
                "session_hash": visitor,
            }
            answer = ask(host, "POST", "/gradio_api/queue/join", json.dumps(data).encode())
            if not is_told(answer):
                wrong.append((number, str(value), *answer))
    assert not wrong, wrong[:10]
    queue = blocks._queue
    eventually(lambda: not len(queue) and not any(queue.active_jobs), "the questions were not answered")
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err and (out + err).count("\n") <= 1, (out + err)[:3000]


def test_a_line_a_minute_says_what_failed_and_how_often() -> None:
    now = [0.0]
    limiter = LineLimiter(lambda: now[0])
    lines = []
    for at in (0.0, 1.0, SPAN - 1, SPAN, SPAN + 1):
        now[0] = at
        try:
            raise ValueError("secret\npath")
        except ValueError as error:
            told = (ValueError, error, error.__traceback__)
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "It %s\nnext", ("failed\x1b",), told)
        if limiter.filter(record):
            lines.append(logging.Formatter("%(message)s").format(record))
    place = r"It failed\? \(ValueError in test_page_routes.py, line \d+\)"
    assert len(lines) == 2 and re.fullmatch(place, lines[0])
    assert re.fullmatch(place + "; 2 more since the last line", lines[1])
