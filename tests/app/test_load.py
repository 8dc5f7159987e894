"""What a server for one's own computer withstands.

Slow readers, streams and runs without end, and paths and bodies that no client should send. `-s` prints figures of such a run.
"""

from __future__ import annotations

import gc
import http.client
import json
import logging
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
import toys
from browser import served
from toylab import ToyPlay, finished, occupied, speculative, toy_play
from waiting import awaited, eventually

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.http.guard import Guard
from decodescope.app.routes.runs import STREAMS
from decodescope.app.runs import forks
from decodescope.app.runs import record_stream as events
from decodescope.app.runs.event_stream import EventReader, stream_events
from decodescope.app.runs.record_stream import BATCH, RING, RecordStream
from decodescope.app.runs.run_service import RunService
from decodescope.app.server import build_app
from decodescope.engine.session.session import Session
from decodescope.engine.trace import TraceWriter, open_trace
from decodescope.engine.trace.records.events import End, Step

BUSY = 2 * RING  # steps made while nobody reads


@pytest.fixture
def address(play: RunService) -> Iterator[tuple[str, int]]:
    """Host and port of a real server over `play`, without the page."""
    with served(lambda port: Guard(build_app(play, page=False), port)) as url:
        parts = urlsplit(url)
        yield str(parts.hostname), int(parts.port or 0)


def asked(address: tuple[str, int], path: str, method: str = "GET", **more: Any) -> http.client.HTTPResponse:
    """The first bytes of the answer to a request of the page itself."""
    made = http.client.HTTPConnection(*address, timeout=30)
    headers = {"origin": "http://{}:{}".format(*address), **more.pop("headers", {})}
    made.request(method, path, headers=headers, **more)
    return made.getresponse()


def memory() -> int:
    """Resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Going:
    """A job that runs until the test ends it."""

    status = "running"


# ---- slow readers


def busy(play: RunService, folder: Path) -> tuple[RecordStream, list[Step]]:
    """A channel of a live run, and a tree step that the test writes to it again and again under new numbers."""
    models = dict(target=play.models.loaded_models()["target"], draft=play.models.loaded_models()["draft"])
    method = toys.method(drafter=("draft_model", {"max_draft_tokens": 3, "width": 2}))
    session = Session(
        models["target"], method, [1, 2, 3], models={"draft": models["draft"]}, max_new_tokens=40
    )
    channel = RecordStream("0" * 16, folder / "busy.dstrace")
    channel.job = Going()
    channel.write(session.header)
    steps = [x for x in session.stream() if isinstance(x, Step)]
    return channel, steps


def _at(steps: list[Step], i: int) -> Step:
    """Copy a step of the list under the number i."""
    return replace(steps[i % len(steps)], step=i)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the size of a process is read from /proc")
def test_a_reader_that_does_not_read_costs_no_memory_and_finds_the_newest(
    play: RunService, address: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, made = busy(play, tmp_path)
    steps, asked_for = channel.steps, []
    monkeypatch.setattr(channel, "steps", lambda first, last: asked_for.append(last) or steps(first, last))
    play._channels[channel.run] = channel
    for i in range(RING):  # the server keeps so many steps of any run
        channel.write(_at(made, i))
    with socket.create_connection(address, timeout=60) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        slow.sendall(
            f"GET /ds/run/{channel.run}/events HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n\r\n".encode()
        )
        eventually(lambda: asked_for and asked_for[-1] == RING)
        before = memory()
        for i in range(RING, RING + BUSY):
            channel.write(_at(made, i))
            if i % 200 == 0:
                eventually(lambda: asked_for[-1] > i - 200)  # noqa: B023 # called at once: the stream had time to run
        grown = memory() - before
        assert grown < 20 << 20, f"{grown >> 20} MiB for a reader that reads nothing"
        channel.job.status = "done"  # type: ignore[union-attr, misc]
        read = b""
        while b"event: end" not in read[-4096:]:
            part = slow.recv(1 << 20)
            assert part, "the stream broke off"
            read += part
    numbers = [int(x[4:]) for x in read.split(b"\n") if x.startswith(b"id: ")]
    assert numbers[-1] == RING + BUSY - 1 and numbers == sorted(set(numbers)), (
        "the newest step, and none twice"
    )
    print(f"{RING + BUSY} steps, a reader that stood still for {BUSY} of them: {grown / 2**20:.1f} MiB more")


@pytest.mark.nightly
def test_a_slow_reader_gets_every_step_of_a_run_that_does_not_wait_for_it(
    play: RunService, address: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More steps than memory holds, for a reader of a few KB at a time. Steps that it misses are read from the trace."""
    monkeypatch.setattr(events, "RING", 64)
    channel, made = busy(play, tmp_path)
    stored, found = channel._stored_steps, []
    monkeypatch.setattr(
        channel, "_stored_steps", lambda first, last: found.append(first) or stored(first, last)
    )
    play._channels[channel.run] = channel
    header, count, read = channel.wire.header, 3000, bytearray()  # type: ignore[union-attr] # the run has started
    writer = TraceWriter(channel.path, header)
    n, waited = len(header.prompt), []
    with socket.create_connection(address, timeout=60) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        slow.sendall(
            f"GET /ds/run/{channel.run}/events HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n\r\n".encode()
        )
        for i in range(count):
            step = _at(made, i)
            step = replace(step, n=n, cache=[replace(x, held=n) for x in step.cache])
            n += len(step.emitted)
            writer.write(step)
            begin = time.perf_counter()
            channel.write(step)
            waited.append(time.perf_counter() - begin)
            if i % 200 == 0:
                read += slow.recv(1 << 12)
        end = End("stopped_by_user", [], count)
        writer.seal(end)
        channel.seal(end)
        channel.job.status = "done"  # type: ignore[union-attr, misc]
        while b"event: end" not in read[-4096:]:
            part = slow.recv(1 << 14)
            assert part, "the stream broke off"
            read += part
    numbers = [int(x[4:]) for x in bytes(read).split(b"\n") if x.startswith(b"id: ")]
    assert found, "the test needs a reader that is behind what memory holds"
    assert numbers == list(range(count)), "every step, in order, none twice"
    assert max(waited) < 0.5 and sorted(waited)[count // 2] < 0.005, "the run waits for no reader"
    trace = open_trace(channel.path)
    assert len(trace.steps) == count and not trace.damage
    trace.close()


def test_a_writer_waits_for_no_reader(play: RunService, address: tuple[str, int], tmp_path: Path) -> None:
    channel, made = busy(play, tmp_path)
    play._channels[channel.run] = channel
    with ExitStack() as open_:
        for _ in range(20):
            slow = open_.enter_context(socket.create_connection(address, timeout=30))
            slow.sendall(
                f"GET /ds/run/{channel.run}/events HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n\r\n".encode()
            )
        waited = []
        for i in range(1000):
            begin = time.perf_counter()
            channel.write(_at(made, i))
            waited.append(time.perf_counter() - begin)
        body = json.loads(asked(address, f"/ds/run/{channel.run}/range?from=990&to=1000").read())
        assert body["next"] == 1000 and len(body["steps"]) == 10 <= BATCH
    channel.job.status = "done"  # type: ignore[union-attr, misc]
    assert sorted(waited)[len(waited) // 2] < 0.005, "appending is all that the worker does"


# ---- long runs


def test_a_long_run_is_shown_from_its_beginning_while_the_rest_is_read(
    play: ToyPlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = finished(play, max_new=24)
    total, ready, read_on, opened = source.count, threading.Event(), RecordStream._read_rest, []
    assert total > 6, "the test needs steps that are read later"
    monkeypatch.setattr(events, "LONG", 5)
    monkeypatch.setattr(events, "FIRST", 4)  # the header, the prompt and two steps
    monkeypatch.setattr(events, "RING", 2)  # older steps are read from the file
    monkeypatch.setattr(events, "open_trace", lambda path: opened.append(path) or open_trace(path))
    monkeypatch.setattr(
        RecordStream, "_read_rest", lambda self, records: ready.wait(60) and read_on(self, records)
    )
    made = RecordStream.from_trace(source.run, source.path)
    assert (made.count, made.state()["of"], made.over) == (2, total, False)
    shown = json.loads(made.range(0, total))
    assert [step["i"] for step in shown["steps"]] == [0, 1]

    async def whole() -> bytes:
        parts = []
        async for part in stream_events(EventReader(made)):
            parts.append(part)
            ready.set()  # the reader has received the beginning
        return b"".join(parts)

    told = awaited(whole())
    assert [int(x[4:]) for x in told.split(b"\n") if x.startswith(b"id: ")] == list(range(total))
    assert told.count(b"event: end") == 1 and made.over and "of" not in made.state()
    for first in (0, 3, 1):
        assert [step.step for step in made.steps(first, first + 2)] == [first, first + 1]
    assert len(opened) == 1, "its records are looked for once"
    made.close()


# ---- more than one visitor's share


def test_a_thousand_streams_are_refused_above_the_limit_and_the_server_recovers(
    play: RunService, address: tuple[str, int]
) -> None:
    run = play.start(speculative()).run
    play.act(play._channels[run], "pause")
    connections, codes = [], []
    for _ in range(STREAMS + 40):
        made = http.client.HTTPConnection(*address, timeout=60)
        made.request("GET", f"/ds/run/{run}/events")
        answer = made.getresponse()
        codes.append(answer.status)
        if answer.status == 503:
            assert (
                json.loads(answer.read())["error"]
                == f"{STREAMS} pages are watching, which is the limit; close one."
            )
        connections.append((made, answer))
    assert codes == [200] * STREAMS + [503] * 40
    for made, answer in connections:
        answer.close()
        made.close()
    play.act(play._channels[run], "stop")
    eventually(
        lambda: asked(address, f"/ds/run/{run}/events").status == 200, "streams that were closed still count"
    )


def test_a_hundred_visitors_find_a_bounded_queue_and_then_room_again(play: ToyPlay) -> None:
    refusals, started = [], []
    with occupied(play):
        for i in range(100):
            try:
                started.append(play.start(speculative(), visitor=f"visitor {i}"))
            except RequestRefusal as refusal:
                refusals.append(str(refusal))
    assert 2 <= len(started) < 40 and len(refusals) == 100 - len(started)
    assert set(refusals) == {refusals[0]} and "waiting, which is the limit" in refusals[0]
    for channel in started:
        play.act(channel, "stop")
    assert finished(play).status == "done"


def test_clicks_without_end_make_one_run(play: ToyPlay) -> None:
    play.pausing = True
    first = play.start(speculative(), visitor="one")
    for _ in range(99):
        with pytest.raises(RequestRefusal, match=r"^Your run is still going \(step \d+\): stop it first\.$"):
            play.start(speculative(), visitor="one")
    assert list(play._jobs) == [first.run]
    play.act(first, "stop")


def test_two_visitors_of_one_run_see_the_same_and_either_stops_it(
    play: ToyPlay, address: tuple[str, int]
) -> None:
    play.pausing = True
    channel = play.start(speculative(), visitor="one")
    second = play.start(speculative(), visitor="two")
    readers = [asked(address, f"/ds/run/{channel.run}/events") for _ in range(2)]
    assert asked(address, f"/ds/run/{channel.run}/stop", "POST").status == 200
    told = [reader.read() for reader in readers]
    assert (
        told[0].split(b"event: head")[1] == told[1].split(b"event: head")[1]
        and told[0].count(b"event: end") == 1
    )
    assert asked(address, f"/ds/run/{channel.run}/stop", "POST").status == 409
    play.act(second, "stop")


# ---- requests that nobody should send


PARTS = [".", "..", "...", "%2e", "%2e%2e", "~", "etc", "passwd", "C:", "con", "NUL", "aux.js", "\\"]
PARTS += [
    "\\\\host\\x",
    "file:",
    "http:",
    "%00",
    "%0d%0a",
    "%c0%ae",
    "scope.js",
    "SCOPE.JS",
    "page.py",
    "::$DATA",
    "${x}",
    "{{x}}",
    "<b>",
    "\u202e",
]
PARTS += ["💾", " ", "*", "|"]
PATHS = sorted(
    {"/".join(random.Random(seed).choices(PARTS, k=1 + seed % 4)) for seed in range(260)} - {"scope.js"}
)[:200]


def test_of_two_hundred_paths_none_leads_out(address: tuple[str, int]) -> None:
    assert len(PATHS) == 200
    for path in PATHS:
        for room in ("/ds/web/", "/ds/run/", "/ds/library/"):
            begin = time.perf_counter()
            answer = asked(address, room + quote(path, safe="/%:*|\\~$"))
            body = answer.read()
            assert answer.status in (400, 403, 404, 405), (room + path, answer.status)
            assert b"root:" not in body and b"import " not in body and b"Traceback" not in body
            assert time.perf_counter() - begin < 5
    assert asked(address, "/ds/state").status == 200


@pytest.mark.nightly
@pytest.mark.parametrize(
    "span", ["from=0&to=99999999999", "from=5&to=1", "from=-1&to=2", "from=1e3&to=2", "from=&to=", "to=4"]
)
def test_ranges_past_the_end_and_none_are_bounded(
    play: RunService, address: tuple[str, int], span: str
) -> None:
    run = finished(play).run
    answer = asked(address, f"/ds/run/{run}/range?{span}")
    body = json.loads(answer.read())
    assert (answer.status == 400 and body["error"].endswith(".")) or len(body["steps"]) <= BATCH


def test_ten_gigabytes_are_refused_unread(address: tuple[str, int]) -> None:
    answer = asked(address, "/ds/library?name=x.dstrace", "POST", headers={"content-length": str(10 << 30)})
    assert answer.status == 413 and "64 MiB, which is the limit" in json.loads(answer.read())["error"]
    assert asked(address, "/ds/state").status == 200


def test_an_upload_that_breaks_off_leaves_nothing(play: RunService, address: tuple[str, int]) -> None:
    head = "POST /ds/library?name=x.dstrace HTTP/1.1\r\nHost: {0}:{1}\r\nOrigin: http://{0}:{1}\r\nContent-Length: 5000\r\n\r\n"
    with socket.create_connection(address, timeout=30) as made:
        made.sendall(head.format(*address).encode() + b"x" * 100)
        eventually(lambda: list(play.folder.iterdir()), "the test needs an upload that has begun")
    eventually(lambda: not list(play.folder.iterdir()), "what came of it is still there")


@pytest.mark.parametrize("path", ["/ds/library?name=x", "/ds/compare/start", "/ds/nothing"])
def test_a_body_that_is_no_http_leaves_no_traceback(
    address: tuple[str, int], path: str, caplog: pytest.LogCaptureFixture
) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: {{0}}:{{1}}\r\nOrigin: http://{{0}}:{{1}}\r\n".format(*address)
    chunks, log = "Transfer-Encoding: chunked\r\n\r\n", logging.getLogger("uvicorn.error")
    log.addHandler(caplog.handler)  # uvicorn's logger does not propagate
    long = "Content-Length: 500\r\n\r\nabc"
    for body in (f"{chunks}zz\r\nabc\r\n", f"Content-Length: 5\r\n{chunks}5\r\nabcde\r\nzz\r\n", long):
        with socket.create_connection(address, timeout=30) as made:
            made.sendall((head + body).encode())
            made.shutdown(socket.SHUT_WR)
            while made.recv(4096):
                pass
    assert asked(address, "/ds/state").status == 200
    log.removeHandler(caplog.handler)
    assert "Invalid HTTP request" in caplog.text and not [x for x in caplog.records if x.exc_info], (
        caplog.text
    )


def test_headers_that_never_end_hold_nobody_up(address: tuple[str, int]) -> None:
    with ExitStack() as open_:
        for _ in range(50):
            slow = open_.enter_context(socket.create_connection(address, timeout=30))
            slow.sendall(b"GET /ds/state HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        for _ in range(10):
            begin = time.perf_counter()
            assert asked(address, "/ds/state").status == 200
            assert time.perf_counter() - begin < 5


def test_a_header_of_a_megabyte_is_refused(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=30) as made:
        try:
            made.sendall(b"GET /ds/state HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (1 << 20) + b"\r\n\r\n")
            said = made.recv(4096)
        except (ConnectionResetError, BrokenPipeError):
            said = b""
    assert not said or b" 200 " not in said.split(b"\r\n")[0]
    assert asked(address, "/ds/state").status == 200


FOREIGN = [
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"host": "evil.example"},
    {"host": "evil.example:80"},
]
CHANGES = ["/ds/library", "/ds/library/RUN/delete", "/ds/run/RUN/stop", "/ds/run/RUN/pause"]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
@pytest.mark.parametrize("path", CHANGES)
def test_another_page_changes_nothing(
    play: RunService, address: tuple[str, int], path: str, headers: dict[str, str]
) -> None:
    run = finished(play).run
    there = sorted(play.folder.iterdir())
    answer = asked(address, path.replace("RUN", run), "POST", headers=headers, body=b"{}")
    assert answer.status == 403 and sorted(play.folder.iterdir()) == there


def test_a_run_that_is_over_keeps_no_session_and_can_still_be_forked(tmp_path: Path) -> None:
    play = toy_play(tmp_path)
    channel = finished(play, max_new=8)
    stopped = play.start(speculative(max_new=200))
    play.act(stopped, "stop")
    assert play._jobs[stopped.run].wait(60)

    def held() -> list[str]:
        gc.collect()
        return [
            x.run_id
            for x in gc.get_objects()
            if type(x) is Session and x.run_id in (channel.run, stopped.run)
        ]

    eventually(lambda: not held(), "a session is held")
    assert channel.status == "done" and play._jobs[channel.run].end is not None and channel.steps(0, 1)
    with pytest.raises(RuntimeError, match="fork it from its trace"):
        play._jobs[channel.run].branch()
    branch = forks.fork(play, channel, {"step": 1})
    assert play._jobs[branch.run].wait(60) and branch.status == "done"
    play.close()
