"""Forks that go on with another draft: the lists, the run, its command, and what is refused."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from starlette.testclient import TestClient
from toylab import HERE, guarded

from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.engine.session.load import SHIPPED
from decodescope.engine.trace import check, open_trace

Said = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def lab_play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunService]:
    """A lab over the shipped models, with a folder of further models that holds heads."""
    more = tmp_path_factory.mktemp("models")
    for name in ("other", "damaged"):
        shutil.copytree(SHIPPED / "lab/heads/eagle3", more / name)
    weights = load_file(more / "other/model.safetensors")
    save_file(
        {k: 0.5 * x if x.is_floating_point() else x for k, x in weights.items()},
        more / "other/model.safetensors",
        {"format": "pt"},
    )
    (more / "damaged/model.safetensors").write_bytes(b"none")
    play = RunService("lab", "lab-draft", tmp_path_factory.mktemp("traces"), more)
    yield play
    play.close()


@pytest.fixture
def labs(lab_play: RunService) -> Iterator[TestClient]:
    with TestClient(guarded(lab_play), base_url=HERE, headers={"origin": HERE}) as made:
        yield made


def recorded(play: RunService, drafter: str) -> Any:
    channel = play.start(RunChoice("Once upon a time", {"drafter": drafter}, max_new=10))
    job = play.job(channel)
    assert job is not None and job.wait(120) and job.status == "done", job and job.message
    return channel


def forked(client: TestClient, play: RunService, run: str, **change: Any) -> Any:
    answer = client.post(f"/ds/run/{run}/fork", json={"step": 1, "change": change})
    assert answer.status_code == 200, answer.text
    channel = play.find(answer.json()["run"])
    assert channel is not None
    job = play.job(channel)
    assert job is not None and job.wait(120) and job.status == "done", job and job.message
    return open_trace(channel.path)


def command_of(client: TestClient, trace: Any) -> list[str]:
    """The command of a fork that the page shows with the recipe, as words behind the program's name."""
    note = client.get(f"/ds/run/{trace.header.run}/recipe").json()["note"]
    return shlex.split(note.split("The fork itself: decodescope ", 1)[1])


def test_a_fork_takes_another_draft_model_and_its_command_makes_it_again(
    labs: TestClient, lab_play: RunService, said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorded(lab_play, "draft_model")
    there = labs.get(f"/ds/run/{run.run}/replacements").json()
    assert "lab-draft-plain" in [x["key"] for x in there["draft"]] and there["heads"] == []
    assert not {"lab-draft", "lab"} & {x["key"] for x in there["draft"]}, "itself, and one of other sizes"
    made = forked(labs, lab_play, run.run, instead={"draft": "lab-draft-plain"})
    own = open_trace(run.path)
    assert made.header.lanes["draft"]["name"] == "lab-draft-plain" and check(made).ok
    assert made.header.fork["change"] == {"instead": {"draft": "lab-draft-plain"}}
    assert made.end.tokens == own.end.tokens, "greedy: the target's text"
    assert "--draft lab-draft-plain" in labs.get(f"/ds/run/{made.header.run}/recipe").json()["text"]
    words = command_of(labs, made)
    assert words[words.index("--then-draft") + 1] == "lab-draft-plain"
    words[words.index("--trace") + 1] = str(tmp_path / "again")
    monkeypatch.chdir(lab_play.folder)
    assert said(*words, "--json")[0] == 0
    again = open_trace(tmp_path / "again")
    assert [x.draft and x.draft.tokens for x in again.steps] == [
        x.draft and x.draft.tokens for x in made.steps
    ]


def test_a_fork_takes_other_heads_of_the_same_kind(labs: TestClient, lab_play: RunService) -> None:
    run = recorded(lab_play, "eagle3")
    there = labs.get(f"/ds/run/{run.run}/replacements").json()
    assert {(x["key"], x["kind"]) for x in there["heads"]} >= {("lab/eagle3", "eagle3"), ("other", "eagle3")}
    assert {x["kind"] for x in there["heads"]} == {"eagle3"} and there["draft"] == []
    made = forked(labs, lab_play, run.run, instead={"eagle3": "other"})
    own = open_trace(run.path)
    assert made.end.tokens == own.end.tokens and check(made).ok
    marks = made.header.model["head_fingerprints"], own.header.model["head_fingerprints"]
    assert (
        marks[0] != marks[1] and made.header.fork["base"]["models"]["target"]["head_fingerprints"] == marks[1]
    )
    words = command_of(labs, made)
    assert words[words.index("--then-head") + 1] == "eagle3=other"
    assert made.header.fork["change"] == {"instead": {"eagle3": "other"}}, (
        "a name, and no path of the machine"
    )

    def refused(**instead: Any) -> str:
        answer = labs.post(f"/ds/run/{run.run}/fork", json={"step": 1, "change": {"instead": instead}})
        words = str(answer.json()["error"])
        assert answer.status_code == 422 and words.endswith(".") and str(lab_play.models.more) not in words
        return words

    assert "called 'nothing' here" in refused(eagle3="nothing")
    assert "called 'other' here" in refused(medusa="other"), "of another kind"
    assert "did not draft with heads medusa" in refused(medusa="lab/medusa")
    assert "damaged" in refused(eagle3="damaged")
    assert "would do nothing" in refused(draft="lab-draft-plain")
    assert "not offered here" in refused(draft="../secret") and "not offered here" in refused(draft=["x"])


def test_a_draft_of_other_sizes_is_refused(labs: TestClient, lab_play: RunService) -> None:
    run = recorded(lab_play, "draft_model")
    answer = labs.post(f"/ds/run/{run.run}/fork", json={"step": 1, "change": {"instead": {"draft": "lab"}}})
    assert answer.status_code == 422 and "choose one of the same sizes" in answer.json()["error"]


def test_what_was_read_of_an_offered_folder_is_shown_in_groups(
    labs: TestClient, lab_play: RunService
) -> None:
    """By the function of `decodescope models show`; no path of the machine, and no folder that is not offered."""
    read = labs.get("/ds/heads", params={"key": "lab/eagle3"}).json()
    used, unused = ({x["key"] for x in read["groups"][name]} for name in ("used", "unused"))
    assert {"kind", "shape.d", "target"} <= used and "made_with.seed" in unused and not used & unused
    assert all(x["use"] != "used" for x in read["groups"]["unused"]) and read["groups"]["refused"] == []
    assert ["kind", "eagle3"] in read["facts"]
    damaged = labs.get("/ds/heads", params={"key": "damaged"}).json()["groups"]
    assert len(damaged["refused"]) == 1 and damaged["refused"][0]["use"].endswith(".")
    for text in (str(read), str(damaged)):
        assert str(lab_play.models.more) not in text and str(SHIPPED) not in text
    for key in ("", "../lab/heads/eagle3", str(SHIPPED / "lab/heads/eagle3"), "lab/../lab/eagle3"):
        answer = labs.get("/ds/heads", params={"key": key})
        assert answer.status_code == 422 and "not offered here" in answer.json()["error"]
