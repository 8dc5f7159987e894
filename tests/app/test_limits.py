"""The limits of a server: their default values can be seen and changed, they hold, and a refusal names its limit."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient
from toylab import HERE, ToyPlay, finished, guarded, occupied, speculative, toy_play
from waiting import eventually

from decodescope.app import server as servers
from decodescope.app.basis.limits import SEEDS, LabLimits
from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.cli import main
from decodescope.app.commands.doctor import FREE_BYTES
from decodescope.app.http.guard import BODY
from decodescope.app.routes.runs import STREAMS
from decodescope.app.runs import run_service as plays
from decodescope.app.runs.event_stream import UPDATE
from decodescope.app.runs.library import Library, upload_limits
from decodescope.app.runs.record_stream import RING
from decodescope.app.runs.run_service import RunService
from decodescope.engine.trace import UPLOADED, open_trace
from decodescope.engine.trace.values.limits import BIGGEST

ROOT = Path(__file__).resolve().parents[2]
USUAL = {"queue": 16, "minutes": 10, "upload": 64, "free": 1024, "keep": 2048, "hours": 24}


@pytest.fixture
def limited(tmp_path: Path) -> Any:
    """Create labs with these limits."""
    made: list[ToyPlay] = []

    def make(**limits: int) -> ToyPlay:
        play = toy_play(tmp_path)
        play.limits = LabLimits(**limits)
        made.append(play)
        return play

    yield make
    for play in made:
        play.close()


# ---- seen and changed


def test_the_usual_limits_are_those_of_one_s_own_computer() -> None:
    assert {x.name: getattr(LabLimits(), x.name) for x in fields(LabLimits)} == USUAL
    assert (
        BODY == UPLOADED.file_bytes == upload_limits(64).file_bytes == 64 << 20
        and upload_limits(64) == UPLOADED
    )
    assert FREE_BYTES == 1 << 30 and SEEDS == BIGGEST


def test_a_limit_is_seen_as_the_server_has_it(limited: Any) -> None:
    with TestClient(guarded(limited(queue=3)), base_url=HERE) as client:
        rows = {row["option"]: row for row in client.get("/ds/limits").json()["limits"]}
    assert {name.removeprefix("--"): row["usual"] for name, row in rows.items()} == USUAL
    assert rows["--queue"]["value"] == 3 and rows["--minutes"]["value"] == 10
    assert all(
        row["low"] <= row["usual"] <= row["high"] and row["help"] and row["unit"] for row in rows.values()
    )


def test_a_limit_is_changed_when_the_lab_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(servers, "serve", lambda **said: given.update(said))
    wanted = {name: value + 1 for name, value in USUAL.items()}
    assert main(["app", *(word for name, value in wanted.items() for word in (f"--{name}", str(value)))]) == 0
    assert given["limits"] == LabLimits(**wanted)
    assert main(["app"]) == 0 and given["limits"] == LabLimits()


@pytest.mark.parametrize("row", LabLimits().rows(), ids=lambda row: row["option"])
def test_a_limit_outside_its_bounds_is_refused_by_name(
    row: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for value in (row["low"] - 1, row["high"] + 1, "x"):
        assert main(["app", row["option"], str(value)]) == 2
        told = capsys.readouterr().err
        assert (
            row["option"] in told
            and f"from {row['low']} to {row['high']}" in told
            and "Traceback" not in told
        )


def test_the_server_takes_the_limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept: dict[str, Any] = {}

    class Stopped(Exception):
        pass

    def config(guard: Any, **more: Any) -> Any:
        kept["guard"] = guard
        raise Stopped

    monkeypatch.setattr(servers.uvicorn, "Config", config)
    with pytest.raises(Stopped):
        servers.serve(port=0, data=tmp_path, open_browser=False, limits=LabLimits(upload=8))
    assert kept["guard"].body == 8 << 20


# ---- they hold, and are named


def test_a_full_queue_names_its_limit_and_takes_no_more(limited: Any) -> None:
    play = limited(queue=2)
    with occupied(play):
        for _ in range(2):
            play.start(speculative())
        with pytest.raises(
            RequestRefusal,
            match=r"^2 runs are waiting, which is the limit: stop one, .*; --queue sets the limit\.$",
        ):
            play.start(speculative())
    eventually(lambda: not play.active_runs())
    assert finished(play).status == "done"


def test_a_run_beyond_its_time_is_ended_and_says_how_to_go_further(limited: Any) -> None:
    play = limited(minutes=0)  # lower than a user can choose: the run ends after the first step
    channel = finished(play, max_new=200)
    assert channel.end.reason == "stopped_by_user" and 0 < channel.count < 200
    assert channel.end.message == (
        "The run reached the limit of 0 s: ask for fewer new tokens, or start the lab with a larger --minutes."
    )
    trace = open_trace(channel.path)
    assert len(trace.steps) == channel.count and trace.end is not None, "the steps are kept"


def test_a_pause_takes_nothing_of_a_run_s_time(limited: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock advances by an hour while the run is paused after its first step."""
    passed = [0.0]
    clock = SimpleNamespace(perf_counter=lambda: time.perf_counter() + passed[0])
    monkeypatch.setattr("decodescope.engine.session.runner.time", clock)
    play = limited()
    play.pausing = True
    channel = play.start(speculative(max_new=24))
    play._runner.longest_s = 60.0  # type: ignore[union-attr] # started above
    play.act(channel, "step")
    eventually(lambda: channel.count == 1 and channel.status == "paused")
    passed[0] = 3600.0
    play.act(channel, "resume")
    assert play._jobs[channel.run].wait(120) and channel.end.reason == "max_new_tokens"


def test_a_disk_that_is_nearly_full_takes_no_run_and_no_trace(
    limited: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = limited()
    usage = shutil.disk_usage(play.folder)
    monkeypatch.setattr(plays.shutil, "disk_usage", lambda path: usage._replace(free=1000 << 20))
    says = r"The disk of the traces has 1000 MiB left and 1024 MiB must stay free: delete old traces; --free sets the limit\."
    with pytest.raises(RequestRefusal, match=says):
        play.start(speculative())
    with TestClient(guarded(play), base_url=HERE, headers={"origin": HERE}) as client:
        answer = client.post("/ds/library", params={"name": "x.dstrace"}, content=b"x")
    assert answer.status_code == 422 and re.fullmatch(says, answer.json()["error"])
    assert not list(play.folder.iterdir()), "nothing was written"
    play.limits = LabLimits(free=1000)
    assert finished(play).status == "done"


def test_a_trace_above_the_limit_of_uploads_is_refused_by_name(limited: Any) -> None:
    play = limited(upload=1)  # lower than a user can choose
    for guard, content in (
        (guarded(play, body=1 << 20), b"x" * (1 << 20 | 1)),
        (guarded(play), b"x" * (1 << 20 | 1)),
    ):
        with TestClient(guard, base_url=HERE, headers={"origin": HERE}) as client:
            answer = client.post("/ds/library", params={"name": "mine.dstrace"}, content=content)
        assert answer.status_code == 413
        assert answer.json()["error"].endswith(
            "is larger than 1 MiB, which is the limit: record a shorter run, or start the lab with a larger --upload."
        )
    assert not list(play.folder.iterdir())


def test_more_is_taken_where_the_limit_is_larger(
    limited: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert (upload_limits(256).file_bytes, upload_limits(256).expanded_bytes) == (256 << 20, 1 << 30)
    assert (
        upload_limits(256).record_bytes == UPLOADED.record_bytes
        and upload_limits(256).steps == UPLOADED.steps
    )


def test_the_oldest_traces_go_above_the_limit_and_the_list_tells_it(limited: Any) -> None:
    play = limited(keep=0)  # lower than a user can choose: only the newest trace stays
    first = finished(play)
    second = finished(play)
    assert not first.path.exists() and second.path.exists()
    assert (
        Library(play).listing()["most"] == 0 and Library(toy_play(play.folder)).listing()["most"] == 2 << 30
    )


def test_what_is_left_of_an_upload_goes_after_a_day_and_nothing_else_does(limited: Any) -> None:
    play = limited()
    old, new = play.folder / f".{'a' * 16}.upload", play.folder / f".{'b' * 16}.upload"
    others = [play.folder / x for x in (f"{'c' * 16}.dstrace.partial", ".hidden", f".{'d' * 16}.uploaded")]
    for path in (old, new, *others):
        path.write_bytes(b"x")
        os.utime(path, (0, 0) if path is not new else None)
    Library(play).listing()
    assert not old.exists() and new.exists() and all(x.exists() for x in others)


def test_the_page_library_keeps_no_files_for_anybody(tmp_path: Path) -> None:
    play = toy_play(tmp_path)
    with TestClient(guarded(play, page=True), base_url=HERE, headers={"origin": HERE}) as client:
        form = {f"files{i}": (f"{i}.txt", b"x") for i in range(1001)}
        began = time.perf_counter()
        answer = client.post("/gradio_api/upload", files=form)
        assert (
            answer.status_code == 404
            and "Library" in answer.json()["error"]
            and time.perf_counter() - began < 10
        )
    play.close()


def test_questions_without_end_find_a_bounded_queue_and_then_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests through the page library: four run at a time, 64 wait, and the rest are refused at no cost."""
    play, go, taken = toy_play(tmp_path), threading.Event(), []

    def waiting(choice: Any, visitor: str = "") -> Any:
        taken.append(choice)
        go.wait(60)
        raise RequestRefusal("Not now.")

    monkeypatch.setattr(play, "start", waiting)
    with TestClient(guarded(play, page=True), base_url=HERE, headers={"origin": HERE}) as client:
        config = client.get("/config").json()
        run = next(x for x in config["dependencies"] if x["targets"] and x["targets"][0][1] == "click")
        values = {x["id"]: x["props"].get("value") for x in config["components"]}
        question = {"data": [values[i] for i in run["inputs"]], "fn_index": run["id"], "event_data": None}
        answers = []
        for i in range(90):
            answers.append(
                client.post("/gradio_api/queue/join", json={**question, "session_hash": f"visitor{i}"})
            )
            if i < 4:
                eventually(lambda: len(taken) > i)  # noqa: B023 # the request has left the queue
        codes = [x.status_code for x in answers]
        assert codes == [200] * 68 + [503] * 22
        assert "full" in answers[-1].json()["detail"] and "64" in answers[-1].json()["detail"]
        assert client.get("/ds/state").status_code == 200, "the rest answers"
        go.set()
        later = {**question, "session_hash": "later"}
        room = lambda: client.post("/gradio_api/queue/join", json=later).status_code == 200  # noqa: E731
        eventually(room, "there is no room again")
    assert not play._jobs
    play.close()


def test_no_event_tells_all_boxes_that_it_is_under_way(tmp_path: Path) -> None:
    """The page library searches the whole page for each box that it notifies.

    With hundreds of boxes a page needs seconds to open.
    """
    play = toy_play(tmp_path)
    with TestClient(guarded(play, page=True), base_url=HERE, headers={"origin": HERE}) as client:
        events = client.get("/config").json()["dependencies"]
    assert max(len(x["outputs"]) for x in events) > 30, "the test needs an event that may change any box"
    assert all(len(x["show_progress_on"] or x["outputs"]) == 1 for x in events)
    play.close()


def test_run_and_check_answer_what_no_page_sends_in_a_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    play = toy_play(tmp_path)
    with TestClient(guarded(play, page=True), base_url=HERE, headers={"origin": HERE}) as client:
        config = client.get("/config").json()
        boxes = {x["id"]: x["props"] for x in config["components"]}

        def called(what: dict[str, Any], name: str, value: Any) -> list[Any]:
            """The answer of a handler when the input of that name has this value."""
            names = [boxes[i].get("elem_id") or boxes[i].get("label") for i in what["inputs"]]
            data = [
                value if x == name else boxes[i].get("value")
                for i, x in zip(what["inputs"], names, strict=True)
            ]
            visitor = f"{what['id']} {name} {value}"
            client.post(
                "/gradio_api/queue/join", json={"data": data, "fn_index": what["id"], "session_hash": visitor}
            )
            stream = client.get("/gradio_api/queue/data", params={"session_hash": visitor}).text
            answer = next(json.loads(x[6:]) for x in stream.splitlines() if "process_completed" in x)
            assert answer["success"], (name, value, answer)
            return answer["output"]["data"]

        all_boxes = [x for x in config["dependencies"] if x["targets"] and len(x["inputs"]) > 9]
        run, check = (  # handlers of a part's choice also return the boxes that become visible
            min((x for x in all_boxes if x["targets"][0][1] == way), key=lambda x: len(x["outputs"]))
            for way in ("click", "change")
        )
        for value in (7, ["hello"]):
            assert called(run, "ds-prompt", value)[0]["refused"].startswith("Write a prompt first")
        for way, value in [(run, True), (run, {"a": 1}), (check, [1]), (check, "warm")]:
            held = {"temperature": {"temperature": value}}
            assert "temperature.temperature = " in called(way, "ds-sampler-knobs", held)[0]["refused"]
        for odd in (7, [], {"temperature": 7}, {"temperature": {"x": 1}}, {"nothing": {}}):
            assert "keep" in called(check, "ds-sampler-knobs", odd)[0], "what no panel holds is passed over"
        for value in (True, None):
            assert called(run, "ds-seed", value)[0]["refused"].startswith(
                "Seed = a box without a whole number"
            )
        for value in ("x", {"a": 1}):
            assert "keep" in called(check, "ds-seed", value)[0]
        for way, value in [(run, 7), (check, ["lab"])]:
            assert (
                called(way, "ds-drafter", value)[0]["refused"] == f"Drafter = {value}: choose from its list."
            )
        assert (
            called(check, "ds-sampler", [[]])[0]["refused"] == "Sampler chain = [[]]: choose from its list."
        )
        assert called(check, "ds-target", None)[0]["refused"].endswith("choose one under Model.")
        assert "is not offered here" in called(check, "ds-target", ["lab"])[0]["refused"]
    assert not play._channels and "Traceback" not in "".join(capfd.readouterr())
    play.close()


# ---- a run that is still being read


def test_a_recorded_run_that_is_still_being_read_is_not_going(
    play: RunService, monkeypatch: pytest.MonkeyPatch
) -> None:
    from decodescope.app.runs import record_stream as events
    from decodescope.app.runs.record_stream import RecordStream

    source = finished(play, max_new=24)
    play.release_run(source.run)
    held, read_on = threading.Event(), RecordStream._read_rest
    monkeypatch.setattr(events, "LONG", 5)
    monkeypatch.setattr(events, "FIRST", 4)  # the header, the prompt and two steps
    monkeypatch.setattr(
        RecordStream, "_read_rest", lambda self, records: held.wait(60) and read_on(self, records)
    )
    threading.Timer(1.0, held.set).start()
    with TestClient(guarded(play), base_url=HERE, headers={"origin": HERE}) as client:
        status = client.get(f"/ds/run/{source.run}").json()
        assert (status["status"], status["steps"], status["of"]) == ("done", 2, source.count)
        assert client.post(f"/ds/run/{source.run}/pause").json()["error"] == "The run is over."
        assert client.get(f"/ds/run/{source.run}/trace").content == source.path.read_bytes(), (
            "its file is whole"
        )
        assert client.get("/ds/report", params={"runs": source.run}).status_code == 200
        assert client.post(f"/ds/library/{source.run}/name", json={"value": "long"}).status_code == 200
        assert client.post(f"/ds/library/{source.run}/delete").status_code == 200
        assert client.get(f"/ds/run/{source.run}").status_code == 404
        assert client.post(f"/ds/library/{source.run}/restore").status_code == 200
        assert client.get(f"/ds/run/{source.run}").json()["status"] == "done"
    assert held.is_set(), "the reader was waited for"


# ---- the page of documentation


def test_the_documentation_has_the_usual_figures_and_names_tests_that_there_are() -> None:
    text = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    for row in LabLimits().rows():
        assert re.search(rf"\| `{row['option']}` \| {row['usual']}\b", text), row["option"]
    named = set(re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)", text))
    assert len(named) > 12 and all((ROOT / x).is_file() for x in named)
    assert f"| {STREAMS} |" in text and f"{plays.MOST_NEW:,}" in text and f"{UPDATE >> 20} MiB" in text
    assert f"{RING:,} a run, {plays.REMEMBERED} runs" in text
