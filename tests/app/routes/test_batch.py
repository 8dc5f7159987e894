"""A method on a set of prompts: a run each, in turn with those of others, until the end or until it is stopped."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient
from toylab import HERE, Words, finished, guarded, occupied, speculative
from waiting import eventually

from decodescope.app.runs.batch import MOST
from decodescope.app.runs.recipe import as_json
from decodescope.engine.trace import open_trace

METHOD = as_json(speculative())


def begun(client: TestClient, **said: Any) -> Any:
    body = {"method": METHOD, "seed": 5, "new": 12, "text": "one\ntwo\nthree"} | said
    return client.post("/ds/batch", json=body)


def ended(client: TestClient, name: str) -> dict[str, Any]:
    return eventually(lambda: (record := client.get(f"/ds/batch/{name}").json())["over"] and record)


def test_every_prompt_gets_a_run_with_the_next_seed_and_they_are_reported(client: TestClient, play: Any) -> None:
    record = ended(client, begun(client).json()["id"])
    assert (record["done"], record["of"], record["tokens"], record["stopped"]) == (3, 3, 36, False)
    assert [x["begins"] for x in record["rows"]] == ["one", "two", "three"] and len(set(record["runs"])) == 3
    traces = [open_trace(play.folder / f"{run}.dstrace") for run in record["runs"]]
    assert [x.header.seed for x in traces] == [5, 6, 7]
    assert [x.header.prompt.tolist() for x in traces] == [Words().encode(x) for x in ("one", "two", "three")]
    assert client.get("/ds/report", params={"runs": ",".join(record["runs"])}).json()["lead"][0].startswith("3 runs of toy")


def test_the_method_may_be_that_of_a_recorded_run(client: TestClient, play: Any) -> None:
    run = finished(play, max_new=8)
    record = ended(client, begun(client, method=run.run, text="one").json()["id"])
    assert open_trace(play.folder / f"{record['runs'][0]}.dstrace").header.method == run.wire.header.method


def test_a_prompt_that_is_refused_is_listed_and_the_others_go_on(client: TestClient) -> None:
    record = ended(client, begun(client, text="one\n" + "word " * 4000 + "\nthree").json()["id"])
    bad = record["rows"][1]
    assert [x["status"] for x in record["rows"]] == ["done", "refused", "done"] and len(record["runs"]) == 2
    assert bad["run"] == "" and bad["why"].endswith(".") and "tokens" in bad["why"]


def test_it_waits_its_turn_also_where_the_queue_is_full_and_a_stop_keeps_what_was_recorded(
    client: TestClient, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ended(client, begun(client, text="one").json()["id"])
    with occupied(play):
        monkeypatch.setattr(play._runner, "queue", 1)
        waits = play.start(speculative(max_new=4))
        name = begun(client).json()["id"]
        record = client.get(f"/ds/batch/{name}").json()
        assert (record["done"], record["over"]) == (0, False) and not any(x["why"] for x in record["rows"])
    assert play._jobs[waits.run].wait(60)
    eventually(lambda: client.get(f"/ds/batch/{name}").json()["done"] > 0)
    assert client.post(f"/ds/batch/{name}/stop").status_code == 200
    record = ended(client, name)
    assert record["stopped"] and record["runs"] and not any(x["why"] for x in record["rows"])
    assert all((play.folder / f"{x}.dstrace").is_file() for x in [*record["runs"], *first["runs"]])


def test_a_stop_ends_the_run_that_goes(client: TestClient, play: Any) -> None:
    play.pausing = True
    name = begun(client, new=400).json()["id"]
    eventually(lambda: [x for x in client.get(f"/ds/batch/{name}").json()["rows"] if x["status"] == "paused"])
    client.post(f"/ds/batch/{name}/stop")
    record = ended(client, name)
    assert [x["status"] for x in record["rows"]] == ["cancelled", "", ""] and record["runs"] == []


def test_kinds_are_counted_before_they_are_chosen(client: TestClient) -> None:
    counted = client.post("/ds/prompts", json={"bench": "labbench"}).json()
    assert counted["count"] == 560 and counted["kinds"]["math"] == 80 and counted["most"] == MOST
    record = begun(client, bench="labbench", text="", kinds=["copy"], each=2, new=4).json()
    assert [x["kind"] for x in record["rows"]] == ["copy", "copy"]
    assert ended(client, record["id"])["done"] == 2


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"text": ""}, "no prompt in the text"),
        ({"text": "x\n" * (MOST + 1)}, f"more than {MOST}"),
        ({"method": "none of these"}, "There is no preset"),
        ({"method": "0" * 16}, "not here any more"),
        ({"method": "plain"}, "drafts nothing"),
        ({"method": None}, "Send "),
        ({"seed": "5"}, "Send "),
        ({"new": True}, "Send "),
        ({"new": 0}, "New tokens = 0: must lie in [1, 4096]"),
        ({"new": 5000}, "New tokens = 5000: must lie in [1, 4096]"),
        ({"seed": -1}, "Seed = "),
        ({"seed": 1 << 53}, "Seed = "),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(client: TestClient, said: dict[str, Any], says: str) -> None:
    answer = begun(client, **said)
    assert answer.status_code == 422 and says in answer.json()["error"] and answer.json()["error"].endswith(".")


def test_batches_and_their_reports_are_listed_by_a_later_server(client: TestClient, play: Any) -> None:
    names = [begun(client, text=text).json()["id"] for text in ("one\ntwo", "three")]
    records = [ended(client, name) for name in names]
    eventually(lambda: len(list((play.folder / "batches").glob("*.json"))) == 2)
    with TestClient(guarded(play), base_url=HERE, headers={"origin": HERE}) as later:
        rows = later.get("/ds/batch").json()["batches"]
        again = later.get(f"/ds/batch/{names[0]}").json()
        lead = later.get("/ds/report", params={"runs": ",".join(rows[1]["runs"])}).json()["lead"]
    assert [(x["id"], x["of"], x["begins"], x["stopped"]) for x in rows] == [
        (names[1], 1, "three", False),
        (names[0], 2, "one", False),
    ]
    assert rows[1]["called"] == "draft model + temperature" and rows[1]["at"] <= rows[0]["at"]
    assert again == records[0] and lead[0].startswith("2 runs of toy")


def test_a_batch_whose_server_died_is_told_as_stopped_with_what_it_left(client: TestClient, play: Any) -> None:
    with occupied(play):
        name = begun(client, text="one\ntwo").json()["id"]
        assert client.get(f"/ds/batch/{name}").json()["done"] == 0
        assert not (play.folder / "batches" / f"{name}.json").exists(), "nothing came of it yet"
    ended(client, name)
    file = play.folder / "batches" / f"{name}.json"
    left = eventually(lambda: file.is_file() and (record := json.loads(file.read_bytes()))["over"] and record)
    file.write_text(json.dumps({**left, "over": False, "done": 1, "runs": left["runs"][:1]}))
    with TestClient(guarded(play), base_url=HERE, headers={"origin": HERE}) as later:
        record = later.get(f"/ds/batch/{name}").json()
    assert (record["over"], record["stopped"], record["done"], len(record["runs"])) == (True, True, 1, 1)


def test_a_batch_that_is_not_here_is_said_to_be_gone(client: TestClient) -> None:
    assert "Library" in client.get("/ds/batch/0123").json()["error"]
