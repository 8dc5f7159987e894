"""The server: who may send requests, what it answers, and how a run reaches its readers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from toylab import HERE, PORT, ToyPlay, finished, guarded, occupied, speculative, toy_play

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.http.access_options import ServeError, allowed_hosts, is_loopback
from decodescope.app.runs.catalogue.presets import PRESETS
from decodescope.app.runs.preset_choice import find_matching_preset
from decodescope.app.runs.recipe import from_json
from decodescope.app.runs.record_stream import BATCH
from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.app.server import bind


def told(body: str) -> list[tuple[str, str | None, Any]]:
    """A stream as (event, id, data)."""
    found = []
    for block in body.split("\n\n"):
        lines = dict(
            line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":")
        )
        if "event" in lines:
            found.append((lines["event"], lines.get("id"), json.loads(lines["data"])))
    return found


# ---- allowed requests


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        "127.0.0.2",
        "127.0.0.1.evil.example",
        "",
        "localhost@evil.example",
        f"[::2]:{PORT}",
        "[::1",
        "localhost:7860.evil.example",
    ],
)
def test_foreign_host_is_refused(client: TestClient, host: str) -> None:
    answer = client.get("/ds/state", headers={"host": host, "origin": f"http://{host}"})
    assert answer.status_code == 403 and "--allow-host" in answer.json()["error"]


@pytest.mark.parametrize(
    "host",
    [
        f"127.0.0.1:{PORT}",
        f"localhost:{PORT}",
        f"[::1]:{PORT}",
        f"LOCALHOST:{PORT}",
        "localhost:9000",
        "[::1]",
    ],
)
def test_own_names_are_answered(play: RunService, host: str) -> None:
    with TestClient(guarded(play), base_url=HERE) as client:
        assert client.get("/ds/state", headers={"host": host}).status_code == 200


ORIGINS = [
    "http://evil.example",
    "null",
    "http://127.0.0.1:1",
    "http://localhost:7860.evil.example",
    "file://",
    f"ftp://127.0.0.1:{PORT}",
    None,
]
NAMES = (f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"[::1]:{PORT}")
READS = ("GET", "HEAD")


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"[::1]:{PORT}"])
def test_a_request_of_another_page_changes_nothing(play: RunService, origin: str | None, host: str) -> None:
    channel = play.start(speculative(max_new=4))
    headers = {"host": host} | ({"origin": origin} if origin else {})
    with TestClient(guarded(play), base_url=HERE) as client:
        for method, path in [
            ("POST", f"/ds/run/{channel.run}/stop"),
            ("POST", "/gradio_api/upload"),
            ("DELETE", "/x"),
            ("PUT", "/x"),
        ]:
            assert client.request(method, path, headers=headers).status_code == 403, path
        if origin:
            assert client.get("/ds/state", headers=headers).status_code == 403
    assert play._jobs[channel.run].wait(300) and channel.end.reason == "max_new_tokens"


def test_no_route_that_changes_anything_answers_another_page(play: RunService) -> None:
    """Tries every route with every foreign origin, under every name of this server and under a foreign name."""
    channel, guard = finished(play), guarded(play)
    there = sorted(play.folder.iterdir())
    routes = [
        (x.path, method)
        for x in guard.app.routes
        for method in getattr(x, "methods", ())
        if method not in READS
    ]
    assert len({path for path, _ in routes}) > 12, "the test needs the routes"
    asked = [({"host": host} | ({"origin": x} if x else {})) for host in NAMES for x in ORIGINS]
    asked += [
        {"host": "evil.example", "origin": "http://evil.example"},
        {"host": f"evil.example:{PORT}", "origin": HERE},
    ]
    with TestClient(guard, base_url=HERE) as client:
        for path, method in routes:
            filled = re.sub(r"{action}", "delete", re.sub(r"{run}", channel.run, path))
            for headers in asked:
                answer = client.request(
                    method, re.sub(r"{[^}]*}", "x", filled), headers=headers, content=b"{}"
                )
                assert answer.status_code == 403 and "error" in answer.json(), (method, path, headers)
    assert sorted(play.folder.iterdir()) == there and list(play._jobs) == [channel.run]


def test_what_goes_wrong_inside_is_told_without_a_stack_trace(
    play: RunService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(play.models, "state", lambda names: 1 / 0)
    with TestClient(guarded(play), base_url=HERE, raise_server_exceptions=False) as client:
        answer = client.get("/ds/state")
    assert answer.status_code == 500 and "Traceback" not in answer.text
    assert answer.json()["error"].startswith(
        "Something went wrong inside (ZeroDivisionError): load the page again"
    )
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_websocket_needs_its_own_page_too(client: TestClient) -> None:
    from starlette.websockets import WebSocketDisconnect

    for headers in ({"origin": "http://evil.example"}, {"host": "evil.example"}, {"origin": ""}):
        with pytest.raises(WebSocketDisconnect), client.websocket_connect("/ds/x", headers=headers):
            pass


def test_a_named_host_is_answered_and_another_is_not(play: RunService) -> None:
    with TestClient(guarded(play, names=("lab.example", "other.example:443")), base_url=HERE) as client:
        for host, status in [
            ("lab.example", 200),
            ("lab.example:8000", 200),
            ("other.example:443", 200),
            ("other.example", 403),
            ("x.lab.example", 403),
            ("lab.example:x", 403),
        ]:
            assert client.get("/ds/state", headers={"host": host}).status_code == status, host


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-length": str((64 << 20) + 1)}, 413),
        ({"content-length": "9" * 40}, 413),
        ({"content-length": "-1"}, 400),
        ({"content-length": "1e3"}, 400),
    ],
)
def test_a_body_over_the_limit_is_refused_before_it_is_read(
    client: TestClient, headers: dict[str, str], status: int
) -> None:
    assert client.post("/ds/run/x/stop", headers=headers).status_code == status


def test_a_body_of_unknown_length_is_refused(client: TestClient) -> None:
    assert client.post("/ds/run/x/stop", content=iter([b"a"] * 3)).status_code == 411


@pytest.mark.parametrize(
    "path", ["/ds/state", "/ds/web/scope.js", "/ds/knobs.json", "/ds/nothing", "/ds/run/zz", "/"]
)
def test_every_answer_carries_the_headers(client: TestClient, path: str) -> None:
    for headers in ({}, {"host": "evil.example"}):
        got = client.get(path, headers=headers).headers
        assert got["x-content-type-options"] == "nosniff" and got["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'self'" in got["content-security-policy"]
        assert (
            "connect-src 'self'" in got["content-security-policy"]
            and "default-src 'self'" in got["content-security-policy"]
        )


def test_open_hosts_need_a_name() -> None:
    with pytest.raises(ServeError, match="--allow-host"):
        allowed_hosts("0.0.0.0", None)
    assert (
        allowed_hosts("0.0.0.0", "lab.example, x:1") == ["lab.example", "x:1"]
        and allowed_hosts("127.0.0.1", None) == []
    )
    assert [
        is_loopback(x) for x in ("127.0.0.1", "::1", "[::1]", "localhost", "0.0.0.0", "10.0.0.1", "x")
    ] == [True] * 4 + [False] * 3


def test_a_taken_port_is_refused_in_one_sentence() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ServeError, match=f"{port} cannot be opened"):
            bind("127.0.0.1", port)


# ---- answers


def test_web_files_are_three_scripts_and_two_sheets(client: TestClient) -> None:
    for name, kind in [
        ("scope.js", "text/javascript"),
        ("page.js", "text/javascript"),
        ("runs/runs.js", "text/javascript"),
        ("styles/scope.css", "text/css"),
        ("styles/page.css", "text/css"),
    ]:
        answer = client.get(f"/ds/web/{name}")
        assert answer.status_code == 200 and answer.headers["content-type"].startswith(kind)


PATHS = [
    "..",
    "../style.py",
    "..%2fstyle.py",
    "%2e%2e/%2e%2e/pyproject.toml",
    "..\\style.py",
    "scope.js/..",
    "SCOPE.JS",
    "scope.js%00",
    "/etc/passwd",
    "%2fetc%2fpasswd",
    "C:\\x",
    "\\\\host\\x",
    "file:///etc/passwd",
    "con",
    "scope.js::$DATA",
    ".",
    "",
    "scope.js.bak",
    "http://evil.example/x",
]


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_out(client: TestClient, path: str) -> None:
    for room in ("/ds/web/", "/ds/run/"):
        answer = client.get(room + path)
        assert answer.status_code in (400, 403, 404, 405), answer.url
        assert b"import" not in answer.content and b"root:" not in answer.content


def test_a_run_is_found_by_its_whole_id_only(play: RunService, client: TestClient) -> None:
    run = finished(play).run
    assert len(run) == 16 and client.get(f"/ds/run/{run}").json()["status"] == "done"
    for wrong in (
        run[:-1],
        run + "0",
        run.upper() if run.upper() != run else "x",
        run[:-1] + "é",
        f"{run}.dstrace",
    ):
        assert client.get(f"/ds/run/{wrong}").status_code == 404


def test_range_gives_whole_steps_from_the_trace(play: RunService, client: TestClient) -> None:
    channel = finished(play)
    live = client.get(f"/ds/run/{channel.run}/range?from=2&to=5").json()
    assert [step["i"] for step in live["steps"]] == [2, 3, 4] and live["next"] == 5
    play._channels.clear()
    disk = client.get(f"/ds/run/{channel.run}/range?from=2&to=5").json()
    assert disk["steps"] == live["steps"], "the trace on disk says the same as memory did"


def test_range_keeps_to_its_bounds(play: RunService, client: TestClient) -> None:
    channel = finished(play, max_new=150)
    ask = f"/ds/run/{channel.run}/range"
    assert channel.count > 24
    assert len(client.get(f"{ask}?from=0&to=99999").json()["steps"]) == min(BATCH, channel.count)
    assert client.get(f"{ask}?from={channel.count}&to={channel.count + 9}").json()["steps"] == []
    for query, status in [
        ("from=5&to=2", 400),
        ("from=-1&to=2", 400),
        ("from=a&to=2", 400),
        ("", 400),
        ("from=0", 400),
        (f"from={10**11}&to={10**11}", 400),
        ("from=99999&to=100000", 404),
        ("from=1e3&to=2000", 400),
        ("from=٣&to=9", 400),
    ]:
        answer = client.get(f"{ask}?{query}")
        assert answer.status_code == status and answer.json()["error"].endswith("."), query


def test_steps_older_than_memory_come_from_the_trace(
    play: RunService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decodescope.app.runs.record_stream.RING", 4)
    channel = finished(play)
    assert channel.count > 8
    assert [step.step for step in channel.steps(0, 6)] == [0, 1, 2, 3, 4, 5]
    assert [step.step for step in channel.steps(channel.count - 2, 10**6)] == [
        channel.count - 2,
        channel.count - 1,
    ]


# ---- the stream


def test_stream_tells_every_step_and_the_end(play: RunService, client: TestClient) -> None:
    channel = finished(play)
    answer = client.get(f"/ds/run/{channel.run}/events")
    assert (
        answer.headers["content-type"].startswith("text/event-stream")
        and answer.headers["cache-control"] == "no-store"
    )
    events = told(answer.text)
    assert [kind for kind, _, _ in events][:2] == ["state", "head"] and events[-1][0] == "end"
    assert events[-1][2]["reason"] == "max_new_tokens" and events[-1][2]["tokens"] == 32
    steps = [(int(number), data) for kind, number, data in events if kind == "step"]
    assert [number for number, _ in steps] == [data["i"] for _, data in steps] == list(range(channel.count))
    assert "nodes" in steps[-1][1] and steps[0][1]["brief"], "a reader that is behind is shown the newest"
    assert sum(len(data["made"]) for _, data in steps) == 32


@pytest.mark.parametrize("by", ["header", "query"])
def test_stream_goes_on_after_the_last_step_that_came(play: RunService, client: TestClient, by: str) -> None:
    channel = finished(play)
    url, headers = f"/ds/run/{channel.run}/events", {}
    if by == "header":
        headers = {"last-event-id": "3"}
    else:
        url += "?after=3"
    events = told(client.get(url, headers=headers).text)
    assert [int(number) for kind, number, _ in events if kind == "step"] == list(range(4, channel.count))


@pytest.mark.parametrize("last", ["x", "1e9", "9" * 30, "1.5", "--1"])
def test_stream_refuses_a_number_that_is_none(play: RunService, client: TestClient, last: str) -> None:
    channel = finished(play)
    assert client.get(f"/ds/run/{channel.run}/events", headers={"last-event-id": last}).status_code == 400


def test_stream_of_a_run_that_is_only_on_disk(play: RunService, client: TestClient, tmp_path: Path) -> None:
    channel = finished(play)
    other = toy_play(tmp_path)
    with TestClient(guarded(other), base_url=HERE) as later:
        events = told(later.get(f"/ds/run/{channel.run}/events").text)
    assert (
        len([1 for kind, _, _ in events if kind == "step"]) == channel.count
        and events[-1][2]["reason"] == "max_new_tokens"
    )


def test_what_goes_over_the_wire_re_derives(play: RunService, client: TestClient) -> None:
    channel, refused = finished(play, max_new=120), 0
    first = 0
    while first < channel.count:
        part = client.get(f"/ds/run/{channel.run}/range?from={first}&to={first + 64}").json()
        for step in part["steps"]:
            for row in step["nodes"]:
                if len(row) == 9 and row[5] is not None:
                    assert (row[5] * row[3] < row[7]) == (row[6] != "reject")
                    refused += row[6] == "reject"
        first = part["next"]
    assert refused > 20, "the test needs rejections"


# ---- runs


def test_stop_ends_a_run_and_a_second_stop_is_told_so(play: RunService, client: TestClient) -> None:
    channel = play.start(speculative(max_new=400))
    assert client.post(f"/ds/run/{channel.run}/pause").status_code == 200
    assert client.post(f"/ds/run/{channel.run}/step").status_code == 200
    assert client.post(f"/ds/run/{channel.run}/explode").status_code == 404
    assert client.post(f"/ds/run/{channel.run}/stop").status_code == 200
    assert play._jobs[channel.run].wait(300)
    events = told(client.get(f"/ds/run/{channel.run}/events").text)
    assert events[-1][2]["reason"] == "stopped_by_user"
    answer = client.post(f"/ds/run/{channel.run}/stop")
    assert answer.status_code == 409 and answer.json()["error"] == "The run is over."


def test_one_visitor_has_one_run_and_another_waits(play: ToyPlay) -> None:
    with occupied(play) as running:
        first = play.start(speculative(max_new=4), "anna")
        with pytest.raises(RequestRefusal, match="still going"):
            play.start(speculative(), "anna")
        second = play.start(speculative(), "bert")
        assert play.runs_ahead(first) == 1 and play.runs_ahead(second) == 2
        assert [row["run"] for row in play.active_runs()] == [running.run, first.run, second.run]
    assert (
        play._jobs[second.run].wait(300) and second.end.reason == "max_new_tokens" and not play.active_runs()
    )
    third = play.start(speculative(max_new=4), "anna")
    assert play._jobs[third.run].wait(300)


REFUSALS = [
    (RunChoice(" "), "Write a prompt"),
    (RunChoice("a", max_new=0), "New tokens"),
    (RunChoice("a" * 600), "shorten the prompt"),
    (RunChoice("a" * ((1 << 20) + 1)), "has 1048577 characters and at most 1048576 are read: shorten it"),
    (RunChoice("a", {"drafter": "nothing"}), "drafter is called"),
    (RunChoice("a", {"strategy": "beam", "drafter": "prompt_lookup"}), "uses no drafter"),
    (RunChoice("a", settings={"drafter": {"max_draft_tokns": 3}}), "has no knob"),
    (
        RunChoice("a", {"drafter": "draft_model"}, {"drafter": {"max_draft_tokens": 99}}),
        r"must lie in \[1, 16\]",
    ),
    (RunChoice("a", {"drafter": "rest"}, {"drafter": {"datastore": "/etc/hostname"}}), "the page opens none"),
    (RunChoice("a", {"strategy": "jacobi", "sampler": ["temperature"]}), "sampler greedy"),
]


@pytest.mark.parametrize(("choice", "words"), REFUSALS)
def test_a_refusal_is_one_sentence(play: RunService, choice: RunChoice, words: str) -> None:
    with pytest.raises(RequestRefusal, match=words) as no:
        play.start(choice)
    assert "\n" not in str(no.value) and "Traceback" not in str(no.value)
    assert not list(play.folder.glob("*")), "nothing was written"


def test_an_unreadable_folder_is_told(play: RunService) -> None:
    play.folder = play.folder / "file"
    play.folder.write_text("")
    with pytest.raises(RequestRefusal, match="file system"):
        play.start(speculative())


# ---- downloads


def test_a_finished_run_is_given_as_trace_and_as_page(play: RunService, client: TestClient) -> None:
    channel = finished(play)
    trace = client.get(f"/ds/run/{channel.run}/trace")
    assert (
        trace.content == channel.path.read_bytes()
        and f'"{channel.run}.dstrace"' in trace.headers["content-disposition"]
    )
    page = client.get(f"/ds/run/{channel.run}/export.html")
    assert page.headers["content-disposition"].startswith("attachment") and page.text.startswith(
        "<!doctype html>"
    )
    assert "default-src 'none'" in page.text


def test_a_run_that_goes_or_is_gone_is_not_given(play: RunService, client: TestClient) -> None:
    channel = play.start(speculative(max_new=400))
    play.act(channel, "pause")
    for what in ("trace", "export.html"):
        answer = client.get(f"/ds/run/{channel.run}/{what}")
        assert answer.status_code == 409 and answer.json()["error"].endswith(".")
        assert client.get(f"/ds/run/{'0' * 16}/{what}").status_code == 404
    play.act(channel, "stop")
    assert play._jobs[channel.run].wait(300)
    channel.path.unlink()
    assert client.get(f"/ds/run/{channel.run}/trace").status_code == 404


def test_a_report_says_what_was_run_and_not_the_prompt(play: RunService, client: TestClient) -> None:
    channel = finished(play, prompt="zyxwvu")
    told = client.get(f"/ds/run/{channel.run}/report")
    assert told.headers["content-type"].startswith("text/plain") and "ended: max_new_tokens" in told.text
    assert '"draft_model"' in told.text and "prompt: 6 tokens" in told.text and "zyxwvu" not in told.text
    assert client.get(f"/ds/run/{'0' * 16}/report").status_code == 404


def test_a_trace_that_is_none_is_refused_in_one_sentence_everywhere(
    play: RunService, client: TestClient
) -> None:
    run = "00000000000000cc"
    (play.folder / f"{run}.dstrace").write_bytes(b"no trace " * 20)
    for what in ("", "/events", "/range?from=0&to=1", "/trace", "/export.html", "/report"):
        answer = client.get(f"/ds/run/{run}{what}")
        assert answer.status_code == 422 and "cannot be shown" in answer.json()["error"], what
        assert "Traceback" not in answer.text and "\n" not in answer.json()["error"]


def test_after_memory_ran_out_less_is_offered(play: RunService, client: TestClient) -> None:
    channel = finished(play)
    assert "smaller" not in client.get(f"/ds/run/{channel.run}").json()
    channel.end.reason = "out_of_memory"
    told = client.get(f"/ds/run/{channel.run}").json()
    assert "weights" in told["estimate"] and len(told["smaller"]) >= 2
    for row in told["smaller"]:
        choice = from_json(row["settings"])
        assert find_matching_preset(choice) in PRESETS and choice.seed == channel.wire.header.seed


def test_a_cache_that_does_not_fit_is_refused_with_the_way_out(
    play: RunService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decodescope.app.runs.model_pool.free_memory", lambda device: 1000)
    with pytest.raises(
        RequestRefusal, match=r"^The cache of \d+ tokens would take .*B and 1\.0 kB are free: ask for fewer"
    ):
        play.start(speculative(max_new=200))
    assert not list(play.folder.glob("*"))


def test_examples_are_listed_and_streamed(client: TestClient) -> None:
    rows = client.get("/ds/examples").json()
    assert rows and all({"run", "title", "about", "settings", "tour"} == x.keys() - {"model"} for x in rows)
    assert {x.get("model", "") for x in rows} == {"", "smollm2-135m-instruct"}
    events = told(client.get(f"/ds/run/{rows[0]['run']}/events").text)
    assert events[-1][0] == "end" and any(kind == "step" for kind, _, _ in events)
