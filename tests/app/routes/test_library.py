"""The traces in the folder: list, name, keep, delete, restore, add from anywhere, and save in other forms."""

from __future__ import annotations

import json
import time
import zlib
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from starlette.testclient import TestClient
from toylab import HERE, ToyPlay, finished, guarded, occupied, speculative, toy_play
from waiting import awaited

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.basis.storage import NAME, STAR, remove_old_traces
from decodescope.app.runs import library as shelves
from decodescope.app.runs.catalogue.examples import examples, shipped_examples
from decodescope.app.runs.composition import RunChoice
from decodescope.app.runs.event_stream import EventReader, stream_events
from decodescope.app.runs.library import BIN, Library
from decodescope.app.runs.model_pool import ModelPool
from decodescope.app.runs.run_service import RunService
from decodescope.engine.trace import PARTIAL, TraceWriter, open_trace
from decodescope.engine.trace.encoding import disk
from decodescope.engine.trace.records.events import DraftTree, End, Step


def library(client: TestClient) -> dict[str, Any]:
    """The list, once all of it was read: an answer leaves rows for the next one where reading takes long."""
    while (found := client.get("/ds/library").json())["more"]:
        pass
    return found


def listed(client: TestClient) -> dict[str, Any]:
    """The user's own rows by run."""
    return {row["run"]: row for row in library(client)["rows"] if not row.get("example")}


def test_a_row_tells_what_its_trace_holds(play: RunService, client: TestClient) -> None:
    first, second = finished(play, max_new=12), finished(play, prompt="another one", max_new=30)
    found = client.get("/ds/library").json()
    own = [row for row in found["rows"] if not row.get("example")]
    assert [row["run"] for row in own] == [second.run, first.run], "the newest first"
    assert found["bytes"] == sum(x.path.stat().st_size for x in (first, second)) and found["most"] == 2 << 30
    trace = open_trace(second.path)
    row = own[0]
    assert (row["steps"], row["tokens"], row["model"]) == (len(trace.steps), 30, "toy")
    assert sum(row["bars"]) == pytest.approx(30) and row["tau"] == pytest.approx(
        30 / len(trace.steps), rel=0.01
    )
    assert (
        row["text"] == trace.text()
        and row["method"] == trace.header.method
        and row["size"] == second.path.stat().st_size
    )
    assert {row["run"] for row in found["rows"] if row.get("example")} == {x.run for x in examples()}


def test_many_steps_make_few_columns_of_the_same_mean() -> None:
    counts = [1, 5] * 100
    made = shelves._bars(counts)
    assert len(made) <= shelves.BARS and sum(made) / len(made) == pytest.approx(3)


@pytest.mark.nightly
def test_a_long_list_is_read_bit_by_bit(
    play: RunService, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = {finished(play, max_new=4).run for _ in range(3)}
    monkeypatch.setattr(shelves, "AT_ONCE_S", -1.0)
    found = client.get("/ds/library").json()
    assert found["more"] and {row["run"] for row in found["rows"] if row.get("pending")} >= runs
    monkeypatch.setattr(shelves, "AT_ONCE_S", 60.0)
    found = client.get("/ds/library").json()
    assert not found["more"] and all("steps" in row for row in found["rows"])


def test_what_was_read_is_read_again_only_when_the_file_changes(
    play: RunService, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = finished(play, max_new=6)
    before = listed(client)[channel.run]
    read: list[Path] = []
    told = shelves._trace_row
    monkeypatch.setattr(shelves, "_trace_row", lambda path: read.append(path) or told(path))
    assert listed(client)[channel.run] == before and not read
    data = channel.path.read_bytes()
    channel.path.write_bytes(data[:-20])
    torn = listed(client)[channel.run]
    assert read == [channel.path] and torn["damage"] and str(channel.path.parent) not in json.dumps(torn)


def test_a_file_that_is_no_trace_is_listed_with_the_reason(play: RunService, client: TestClient) -> None:
    path = play.folder / f"{'ab' * 8}.dstrace"
    path.write_bytes(b"something else")
    (play.folder / "notes.dstrace").write_bytes(b"not one of our names")
    row = listed(client)[path.stem]
    assert "not a DecodeScope trace" in row["trouble"] and str(play.folder) not in row["trouble"]
    assert set(listed(client)) == {path.stem}
    assert client.post(f"/ds/library/{path.stem}/delete").status_code == 200 and not listed(client)


def test_a_trace_is_named_starred_and_found_like_that_after_a_restart(
    play: RunService, client: TestClient, tmp_path: Path
) -> None:
    run = finished(play).run
    assert client.post(f"/ds/library/{run}/name", json={"value": "  first \n try "}).status_code == 200
    assert client.post(f"/ds/library/{run}/star", json={"value": True}).status_code == 200
    again = {row["run"]: row for row in Library(RunService("toy", None, tmp_path)).listing()["rows"]}[run]
    assert again["title"] == "first try" and again["star"]
    client.post(f"/ds/library/{run}/star", json={"value": False})
    client.post(f"/ds/library/{run}/name", json={"value": ""})
    assert not listed(client)[run]["star"] and listed(client)[run]["title"] == ""
    assert [x.name for x in tmp_path.iterdir()] == [f"{run}.dstrace"], "nothing is left beside it"


@pytest.mark.parametrize(
    ("action", "body", "status"),
    [
        ("name", {"value": "x" * 81}, 422),
        ("name", {"value": "a\u202eb"}, 422),
        ("name", {"value": 3}, 404),
        ("star", {"value": "yes"}, 404),
        ("star", [], 400),
        ("burn", {}, 404),
        ("name", {"value": "x" * 5000}, 413),
    ],
)
def test_a_change_that_makes_no_sense_is_refused_in_a_sentence(
    play: RunService, client: TestClient, action: str, body: Any, status: int
) -> None:
    run = finished(play, max_new=3).run
    answer = client.post(f"/ds/library/{run}/{action}", json=body)
    assert answer.status_code == status and answer.json()["error"].endswith(".")
    assert sorted(x.suffix for x in play.folder.iterdir()) == [".dstrace"]


@pytest.mark.parametrize("run", ["..%2f..%2fx", "zz", "0" * 16, "%00"])
def test_only_traces_of_the_folder_can_be_changed(play: RunService, client: TestClient, run: str) -> None:
    for action in ("name", "star", "delete", "restore"):
        answer = client.post(f"/ds/library/{run}/{action}", json={"value": "x" if action == "name" else True})
        assert answer.status_code in (404, 422) and "error" in answer.json()
    example = shipped_examples()[0]
    answer = client.post(f"/ds/library/{example.run}/delete")
    assert (
        answer.status_code == 422
        and "come with the package" in answer.json()["error"]
        and example.path.is_file()
    )


def test_a_deleted_trace_can_be_brought_back_with_name_and_star(
    play: RunService, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = finished(play)
    run, data = channel.run, channel.path.read_bytes()
    client.post(f"/ds/library/{run}/name", json={"value": "mine"})
    client.post(f"/ds/library/{run}/star", json={"value": True})
    before = listed(client)[run]
    assert client.post(f"/ds/library/{run}/delete").status_code == 200
    assert run not in listed(client) and client.get(f"/ds/run/{run}").status_code == 404
    assert client.post(f"/ds/library/{run}/delete").status_code == 422
    assert client.post(f"/ds/library/{run}/restore").status_code == 200
    assert listed(client)[run] == before and channel.path.read_bytes() == data
    assert client.get(f"/ds/run/{run}").json()["status"] == "done"
    again = client.post(f"/ds/library/{run}/restore")
    assert again.status_code == 422 and "already there" in again.json()["error"]
    # deleted traces can be restored for an hour; then they are erased
    client.post(f"/ds/library/{run}/delete")
    listed(client)
    assert (play.folder / BIN / channel.path.name).exists()
    now = time.time()
    monkeypatch.setattr(shelves.time, "time", lambda: now + shelves.UNDO_S + 5)
    listed(client)
    assert not list((play.folder / BIN).iterdir())
    assert "erased" in client.post(f"/ds/library/{run}/restore").json()["error"]


def test_a_run_that_goes_cannot_be_deleted(play: Any, client: TestClient) -> None:
    play.pausing = True
    channel = play.start(speculative(max_new=200))
    answer = client.post(f"/ds/library/{channel.run}/delete")
    assert answer.status_code == 422 and "stop it first" in answer.json()["error"]
    play._jobs[channel.run].cancel()


def test_what_a_run_left_behind_is_listed_opened_deleted_and_brought_back(
    play: RunService, client: TestClient
) -> None:
    channel = finished(play, max_new=40)
    whole, count = channel.path.read_bytes(), channel.count
    play.release_run(channel.run)
    left = channel.path.with_name(channel.path.name + ".partial")
    left.write_bytes(whole[: len(whole) // 2])  # cut in the middle of a record, without an end
    assert not listed(client)[channel.run]["damage"], "one that was sealed too is listed once"
    channel.path.unlink()
    row = listed(client)[channel.run]
    assert 0 < row["steps"] < count and row["bars"] and not row.get("trouble")
    assert row["damage"] == f"cut off when its program ended; the first {row['steps']} steps are whole"
    state = client.get(f"/ds/run/{channel.run}").json()
    assert (state["status"], state["reason"], state["steps"]) == ("failed", "interrupted", row["steps"])
    assert len(client.get(f"/ds/run/{channel.run}/range?from=0&to=2").json()["steps"]) == 2
    for path in ("trace", "export.html", "decisions.csv", "perfetto.json"):
        assert client.get(f"/ds/run/{channel.run}/{path}").status_code == 200, path
    assert client.post(f"/ds/library/{channel.run}/name", json={"value": "the torn one"}).status_code == 200
    assert client.post(f"/ds/library/{channel.run}/delete").status_code == 200 and not left.exists()
    assert client.get(f"/ds/run/{channel.run}").status_code == 404
    assert client.post(f"/ds/library/{channel.run}/restore").status_code == 200 and left.exists()
    assert [x["title"] for x in listed(client).values()] == ["the torn one"]
    # a trace that a run is still writing is not offered
    with open(left, "r+b", buffering=0) as file:
        assert disk.lock(file)
        assert not listed(client)


@pytest.mark.nightly
def test_a_run_that_waited_when_its_server_ended_is_listed_as_not_begun(
    play: ToyPlay, client: TestClient
) -> None:
    with occupied(play):
        waiting, stopped = (
            play.start(speculative(max_new=4), "anna"),
            play.start(speculative(max_new=4), "bert"),
        )
        left = waiting.path.with_name(waiting.path.name + PARTIAL)
        assert not listed(client), "here they are going"
        # the next server finds it
        shelf = TestClient(guarded(RunService("toy", None, play.folder)), base_url=HERE)
        row = listed(shelf)[waiting.run]
        assert row["damage"] == "not begun: its program ended while the run waited" and row["steps"] == 0
        assert row["text"] and shelf.get(f"/ds/run/{waiting.run}").json()["reason"] == "interrupted"
        play.act(stopped, "stop")
    assert play._jobs[waiting.run].wait(300) and not left.exists()
    rows = listed(client)
    assert not rows[waiting.run]["damage"] and rows[waiting.run]["text"].startswith(row["text"])
    assert rows[waiting.run]["steps"] == waiting.count > 0
    assert rows[stopped.run]["end"] == "stopped_by_user"
    assert open_trace(waiting.path).header.pieces, (
        "the header that was left meanwhile took nothing from its own"
    )


def test_so_is_one_whose_models_were_still_to_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Event()

    def bring(self: ModelPool, names: dict[str, str]) -> dict[str, Any]:
        assert asked.wait(60)
        raise RequestRefusal("There is no room for lab-draft.")

    monkeypatch.setattr(ModelPool, "ensure_loaded", bring)
    play = RunService("lab-draft", None, tmp_path)
    try:
        waiting = play.start(RunChoice("Say hello.", {"drafter": "prompt_lookup"}, {}, max_new=4, chat=True))
        row = listed(TestClient(guarded(RunService("toy", None, tmp_path)), base_url=HERE))[waiting.run]
        assert row["damage"].startswith("not begun") and row["steps"] == 0 and row["model"] == "lab-draft"
        assert row["named"] == "prompt lookup + greedy: Say hello." == waiting.named
        asked.set()
        assert play._jobs[waiting.run].wait(60) and "no room" in str(waiting.state())
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(waiting.run)]
    finally:
        asked.set()
        play.close()


def test_a_run_that_finds_no_room_in_the_queue_leaves_nothing(play: ToyPlay) -> None:
    with occupied(play):
        play.worker().queue = 0
        with pytest.raises(RequestRefusal, match="--queue"):
            play.start(speculative(), "anna")
    assert [x.suffix for x in play.folder.iterdir()] == [".dstrace"]


def test_nothing_is_changed_for_another_page_s_request(play: RunService) -> None:
    run = finished(play).run
    with TestClient(guarded(play), base_url=HERE) as client:
        for headers in ({}, {"origin": "http://evil.example"}, {"origin": "null"}):
            for path, body in [
                (f"/{run}/delete", b""),
                (f"/{run}/name", b'{"value":"x"}'),
                ("?name=x", b"abc"),
            ]:
                assert client.post("/ds/library" + path, content=body, headers=headers).status_code == 403
    assert sorted(x.name for x in play.folder.iterdir()) == [f"{run}.dstrace"]


def test_a_name_goes_with_its_trace_when_room_is_made(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"{i}.dstrace").write_bytes(b"x" * 100)
        (tmp_path / f"{i}.dstrace{NAME}").write_text("n")
    (tmp_path / f"0.dstrace{STAR}").touch()
    remove_old_traces(tmp_path, 0)
    assert sorted(x.name for x in tmp_path.iterdir() if x.name.endswith(NAME)) == [
        "0.dstrace.name",
        "2.dstrace.name",
    ]


# ---- added from anywhere


def sent(client: TestClient, data: bytes, name: str = "mine.dstrace") -> Any:
    """The answer to an upload."""
    return client.post("/ds/library", params={"name": name}, content=data)


def test_a_trace_of_another_machine_is_added_and_shown(
    play: RunService, client: TestClient, tmp_path_factory: Any
) -> None:
    other = toy_play(tmp_path_factory.mktemp("other"))
    channel = finished(other)
    data = channel.path.read_bytes()
    other.close()
    assert client.get(f"/ds/run/{channel.run}").status_code == 404
    assert sent(client, data).json() == {"run": channel.run, "known": False}
    assert client.get(f"/ds/run/{channel.run}").json()["steps"] == channel.count
    assert listed(client)[channel.run]["steps"] == channel.count
    assert sent(client, data).json() == {"run": channel.run, "known": True}
    assert [x.name for x in play.folder.iterdir()] == [f"{channel.run}.dstrace"], (
        "no part of the upload is left"
    )
    example = shipped_examples()[0]
    assert sent(client, example.path.read_bytes()).json() == {"run": example.run, "known": True}


def test_a_torn_trace_is_added_as_far_as_it_is_whole(
    play: RunService, client: TestClient, tmp_path_factory: Any
) -> None:
    other = toy_play(tmp_path_factory.mktemp("other"))
    channel = finished(other)
    data = channel.path.read_bytes()
    other.close()
    assert sent(client, data[:-30]).json()["run"] == channel.run
    assert listed(client)[channel.run]["damage"]
    client.post(f"/ds/library/{channel.run}/name", json={"value": "mine"})
    shorter = sent(client, data[:-60])
    assert shorter.status_code == 422 and "is here already and differs" in shorter.json()["error"]
    assert sent(client, data).json() == {"run": channel.run, "known": False}, (
        "the whole file takes the place of a damaged one"
    )
    row = listed(client)[channel.run]
    assert (
        not row["damage"]
        and row["title"] == "mine"
        and (play.folder / f"{channel.run}.dstrace").read_bytes() == data
    )
    torn = sent(client, data[:-30])
    assert torn.status_code == 422 and "is here already and differs" in torn.json()["error"]


def hostile(data: bytes) -> dict[str, bytes]:
    """Files that no client should send."""
    size = len(data)
    return {
        "empty": b"",
        "another file": b"PK\x03\x04" + b"\0" * 400,
        "its beginning": data[:12],
        "one byte changed": data[: size // 2] + bytes([data[size // 2] ^ 255]) + data[size // 2 + 1 :],
        "a forged length": data[:8] + b"\xff\xff\xff\x7f" + data[12:],
        "a bomb": data[:8] + zlib.compress(b"\0" * (1 << 20)),
    }


@pytest.mark.parametrize("kind", list(hostile(b"x" * 100)))
def test_a_hostile_file_is_refused_in_one_sentence_and_leaves_nothing(
    play: RunService, client: TestClient, kind: str
) -> None:
    answer = sent(client, hostile(shipped_examples()[0].path.read_bytes())[kind], "<img src=x>.dstrace")
    told = answer.json()["error"]
    assert answer.status_code == 422, kind
    assert told.startswith("<img src=x>.dstrace was not taken: ") and told.endswith(".") and "\n" not in told
    assert str(play.folder) not in told and "Traceback" not in told and len(told) < 500
    assert not list(play.folder.iterdir())


def written(play: RunService, many: int, piece: str, steps: int = 1) -> bytes:
    """A trace of well-formed steps of `many` accepted nodes, each the same token with the text `piece`."""
    source = open_trace(finished(play, max_new=4).path)
    path = play.folder / "made.dstrace"
    writer = TraceWriter(
        path, replace(source.header, run="f" * 16, pieces={**source.header.pieces, "1": piece})
    )
    writer.write(source.prefill)
    draft, n = DraftTree([1] * many, list(range(-1, many - 1)), [1.0] * many), len(source.header.prompt)
    for i in range(steps):
        one = {
            "emitted": [1] * (many + 1),
            "origins": ["accepted"] * many + ["bonus"],
            "path": list(range(many)),
        }
        writer.write(Step(i, n, i * 10.0, 1.0, **one, drafted=many, accepted=many, draft=draft))
        n += many + 1
    writer.seal(End("max_new_tokens", [1] * (many + 1) * steps, steps))
    source.close()
    data = path.read_bytes()
    for one in play.folder.iterdir():
        one.unlink()
    return data


@pytest.mark.parametrize(
    ("many", "piece", "steps", "says"),
    [
        (
            600,
            "x" * 4000,
            1,
            "step 0 would be shown with 4,804,000 characters of text, and at most 1,048,576 are.",
        ),
        (100_000, "x", 1, "bytes on the page, and at most 5,242,880 are shown."),
        (100, "x" * 4000, 90, "its steps hold more than 67,108,864 characters of text, which is the limit."),
    ],
)
def test_a_small_file_that_would_fill_the_memory_is_refused(
    play: RunService, client: TestClient, many: int, piece: str, steps: int, says: str
) -> None:
    """Every record respects its limit, but one token with a long text occurs thousands of times."""
    data = written(play, many, piece, steps)
    assert len(data) < 4 << 20
    answer = sent(client, data)
    assert answer.status_code == 422 and answer.json()["error"].endswith(says)
    assert not list(play.folder.iterdir())


def test_what_is_sent_at_once_is_bounded(play: RunService, client: TestClient) -> None:
    assert sent(client, written(play, 100, "x" * 4000, 60)).status_code == 200
    channel = play.find("f" * 16)

    async def parts() -> list[bytes]:
        return [part async for part in stream_events(EventReader(channel))]

    found = awaited(parts())
    assert max(map(len, found)) < 6 << 20 < sum(map(len, found)), "the test needs more than is sent at once"
    assert b"".join(found).count(b"\nid: ") == 60
    assert len(client.get(f"/ds/run/{channel.run}/range?from=0&to=60").content) < 6 << 20


def test_a_file_above_the_limit_is_refused_before_it_is_kept(play: RunService, client: TestClient) -> None:
    answer = client.post("/ds/library", headers={"content-length": str((64 << 20) + 1)})
    assert answer.status_code == 413 and "64 MiB" in answer.json()["error"]
    assert not list(play.folder.iterdir())


# ---- saved in other forms


def test_a_run_is_saved_as_perfetto_events(play: RunService, client: TestClient) -> None:
    channel = finished(play)
    answer = client.get(f"/ds/run/{channel.run}/perfetto.json")
    events = answer.json()["traceEvents"]
    assert "attachment" in answer.headers["content-disposition"]
    assert sum(event["name"].startswith("step ") for event in events) == channel.count
    assert client.get(f"/ds/run/{'0' * 16}/perfetto.json").status_code == 404


def test_a_library_without_its_folder_is_empty(tmp_path: Path) -> None:
    library = Library(RunService("lab", None, tmp_path / "none"))
    assert [row["run"] for row in library.listing()["rows"]] == [x.run for x in examples()]
    with pytest.raises(RequestRefusal, match="not here any more"):
        library.star("0" * 16, True)
