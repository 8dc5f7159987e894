"""A method on a set of prompts: one run for each, taking turns with other runs, until the set ends or is stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest
from starlette.testclient import TestClient
from toylab import HERE, Words, finished, guarded, occupied, speculative
from waiting import eventually

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.runs.batch_member import ONLY_STOPPED
from decodescope.app.runs.compare.batch import MOST
from decodescope.app.runs.compare.lockstep import Lockstep
from decodescope.app.runs.recipe import as_json
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.trace import check, open_trace

METHOD = as_json(speculative())


def begun(client: TestClient, **said: Any) -> Any:
    body = {"method": METHOD, "seed": 5, "new": 12, "text": "one\ntwo\nthree"} | said
    return client.post("/ds/batch", json=body)


def ended(client: TestClient, name: str) -> dict[str, Any]:
    return eventually(lambda: (record := client.get(f"/ds/batch/{name}").json())["over"] and record)


def test_every_prompt_gets_a_run_with_the_next_seed_and_they_are_reported(
    client: TestClient, play: Any
) -> None:
    record = ended(client, begun(client).json()["id"])
    assert (record["done"], record["of"], record["tokens"], record["stopped"]) == (3, 3, 36, False)
    assert [x["begins"] for x in record["rows"]] == ["one", "two", "three"] and len(set(record["runs"])) == 3
    traces = [open_trace(play.folder / f"{run}.dstrace") for run in record["runs"]]
    assert [x.header.seed for x in traces] == [5, 6, 7]
    assert [x.header.prompt.tolist() for x in traces] == [Words().encode(x) for x in ("one", "two", "three")]
    assert (
        client.get("/ds/report", params={"runs": ",".join(record["runs"])})
        .json()["lead"][0]
        .startswith("3 runs of toy")
    )


def test_batch_and_report_say_how_prompts_were_put_and_which_turns_were_not(client: TestClient) -> None:
    text = '{"turns": ["one", "and then?", "why?"]}\n{"turns": ["two"]}\n{"prompt": "three"}'
    record = ended(client, begun(client, text=text).json()["id"])
    raw, left = (
        "The prompts were put as raw text, without a chat template.",
        "2 later turns, of 1 of {} prompts.",
    )
    assert record["asked"] == [raw, "Only first turns were asked. Left out: " + left.format(3)]
    for runs in (record["runs"], record["runs"][:2]):
        report = client.get("/ds/report", params={"runs": ",".join(runs)}).json()
        assert raw in report["lead"] and any(left.format(len(runs)) in x for x in report["notes"])
        assert left.format(len(runs)) in client.get("/ds/report.html", params={"runs": ",".join(runs)}).text
    others = client.get("/ds/report", params={"runs": ",".join(record["runs"][1:])}).json()
    assert not any("later turn" in x for x in others["notes"])


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


def test_prompts_that_go_in_step_get_the_runs_that_they_get_alone(client: TestClient, play: Any) -> None:
    """Rows keep the order of the prompts, although the second is too long; each run is like any other run."""
    text = "one\n" + "word " * 4000 + "\nthree\nfour"
    alone, record = (ended(client, begun(client, text=text, batch=n).json()["id"]) for n in (1, 3))
    assert (record["most"], record["done"], record["tokens"], record["doing"]) == (3, 4, 36, "")
    assert [x["status"] for x in record["rows"]] == ["done", "refused", "done", "done"]
    assert [x["why"] for x in record["rows"]] == [x["why"] for x in alone["rows"]] and record[
        "called"
    ] == alone["called"]
    one, other = ([open_trace(play.folder / f"{run}.dstrace") for run in x["runs"]] for x in (alone, record))
    assert [x.header.seed for x in other] == [5, 7, 8] and all(check(x).ok for x in other)
    assert [[step.emitted for step in x.steps] for x in one] == [
        [step.emitted for step in x.steps] for x in other
    ]
    assert {x.together for trace in one for step in trace.steps for x in step.passes} == {None}
    assert [x.together for trace in other for step in trace.steps for x in step.passes].count(3) > 8
    assert [client.get(f"/ds/run/{run}").json()["status"] for run in record["runs"]] == ["done"] * 3
    notes = client.get("/ds/report", params={"runs": ",".join(record["runs"])}).json()["notes"]
    assert any("were run for several texts at once" in x for x in notes)


@contextmanager
def held(play: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Hold runs in lockstep after their first step until the yielded event is set."""
    free, honest = Event(), Lockstep._after_step
    monkeypatch.setattr(
        Lockstep, "_after_step", lambda self, row, step: (free.wait(60), honest(self, row, step))
    )
    yield free
    free.set()


def test_one_that_goes_in_step_is_stopped_and_not_paused(
    client: TestClient, play: Any, monkeypatch: Any
) -> None:
    with held(play, monkeypatch) as free:
        name = begun(client, batch=3).json()["id"]
        rows = eventually(
            lambda: [x for x in client.get(f"/ds/batch/{name}").json()["rows"] if x["status"] == "running"]
        )
        run = rows[0]["run"]
        paused = client.post(f"/ds/run/{run}/pause")
        assert paused.status_code == 409 and paused.json()["error"] == ONLY_STOPPED
        assert client.post(f"/ds/run/{run}/stop").json()["status"] == "running", "its step is being made"
        free.set()
        record = ended(client, name)
    assert [x["status"] for x in record["rows"]] == ["cancelled", "done", "done"] and not record["stopped"]
    assert record["rows"][0]["tokens"] < 12 and record["tokens"] - record["rows"][0]["tokens"] == 24


def test_a_stop_ends_all_that_go_in_step_and_what_they_wrote_stays(
    client: TestClient, play: Any, monkeypatch: Any
) -> None:
    with held(play, monkeypatch) as free:
        name = begun(client, batch=2, new=200).json()["id"]
        eventually(lambda: client.get(f"/ds/batch/{name}").json()["tokens"])
        client.post(f"/ds/batch/{name}/stop")
        free.set()
        record = ended(client, name)
    assert [x["status"] for x in record["rows"]] == ["cancelled", "cancelled", ""] and record["stopped"]
    assert 0 < record["tokens"] < 60 and record["rows"][0]["run"] in record["runs"]
    assert play._jobs[record["runs"][0]].wait(60)


@pytest.mark.nightly
def test_those_that_go_in_step_let_others_come_between(
    client: TestClient, play: Any, monkeypatch: Any
) -> None:
    begins, honest = list[str](), Lockstep._begin_run
    monkeypatch.setattr(
        Lockstep, "_begin_run", lambda self, row: (begins.append(row.prompt.beginning), honest(self, row))[1]
    )
    with held(play, monkeypatch) as free:
        name = begun(client, text="one\ntwo\nthree\nfour\nfive", batch=2).json()["id"]
        eventually(lambda: client.get(f"/ds/batch/{name}").json()["rows"][0]["status"] == "running")
        other = play.start(speculative(max_new=4))
        eventually(lambda: other.status == "queued")
        play.job(other).until = lambda step: begins.append("other") and False
        free.set()
        record = ended(client, name)
    assert record["done"] == 5 and len(record["runs"]) == 5
    assert begins[:3] == ["one", "two", "other"] and begins[-3:] == ["three", "four", "five"]


def test_runs_in_step_whose_models_cannot_be_loaded_say_why(
    client: TestClient, play: Any, monkeypatch: Any
) -> None:
    def bring(names: Any) -> Any:
        raise RequestRefusal("There is no room.")

    monkeypatch.setattr(play.models, "ensure_loaded", bring)
    record = ended(client, begun(client, batch=2).json()["id"])
    assert [x["why"] for x in record["rows"]] == ["There is no room."] * 3 and record["runs"] == []


def test_memory_that_runs_out_ends_the_run_whose_it_was(
    client: TestClient, play: Any, monkeypatch: Any
) -> None:
    """The session of the second prompt, at a given step."""
    from decodescope.engine import Session

    honest = Session.step

    def step(self: Session) -> Any:
        if self._seed == 6 and self.steps == 1:
            self.finish("out_of_memory", "Out of memory: 3 MiB.")
            raise EngineFault("out_of_memory", "Out of memory: 3 MiB.")
        return honest(self)

    monkeypatch.setattr(Session, "step", step)
    record = ended(client, begun(client, batch=3).json()["id"])
    assert [x["why"] for x in record["rows"]] == ["", "Out of memory: 3 MiB.", ""] and len(
        record["runs"]
    ) == 2


def test_one_waits_until_there_is_room_for_its_caches(
    client: TestClient, play: Any, monkeypatch: Any
) -> None:
    """The free memory holds the caches of one and a half runs."""
    need = play.estimate_memory(speculative("one", max_new=12))
    monkeypatch.setattr(
        "decodescope.app.runs.model_pool.free_memory", lambda device: int(1.5 * need.cache / 0.9)
    )
    record = ended(client, begun(client, text="one\ntwo\nsix", batch=3).json()["id"])
    traces = [open_trace(play.folder / f"{run}.dstrace") for run in record["runs"]]
    assert len(traces) == 3 and {
        x.together for trace in traces for step in trace.steps for x in step.passes
    } == {None}


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
        ({"batch": "3"}, "Send "),
        ({"batch": 0}, "Prompts at a time = 0: must lie in [1, 32]"),
        ({"batch": 33}, "Prompts at a time = 33: must lie in [1, 32]"),
        ({"new": True}, "Send "),
        ({"new": 0}, "New tokens = 0: must lie in [1, 4096]"),
        ({"new": 5000}, "New tokens = 5000: must lie in [1, 4096]"),
        ({"seed": -1}, "Seed = "),
        ({"seed": 1 << 53}, "Seed = "),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(
    client: TestClient, said: dict[str, Any], says: str
) -> None:
    answer = begun(client, **said)
    assert (
        answer.status_code == 422 and says in answer.json()["error"] and answer.json()["error"].endswith(".")
    )


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


def test_a_batch_whose_server_died_is_told_as_stopped_with_what_it_left(
    client: TestClient, play: Any
) -> None:
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
