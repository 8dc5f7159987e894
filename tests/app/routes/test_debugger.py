"""The debugger's routes: conditions on live and recorded runs, what-if, forks, and what they refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from toylab import finished, speculative
from waiting import eventually

from decodescope.app.routes import debugger as debugging
from decodescope.app.runs.record_stream import RecordStream
from decodescope.app.runs.run_service import RunService
from decodescope.engine.core.component import registry
from decodescope.engine.trace import open_trace
from decodescope.lab import explain


def post(client: TestClient, path: str, **body: Any) -> Any:
    found = client.post(f"/ds/{path}", json=body)
    assert found.status_code == 200, found.text
    return found.json()


def refusal(client: TestClient, path: str, status: int = 422, **body: Any) -> str:
    found = client.post(f"/ds/{path}", json=body)
    assert found.status_code == status, found.text
    said: str = found.json()["error"]
    assert said[-1] in ".?" and "Traceback" not in said and len(said) < 400
    return said


def paused(play: Any, **more: Any) -> RecordStream:
    """A run that is paused before its first step, or right after it."""
    play.pausing = True
    channel: RecordStream = play.start(speculative(**more))
    play.pausing = False
    standing(channel)
    return channel


def standing(channel: RecordStream) -> None:
    """Wait until the run is paused or over."""
    eventually(lambda: channel.status in ("paused", "done", "failed", "cancelled"))


def over(play: RunService, run: str) -> RecordStream:
    assert play._jobs[run].wait(120)
    found = play.find(run)
    assert found is not None
    return found


# ---- conditions


def test_the_language_is_told_and_a_text_is_checked(client: TestClient) -> None:
    told = client.get("/ds/conditions").json()
    assert told["limit"] == 500 and {"first reject", "p", "evicts a sink", "mean(…)"} <= {
        x["name"] for x in told["names"]
    }
    assert [x["watch"] for x in told["names"] if "watch" in x] == ["mean(accepted)", "entropy", "kl", "alpha"]
    for row in told["names"]:
        assert post(client, "conditions", text=row["example"])["ok"], row
    rules = {"lossless", "typical", "block", "leniency", "spectr", "relaxed", "static_ensemble", "synthetic"}
    assert {x["name"] for x in told["rules"]} == rules
    assert [x[0] for x in told["ties"]] == ["first", "second"]
    assert post(client, "conditions", text="p/q < 0.1 and accepted == 0")["reads"] == ["p", "q", "accepted"]
    assert "character 5" in refusal(client, "conditions", text="p < < 1") and "number" in refusal(
        client, "conditions", text="p"
    )
    assert post(client, "conditions", text="p", watch=True)["reads"] == ["p"]
    refusal(client, "conditions", text=3)


def test_a_search_finds_steps_in_both_directions(play: RunService, client: TestClient) -> None:
    channel = finished(play, max_new=40)
    steps = channel.steps(0, channel.count)
    due = [x.step for x in steps if x.accepted == 0]
    assert len(due) > 2

    def find(condition: str, **more: Any) -> Any:
        return client.get(f"/ds/run/{channel.run}/find", params={"condition": condition, **more}).json()

    assert find("accepted == 0")["step"] == due[0]
    assert find("accepted == 0", **{"from": due[0] + 1})["step"] == due[1]
    assert find("accepted == 0", way=-1)["step"] == due[-1]
    assert find("accepted == 0", way=-1, **{"from": due[-1] - 1})["step"] == due[-2]
    assert find("accepted == 0", all=1) == {"steps": due, "count": len(due), "searched": len(steps)}
    nothing = find("accepted > 99")
    assert nothing["step"] is None and nothing["searched"] == len(steps) and "holds nowhere" in nothing["why"]
    hit, first = find("first reject"), next(x for x in steps if x.trials and not all(x.trials.ok))
    assert hit["step"] == first.step and hit["node"] == first.trials.node[first.trials.ok.index(False)] + 1
    average = [sum(x.accepted for x in steps[: k + 1]) / (k + 1) for k in range(len(steps))]
    above = [k for k, x in enumerate(average) if x > 0.25]
    assert above and find("mean(accepted) > 0.25", way=-1)["step"] == above[-1]
    assert find("mean(accepted) > 0.25", all=1)["steps"] == above
    watched = client.get(
        f"/ds/run/{channel.run}/watch", params={"expression": "mean(accepted)", "from": 2, "to": 5}
    ).json()
    assert watched["values"] == [[k, pytest.approx(average[k])] for k in (2, 3, 4)]


def test_a_long_search_says_where_to_go_on(
    play: RunService, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = finished(play, max_new=40)
    monkeypatch.setattr(debugging, "SEARCH_S", -1.0)
    at, steps = 0, []
    for _ in range(channel.count):
        found = client.get(
            f"/ds/run/{channel.run}/find", params={"condition": "accepted > 99", "from": at}
        ).json()
        steps.append(at)
        if not found.get("more"):
            break
        at = found["next"]
    assert steps == list(range(len(steps))) and len(steps) >= channel.count - 1


def test_a_run_pauses_where_a_condition_holds_and_goes_on_from_there(play: Any, client: TestClient) -> None:
    channel = paused(play, max_new=60)
    run = f"run/{channel.run}"
    assert client.get(f"/ds/{run}").json()["broke"] is None
    assert post(client, f"{run}/breaks", conditions=["accepted >= 1 and step > 0"])["conditions"] == [
        "accepted >= 1 and step > 0"
    ]
    post(client, f"{run}/resume")
    standing(channel)
    state = client.get(f"/ds/{run}").json()
    last = channel.steps(channel.count - 1, channel.count)[0]
    assert state["status"] == "paused" and state["broke"]["step"] == last.step > 0 and last.accepted >= 1
    assert (
        state["broke"]["condition"] == "accepted >= 1 and step > 0" and "accepted = " in state["broke"]["why"]
    )
    assert not any(x.accepted for x in channel.steps(1, last.step)), "it did not stand too late"
    before = channel.count
    assert post(client, f"{run}/step")["broke"] is None
    eventually(lambda: channel.count > before)
    standing(channel)
    assert channel.count == before + 1, "one step was asked for"
    assert post(client, f"{run}/breaks", conditions=[])["conditions"] == []
    post(client, f"{run}/resume")
    assert over(play, channel.run).end.reason == "max_new_tokens"
    assert "is over" in refusal(client, f"{run}/breaks", conditions=["first reject"])


def test_a_figure_over_all_steps_counts_those_before_it_was_asked_for(play: Any, client: TestClient) -> None:
    channel = paused(play, max_new=60)
    run = f"run/{channel.run}"
    post(client, f"{run}/breaks", conditions=["step == 3"])
    post(client, f"{run}/resume")
    standing(channel)
    post(client, f"{run}/breaks", conditions=["sum(tokens) >= 0 and step > 4"])
    post(client, f"{run}/resume")
    standing(channel)
    assert channel.broke is not None and channel.broke["step"] == 5
    post(client, f"{run}/breaks", conditions=["sum(step) == 21"])  # 0 + ... + 6
    post(client, f"{run}/resume")
    standing(channel)
    assert channel.broke is not None and channel.broke["step"] == 6
    post(client, f"{run}/stop")
    over(play, channel.run)


def test_breaks_that_cannot_be_are_refused(play: Any, client: TestClient) -> None:
    channel = paused(play, max_new=40)
    post(client, f"run/{channel.run}/step")
    eventually(lambda: channel.wire is not None)
    run = f"run/{channel.run}/breaks"
    assert "at most 32" in refusal(client, run, conditions=["first reject"] * 33)
    assert "character" in refusal(client, run, conditions=["first rejekt"])
    assert "all layers" in refusal(client, run, conditions=["exit layer < 2"])
    refusal(client, run, 400, conditions="first reject")
    refusal(client, "run/" + "0" * 16 + "/breaks", 404, conditions=[])
    assert (
        client.post(f"/ds/{run}", content=b"{" * 40, headers={"content-type": "application/json"}).status_code
        == 422
    )
    assert client.post(f"/ds/{run}", content=b"[]").status_code == 422
    assert client.post(f"/ds/{run}", content=b'{"x":"' + b"y" * (1 << 17) + b'"}').status_code == 422
    post(client, f"run/{channel.run}/stop")


# ---- what if


def test_a_verdict_is_derived_again_with_another_draw(play: RunService, client: TestClient) -> None:
    channel = finished(play, max_new=40)
    path = f"run/{channel.run}/whatif"
    step = next(x for x in channel.steps(0, 40) if x.trials and not x.trials.ok[0] and x.trials.p[0] > 1e-6)
    node = step.trials.node[0] + 1
    threshold = step.trials.p[0] / step.trials.q[0]
    found = post(client, path, step=step.step, node=node, u=threshold * 0.9)
    assert found["kind"] == "derived" and found["flips"] and found["node"]["status"] == "accept"
    assert found["path"][:2] == [0, node] and found["emitted"][0][0] == step.draft.tokens[node - 1]
    assert found["missing"] or len(found["emitted"]) > 1
    same = post(client, path, step=step.step, node=node, u=step.trials.u[0])
    assert not same["flips"] and [x[0] for x in same["emitted"]] == step.emitted and same["missing"] is None
    assert same["node"]["status"] == "reject" and same["node"]["u"] == step.trials.u[0] and same["lines"]
    rerun = post(client, path, step=step.step, node=node, temperature=0.3)
    assert rerun["kind"] == "rerun" and "fork" in rerun["why"]
    typical = post(client, path, step=step.step, node=node, rule="typical", rule_settings={"epsilon": 0.0})
    assert typical["kind"] == "derived" and typical["node"]["status"] in ("accept", "unreached"), (
        "all that is likely passes"
    )
    assert [x.emitted for x in channel.steps(0, 99)] == [x.emitted for x in open_trace(channel.path).steps], (
        "nothing changed"
    )


def test_what_makes_no_question_is_refused(play: RunService, client: TestClient) -> None:
    channel = finished(play, max_new=12)
    path = f"run/{channel.run}/whatif"
    for body in [
        {},
        dict(step=0),
        dict(step=99, node=1),
        dict(step=0, node=0),
        dict(step=0, node=99),
        dict(step=0, node=True),
        dict(step=0, node=1, u="x"),
        dict(step=0, node=1, u=2),
        dict(step=0, node=1, rule="nope"),
        dict(step=0, node=1, rule=3),
        dict(step=0, node=1, rule="leniency", rule_settings={"epsilon": "x"}),
        dict(step=0, node=1, rule_settings=[1]),
        dict(step=0, node=1, ties="last"),
    ]:
        refusal(client, path, **body)


# ---- forks


def test_a_fork_is_queued_named_and_known(play: RunService, client: TestClient) -> None:
    channel = finished(play, max_new=40)
    at = next(x for x in channel.steps(2, 40) if x.path == [] and x.draft is not None)
    said = post(
        client,
        f"run/{channel.run}/fork",
        step=at.step,
        name="what if it stayed",
        force=[{"node": 1, "verdict": "accept"}],
    )
    made = over(play, said["run"])
    first = [x.emitted for x in made.steps(0, at.step)]
    assert first == [x.emitted for x in channel.steps(0, at.step)]
    there = made.steps(at.step, at.step + 1)[0]
    assert (
        there.forced == [0] and there.emitted[0] == at.draft.tokens[0] and made.end.reason == "max_new_tokens"
    )
    head = made.wire.head()
    assert (
        head["fork"]["of"] == channel.run
        and head["fork"]["name"] == "what if it stayed"
        and head["exactness"] == "lossy"
    )
    assert made.wire.step(there, whole=True)["forced"] == [1]
    card = explain(open_trace(made.path), at.step, 0)
    assert card.title == "Accepted, forced" and card.agrees is None
    known = client.get(f"/ds/run/{channel.run}/branches").json()
    row = {"run": said["run"], "name": "what if it stayed", "step": at.step, "change": {}, "status": "done"}
    assert known == {"of": None, "branches": [{**row, "forced": [{"node": 1, "verdict": "accept"}]}]}
    back = client.get(f"/ds/run/{said['run']}/branches").json()
    assert back["of"]["run"] == channel.run and back["of"]["step"] == at.step and back["branches"] == []
    play._channels.clear()  # as after a restart: the branches come from the traces in the folder
    assert [x["run"] for x in client.get(f"/ds/run/{channel.run}/branches").json()["branches"]] == [
        said["run"]
    ]


CHANGES: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"temperature": 2.0}, "sampler", {"name": "temperature", "temperature": 2.0}),
    (
        {"rule": "typical", "rule_settings": {"epsilon": 0.2}},
        "acceptance",
        {"name": "typical", "epsilon": 0.2, "delta": 0.3},
    ),
    (
        {"drafter": {"max_draft_tokens": 5}},
        "drafter",
        {"name": "draft_model", "max_draft_tokens": 5, "width": 2},
    ),
    ({"names": {"drafter": "prompt_lookup"}}, "drafter", {"name": "prompt_lookup"}),
    (
        {"names": {"sampler": ["top_k", "temperature"]}, "settings": {"top_k": {"k": 3}}},
        "sampler",
        {"name": "chain"},
    ),
]


def test_a_fork_goes_on_with_its_change(play: RunService, client: TestClient) -> None:
    channel = finished(play, max_new=30)
    for change, kind, due in CHANGES:
        made = over(play, post(client, f"run/{channel.run}/fork", step=3, change=change)["run"])
        assert made.end.reason == "max_new_tokens", made.end
        part = made.wire.header.method[kind]
        assert {key: part[key] for key in due} == due and made.wire.header.fork["change"] == change
        assert [x.emitted for x in made.steps(0, 3)] == [x.emitted for x in channel.steps(0, 3)]
        by = made.wire.step(made.steps(0, 1)[0], whole=True).get("by")
        assert by == {"name": "lossless"}, "its first steps were made by the rule that the run had"
    longer = over(play, post(client, f"run/{channel.run}/fork", step=3, change={"seed": 5, "new": 44})["run"])
    assert sum(len(x.emitted) for x in longer.steps(0, 99)) == 44 and longer.wire.header.seed == 5


def test_every_kind_of_knob_of_the_drafter_is_offered_to_a_fork(play: RunService, client: TestClient) -> None:
    names = {"drafter": "rsd_c", "sampler": ["temperature"]}
    choice = replace(speculative(max_new=8), names=names, settings={"drafter": {"branching": "3,1"}})
    channel = over(play, play.start(choice).run)
    path = f"run/{channel.run}"
    offered = client.get(f"/ds/{path}/knobs").json()
    assert offered["drafter"] == "rsd_c" and [
        (x["name"], x["type"], x["value"]) for x in offered["knobs"]
    ] == [("branching", "list", "3,1"), ("draft_temperature", "float", "auto")]
    made = over(play, post(client, f"{path}/fork", step=1, change={"drafter": {"branching": "2, 2"}})["run"])
    assert made.wire.header.method["drafter"]["branching"] == "2,2"
    for value, says in [
        ("2,x", "item 2 = 'x': must be a whole number"),
        ("", "has 0 items"),
        ("0", "must lie in [1,"),
    ]:
        said = refusal(client, f"{path}/fork", step=1, change={"drafter": {"branching": value}})
        assert said.startswith("rsd_c.branching") and says in said, said
    kinds: set[str] = set()
    for part in (cls() for cls in registry("drafter").values()):
        channel.wire.header.method["drafter"] = part.record()
        knobs = client.get(f"/ds/{path}/knobs").json()["knobs"]
        assert {x["name"]: x["value"] for x in knobs} == part.knobs(), part.name
        kinds |= {
            "choice" if x["choices"] else "file" if x["file"] else "text" if x["lines"] else x["type"]
            for x in knobs
        }
    assert kinds == {"int", "float", "bool", "str", "list", "choice", "file", "text"}
    channel.wire.header.method["drafter"] = {"name": "of somebody else"}
    assert client.get(f"/ds/{path}/knobs").status_code == 422


def test_a_fork_of_a_paused_run_does_not_wait_for_it(play: Any, client: TestClient) -> None:
    channel = paused(play, max_new=60)
    post(client, f"run/{channel.run}/breaks", conditions=["step == 4"])
    post(client, f"run/{channel.run}/resume")
    standing(channel)
    made = over(play, post(client, f"run/{channel.run}/fork", step=2)["run"])
    assert made.end.reason == "max_new_tokens" and channel.status == "paused" and channel.count == 5
    assert [x.emitted for x in made.steps(0, 5)] == [x.emitted for x in channel.steps(0, 5)]
    post(client, f"run/{channel.run}/resume")
    assert [x.emitted for x in over(play, channel.run).steps(0, 99)] == [x.emitted for x in made.steps(0, 99)]


def test_what_cannot_be_forked_is_refused(
    play: RunService, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = finished(play, max_new=20)
    path = f"run/{channel.run}/fork"
    for body, says in [
        ({}, "choose one of them"),
        (dict(step=999), "choose one of them"),
        (dict(step=1, name="x" * 99), "at most 80"),
        (dict(step=1, name="a\u202eb"), "can be shown"),
        (dict(step=1, change={"ties": "second"}), "breaks ties as every run"),
        (dict(step=1, change={"prompts": "x"}), "A fork can change"),
        (dict(step=1, change={"drafter": {"max_draft_tokns": 3}}), "Did you mean 'max_draft_tokens'"),
        (dict(step=1, change={"rule": "block"}), "reads chains only"),
        (dict(step=1, change={"seed": -1}), "must be a whole number"),
        (dict(step=1, change={"new": 1}), "allow more"),
        (dict(step=1, change={"settings": {"drafter": 3}}), "no knobs"),
        (
            dict(step=1, change={"names": {"drafter": "rest"}, "settings": {"drafter": {"datastore": "x"}}}),
            "the page opens none",
        ),
        (dict(step=1, force=[{"node": 99, "verdict": "accept"}]), "was not drafted"),
        (dict(step=1, force=[{"node": 1, "verdict": "perhaps"}]), "accept or reject"),
        (dict(step=1, force="all"), "at most 64"),
        (
            dict(step=0, force=[{"node": 1, "verdict": "accept"}, {"node": 1, "verdict": "reject"}]),
            "given two verdicts",
        ),
    ]:
        assert says in refusal(client, path, **body), body
    monkeypatch.setitem(
        play.models.present, "toy", replace(play.models.loaded_models()["target"], fingerprint="f" * 16)
    )
    assert "whose weights are others" in refusal(client, path, step=1)
    assert not [x for x in play._channels if x != channel.run], "nothing was queued"


def test_a_trace_that_names_a_file_is_not_forked_by_the_page(
    play: RunService, client: TestClient, tmp_path: Path
) -> None:
    channel = finished(play, max_new=12)
    assert channel.wire is not None
    channel.wire.header.method["drafter"] = {"name": "rest", "datastore": str(tmp_path / "secret.txt")}
    said = refusal(client, f"run/{channel.run}/fork", step=1)
    assert "names a file" in said and "secret" not in said
    assert "names a file" in refusal(client, f"run/{channel.run}/whatif", step=1, node=1, u=0.5)


def test_no_nesting_of_a_request_is_kept_in_a_trace(play: RunService, client: TestClient) -> None:
    channel = finished(play, max_new=12)
    deep: Any = 1
    for _ in range(80):
        deep = [deep]
    made = over(play, post(client, f"run/{channel.run}/fork", step=1, change={"prompt": deep})["run"])
    assert (
        json.loads(json.dumps(made.wire.header.fork["change"])) == {}
        and len(open_trace(made.path).steps) == made.count
    )
