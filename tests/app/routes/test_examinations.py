"""The draft doctor on the pair of a report, begun by the page: its result, its end, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient
from toylab import HERE, finished, guarded, occupied, toy_play
from waiting import eventually

from decodescope.app.routes import examination_job as examinations
from decodescope.app.runs.run_service import RunChoice
from decodescope.engine.draft_doctor.examination import examine_draft
from decodescope.engine.draft_doctor.texts import ReadPrompt


def begun(client: TestClient, *runs: str) -> Any:
    return client.post("/ds/examination", json={"runs": ",".join(runs)})


def ended(client: TestClient, name: str) -> dict[str, Any]:
    return eventually(lambda: (record := client.get(f"/ds/examination/{name}").json())["over"] and record)


def test_a_report_has_the_result_of_the_doctor_on_its_prompts(
    client: TestClient, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each prompt once, as its run read it; a second lab over the same folder shows the result again."""
    monkeypatch.setattr(examinations, "ANSWER", 8)
    runs = [finished(play, prompt=x, max_new=6).run for x in ("hello", "another text", "hello")]
    offer = client.get("/ds/examination", params={"runs": ",".join(runs)}).json()
    assert offer == {"why": "", "most": examinations.PROMPTS, "latest": None}
    record = ended(client, begun(client, *runs).json()["id"])
    assert (record["prompts"], record["of"], record["stopped"], record["why"]) == (2, 2, False, "")
    models = play.models.loaded_models()
    ids = [play.find(x).wire.header.prompt.tolist() for x in runs[:2]]
    due = examine_draft(
        models["target"], models["draft"], [ReadPrompt(x, False) for x in ids], answer_tokens=8
    )
    assert record["result"] == json.loads(json.dumps(due.record()))
    titles = [x["light"]["layout"]["annotations"][0]["text"] for x in record["charts"]]
    assert len(titles) == 6 and titles[0] == "Overlap when read otherwise"
    report = client.get("/ds/report", params={"runs": ",".join(runs)}).json()
    assert report["doctor"].startswith("decodescope doctor draft --model toy")
    assert not any(report["doctor"] in x for table in report["tables"] for x in table["below"])
    other = toy_play(play.folder)
    with TestClient(guarded(other), base_url=HERE, headers={"origin": HERE}) as again:
        known = again.get("/ds/examination", params={"runs": ",".join(reversed(runs))}).json()["latest"]
    other.close()
    assert known["id"] == record["id"] and known["result"] == record["result"]


def test_a_stop_ends_it_while_it_waits_and_while_it_reads(client: TestClient, play: Any) -> None:
    run = finished(play, max_new=6).run
    with occupied(play):
        waits = begun(client, run).json()
        assert (
            waits["doing"] == "waiting for the runs before it"
            and begun(client, run).json()["id"] == waits["id"]
        )
        record = client.post(f"/ds/examination/{waits['id']}/stop").json()
        assert (record["over"], record["stopped"], record["result"]) == (True, True, None)
    name, work = "", play.queue_work

    def queued(session: Any) -> Any:
        seen = session._note_progress

        def noted(progress: Any) -> None:
            session.job.cancel()  # somebody presses Stop while texts are read
            seen(progress)

        session._note_progress = noted
        session.job = work(session)
        return session.job

    play.queue_work = queued
    name = begun(client, run).json()["id"]
    record = ended(client, name)
    assert (record["stopped"], record["why"], record["result"]) == (True, "", None)
    assert client.get("/ds/examination", params={"runs": run}).json()["latest"] is None
    assert play.find(run).path.is_file(), "what was recorded stays"


def test_it_reads_a_stated_number_of_prompts(
    client: TestClient, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examinations, "ANSWER", 6)
    monkeypatch.setattr(examinations, "PROMPTS", 1)
    runs = [finished(play, prompt=x, max_new=4).run for x in ("hello", "another")]
    record = ended(client, begun(client, *runs).json()["id"])
    assert (record["prompts"], record["of"], record["result"]["texts"]) == (1, 2, 1)


def test_what_cannot_be_examined_is_refused_in_one_sentence(client: TestClient, play: Any) -> None:
    drafted = finished(play, max_new=6)
    drafters = ("prompt_lookup", "none", "layer_skip")
    copied, plain, own = (play.start(RunChoice("hello", {"drafter": x}, max_new=4)) for x in drafters)
    for one in (copied, plain, own):
        assert play._jobs[one.run].wait(60)

    def refused(*runs: str) -> str:
        answer = begun(client, *runs)
        said = answer.json()["error"]
        assert answer.status_code in (400, 404, 422) and said.endswith(".") and ". " not in said
        return str(said)

    assert "copies from the text" in refused(copied.run)
    assert "copies from the text" in client.get("/ds/examination", params={"runs": copied.run}).json()["why"]
    assert "nothing to examine" in refused(plain.run) and "nothing to examine" in refused(own.run)
    assert "several drafts" in refused(drafted.run, copied.run)
    assert begun(client, "0" * 16).status_code == 404
    assert client.post("/ds/examination", json={"runs": [1]}).status_code == 400
    assert client.get("/ds/examination/" + "0" * 16).status_code == 422
    header = drafted.wire.header
    drafted.wire.header = replace(
        header, lanes={"draft": {**header.lanes["draft"], "name": "gone", "fingerprint": "9"}}
    )
    assert "gone" in refused(drafted.run) and "not offered here" in refused(drafted.run)
    drafted.wire.header = header
    play.models.present["toy-draft"].fingerprint = "2" * 16  # other weights under the same name
    assert "weights are others" in ended(client, begun(client, drafted.run).json()["id"])["why"]


def test_a_request_of_another_site_is_not_carried_out(client: TestClient, play: Any) -> None:
    run = finished(play, max_new=4).run
    answer = client.post("/ds/examination", json={"runs": run}, headers={"origin": "http://evil.example"})
    assert (
        answer.status_code == 403
        and client.get("/ds/examination", params={"runs": run}).json()["latest"] is None
    )
