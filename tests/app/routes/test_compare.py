"""The routes of the Compare page: starting runs, comparing them, repeats, and one event stream for several runs."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from toylab import HERE, finished, guarded, occupied, speculative
from waiting import eventually

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.runs.catalogue.examples import shipped_examples
from decodescope.app.runs.compare.comparison import parse_choices
from decodescope.app.runs.compare.comparison_table import COLUMNS, ComparisonTable
from decodescope.app.runs.compare.measurements import RecordFolder
from decodescope.app.runs.compare.repeats import RepeatMeasurement
from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.engine.bench.clock.contest import common_prefix_length
from decodescope.engine.bench.questions.bootstrap import bootstrap_interval
from decodescope.engine.trace import open_trace

PLAIN = {"drafter": "none", "sampler": ["greedy"]}
CHAIN = {"drafter": "draft_model", "sampler": ["greedy"]}


def greedy(play: RunService, names: dict[str, Any], **more: Any) -> Any:
    """A greedy run that has ended."""
    channel = play.start(RunChoice("hello there", names, **{"max_new": 24, **more}))
    assert play._jobs[channel.run].wait(300)
    return channel


def asked(client: TestClient, *channels: Any, **more: Any) -> dict[str, Any]:
    found = client.get("/ds/compare/summary", params={"runs": ",".join(x.run for x in channels), **more})
    assert found.status_code == 200, found.text
    return found.json()


def test_a_fault_of_ours_is_not_taken_for_a_run_that_is_gone(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(*_: Any) -> Any:
        return {}["a fault of ours"]

    runs = ",".join(x.run for x in shipped_examples()[:2])
    assert client.get("/ds/compare/summary", params={"runs": runs}).status_code == 200
    assert client.get("/ds/compare/summary", params={"runs": f"{'0' * 16},{'1' * 16}"}).status_code == 404
    monkeypatch.setattr(ComparisonTable, "compare", faulty)
    with pytest.raises(KeyError, match="a fault of ours"):
        client.get("/ds/compare/summary", params={"runs": runs})


# ---- starting


def test_methods_are_started_on_one_prompt(play: RunService, client: TestClient) -> None:
    said = {"prompt": "hello", "seed": 5, "new": 12, "methods": ["plain", "chain", "lookup"]}
    found = client.post("/ds/compare/start", json=said)
    assert found.status_code == 200, found.text
    channels = [play.find(run) for run in found.json()["runs"]]
    assert len(channels) == 3
    for channel, drafter in zip(channels, ("none", "draft_model", "prompt_lookup"), strict=True):
        assert play._jobs[channel.run].wait(300)
        header = open_trace(channel.path).header
        assert (header.seed, header.max_new_tokens, header.method["drafter"]["name"]) == (5, 12, drafter)
    assert len({bytes(open_trace(x.path).header.prompt) for x in channels}) == 1


def test_one_sampler_is_given_to_all_where_it_is_asked_for() -> None:
    own = json.dumps(
        {
            "prompt": "x",
            "names": {"drafter": "none", "sampler": ["top_p"]},
            "settings": {"top_p": {"p": 0.5}},
            "seed": 0,
            "new": 1,
        }
    )
    said = {"prompt": "hello", "seed": 1, "new": 9, "methods": ["plain", "tree", own]}
    assert [x.names["sampler"] for x in parse_choices(said)] == [["greedy"], ["temperature"], ["top_p"]]
    for choice in parse_choices({**said, "sampler": "temperature", "temperature": 1.5}):
        assert choice.names["sampler"] == ["temperature"] and choice.settings["temperature"] == {
            "temperature": 1.5
        }
        assert "top_p" not in choice.settings and choice.prompt == "hello" and choice.max_new == 9
    tree = parse_choices({**said, "sampler": "greedy"})[1]
    assert tree.names["sampler"] == ["greedy"] and set(tree.settings) == {"drafter"}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"methods": ["plain"]}, "2 to 4 methods"),
        ({"methods": ["plain"] * 5}, "2 to 4 methods"),
        ({"methods": "plain"}, "2 to 4 methods"),
        ({"methods": ["plain", "<b>"]}, "no preset"),
        ({"methods": ["plain", "{nonsense"]}, "cannot be read"),
        ({"seed": -1}, "The seed"),
        ({"seed": True}, "The seed"),
        ({"new": 1.5}, "New tokens"),
        ({"new": 99999}, "New tokens = 99999"),
        ({"sampler": "warm"}, "Sampling is one of"),
        ({"temperature": 0}, "The temperature"),
        ({"temperature": True}, "The temperature"),
        ({"prompt": 7}, "must be a text"),
        ({"prompt": ["hello"]}, "must be a text"),
        ({"prompt": {"text": "hello"}}, "must be a text"),
        ({"methods": ["plain", {"name": "chain"}]}, "must be a text"),
        ({"prompt": " "}, "Write a prompt first"),
        ({"methods": ["plain", "jacobi"], "sampler": "temperature"}, "Method B: jacobi"),
    ],
)
@pytest.mark.nightly
def test_what_cannot_be_started_is_refused_and_nothing_is_queued(
    play: RunService, client: TestClient, change: dict[str, Any], word: str
) -> None:
    said = {"prompt": "hello", "seed": 1, "new": 8, "methods": ["plain", "chain"], **change}
    found = client.post("/ds/compare/start", json=said)
    assert found.status_code == 422 and word in found.json()["error"] and found.json()["error"].endswith(".")
    assert not play._channels


def test_requests_that_are_no_object_or_too_large_are_refused(client: TestClient) -> None:
    for body in (b"[1]", b"{", b'"x"', b"[" * 20000, b""):
        assert client.post("/ds/compare/start", content=body).status_code == 422
    assert (
        "which is the limit"
        in client.post("/ds/compare/start", content=b" " * ((4 << 20) + 1)).json()["error"]
    )


def test_the_choices_say_which_presets_cannot_run_here_and_why(play: RunService, client: TestClient) -> None:
    del play.models.names["draft"]
    rows = {x["key"]: x for x in client.get("/ds/compare").json()["presets"]}
    assert rows["plain"]["why"] == "" and "draft" in rows["chain"]["why"]


# ---- comparison


def test_lossless_greedy_runs_are_said_to_be_the_same_and_figures_are_those_of_the_traces(
    play: RunService, client: TestClient
) -> None:
    a, b = greedy(play, PLAIN), greedy(play, CHAIN)
    found = asked(client, a, b)
    (pair,) = found["pairs"]
    assert (pair["due"], pair["verdict"], pair["at"], pair["parted"]) == ("same", "same", 24, False)
    assert "A and B draw nothing" in pair["chance"]
    row = found["rows"][1]
    steps = list(open_trace(b.path).steps)
    kept = [x.accepted for x in steps if x.drafted]
    assert row["letter"] == "B" and row["tokens"] == 24 and row["accepted_n"] == len(kept) > 2
    assert row["accepted"] == pytest.approx(sum(kept) / len(kept))
    assert [row["accepted_low"], row["accepted_high"]] == bootstrap_interval(
        kept, sure=0.95, of=lambda x: sum(x) / len(x)
    )
    assert row["accepted_low"] <= row["accepted"] <= row["accepted_high"]
    assert found["rows"][0]["accepted"] is None, "who drafts nothing has no accepted tokens"


def test_a_run_whose_text_may_differ_says_why_and_where_it_parts_from_the_plain_one(
    play: RunService, client: TestClient
) -> None:
    heavy = greedy(play, {"policy": "h2o"}, settings={"policy": {"heavy": 2, "recent": 2}})
    plain = greedy(play, PLAIN)
    one, other = (open_trace(x.path).emitted_ids for x in (heavy, plain))
    assert one != other, "the test needs a text that parts"
    rows = asked(client, heavy, plain)["rows"]
    assert rows[0]["mark"] == "lossy, because: entries leave the cache (h2o)"
    assert (
        rows[0]["away"] == f"parted from plain decoding (B) at token {common_prefix_length(one, other) + 1}"
    )
    assert rows[1]["mark"] == "lossless" and "away" not in rows[1]
    listed = {row["run"]: row for row in client.get("/ds/library").json()["rows"]}
    assert (
        listed[heavy.run]["away"] == rows[0]["away"].replace(" (B)", "") and "away" not in listed[plain.run]
    )
    assert not {"wrote", "setting"} & listed[heavy.run].keys(), "what the rows are compared by stays behind"


def test_sampled_runs_part_and_share_the_uniforms_of_the_target_s_own_tokens(
    play: RunService, client: TestClient
) -> None:
    plain = play.start(
        RunChoice(
            "hello",
            {"drafter": "none", "sampler": ["temperature"]},
            {"temperature": {"temperature": 1.0}},
            3,
            32,
        )
    )
    tree = finished(play, seed=3)
    other = finished(play, seed=4)
    assert play._jobs[plain.run].wait(300)
    found = asked(client, plain, tree, other)
    one, two, three = found["pairs"]
    tokens = [open_trace(x.path).emitted_ids for x in (plain, tree)]
    assert (
        one["at"] == common_prefix_length(*tokens) < 32
        and one["due"] == "law"
        and one["verdict"] == "free"
        and one["parted"]
    )
    assert one["ids"] == [x[one["at"]] for x in tokens]
    steps = list(open_trace(tree.path).steps)
    own = [x.n + len(x.path or []) for x in steps if x.extra is not None]
    assert (
        one["shared"]
        == one["both"]
        == len([x for x in own if x < len(open_trace(plain.path).header.prompt) + 32])
        > 3
    )
    assert f"at {one['shared']} of {one['both']}" in one["chance"]
    assert two["shared"] == 0 and "Other seeds" in two["chance"] and "luck" in three["chance"]


def test_other_prompts_models_and_lossy_methods_need_not_agree(play: RunService, client: TestClient) -> None:
    a, b = greedy(play, PLAIN), play.start(RunChoice("another one", PLAIN, max_new=8))
    c = greedy(
        play, {**PLAIN, "policy": "streaming_llm"}, settings={"policy": {"sink_tokens": 1, "recent": 8}}
    )
    assert play._jobs[b.run].wait(300)
    found = client.get(
        "/ds/compare/summary", params={"runs": f"{a.run},{b.run},{c.run},{shipped_examples()[0].run}"}
    ).json()
    why = {(x["a"], x["b"]): (x["due"], x["why"]) for x in found["pairs"]}
    assert why[0, 1] == ("free", "The prompts differ, so the texts need not be the same.")
    assert why[0, 2][0] == "free" and why[0, 2][1] == "C is lossy, so the texts may differ."
    assert why[0, 3] == ("free", "The models differ, so the texts need not be the same.")
    assert all(x["verdict"] == "free" for x in found["pairs"])


def test_a_run_that_has_not_begun_has_a_row_and_no_figures(play: Any, client: TestClient) -> None:
    with occupied(play) as first:
        second = play.start(speculative(max_new=40))
        found = asked(client, first, second)
        rows = found["rows"]
        assert (
            [x["status"] for x in rows] == ["running", "queued"]
            and not found["pairs"]
            and "tokens" not in rows[1]
        )
        play.act(second, "stop")


def test_the_table_is_a_file_with_ratios_and_no_formulas(play: RunService, client: TestClient) -> None:
    a, b = greedy(play, PLAIN), greedy(play, CHAIN)
    runs = f"{a.run},{b.run}"
    found = client.get("/ds/compare/table.csv", params={"runs": runs, "base": "0"})
    assert found.headers["content-disposition"] == 'attachment; filename="decodescope-compare.csv"'
    head, *rows = list(csv.reader(io.StringIO(found.text)))
    assert head == list(COLUMNS.values()) and len(rows) == 2 and len(set(map(len, rows))) == 1
    cells = dict(zip(head, rows[1], strict=True))
    rates = [x["rate"] for x in asked(client, a, b)["rows"]]
    assert float(cells["times the baseline's speed"]) == pytest.approx(rates[1] / rates[0])
    assert cells["runs of each"] == "1" and cells["from"] == "" and cells["text"] == "same"
    told = client.get("/ds/compare/table.json", params={"runs": runs, "base": "1"}).json()
    assert (
        told["base"] == "B"
        and told["rows"][0]["ratio"] == pytest.approx(rates[0] / rates[1])
        and told["repeats"] is None
    )
    for kind, base in (("html", "0"), ("csv", "2"), ("csv", "-1"), ("csv", "x")):
        assert client.get(f"/ds/compare/table.{kind}", params={"runs": runs, "base": base}).status_code == 404


def test_runs_that_are_gone_or_too_many_are_refused(client: TestClient) -> None:
    one = shipped_examples()[0].run
    for path in ("/ds/compare/summary", "/ds/compare/table.csv"):
        assert client.get(path, params={"runs": f"{one},{'0' * 16}"}).status_code == 404
        assert client.get(path, params={"runs": one}).status_code == 422
        assert (
            "5 were named"
            in client.get(path, params={"runs": ",".join(f"{i:016x}" for i in range(5))}).json()["error"]
        )
        assert client.get(path, params={"runs": f"{one},../secret"}).status_code == 404


# ---- repeats


def wait(client: TestClient, name: str) -> dict[str, Any]:
    def over() -> dict[str, Any] | None:
        found = client.get(f"/ds/compare/repeat/{name}").json()
        return found if found["over"] else None

    return eventually(over, "the repeats did not end")


def test_repeats_give_every_ratio_an_interval_and_record_nothing(
    play: RunService, client: TestClient
) -> None:
    channels = [greedy(play, PLAIN), greedy(play, CHAIN), finished(play, prompt="hello there")]
    before = sorted(play.folder.iterdir())
    begun = client.post("/ds/compare/repeat", json={"runs": [x.run for x in channels], "times": 4})
    assert begun.status_code == 200, begun.text
    found = wait(client, begun.json()["id"])
    assert found["rounds"] == found["times"] == 4 and found["sure"] == 0.95 and found["message"] == ""
    assert [x["same_text"] for x in found["runs"]] == [True] * 3, "one seed, one text"
    for base in channels:
        ratios = found["ratios"][base.run]
        assert set(ratios) == {x.run for x in channels} - {base.run}
        for x in ratios.values():
            low, high = x["interval"]
            assert 0 < low <= x["median"] <= high and x["n"] == 4 and math.isfinite(high)
    assert sorted(play.folder.glob("*.dstrace*")) == [x for x in before if x.is_file()]
    one, two = (x.run for x in channels[:2])
    told = client.get("/ds/compare/table.json", params={"runs": f"{one},{two}", "repeat": found["id"]}).json()
    row, due = told["rows"][1], found["ratios"][one][two]
    assert [row["ratio"], row["ratio_low"], row["ratio_high"], row["ratio_n"]] == [
        due["median"],
        *due["interval"],
        4,
    ]


@pytest.mark.nightly
def test_repeats_are_kept_and_told_by_another_server(play: RunService, client: TestClient) -> None:
    channels = [greedy(play, PLAIN), greedy(play, CHAIN)]
    begun = client.post("/ds/compare/repeat", json={"runs": [x.run for x in channels], "times": 3}).json()
    ended = wait(client, begun["id"])
    with TestClient(guarded(play), base_url=HERE, headers={"origin": HERE}) as later:
        again = later.get(f"/ds/compare/repeat/{begun['id']}").json()
        runs = ",".join(x.run for x in channels)
        row = later.get("/ds/compare/table.json", params={"runs": runs, "repeat": begun["id"]}).json()[
            "rows"
        ][1]
    assert (
        again["ratios"] == ended["ratios"] and again["over"] and again["rounds"] == 3 and row["ratio_n"] == 3
    )
    assert client.get("/ds/compare/repeat/..%2f..%2fx").status_code in (404, 422)


def test_what_is_kept_is_bounded_and_a_damaged_record_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decodescope.app.runs.compare.measurements.MOST", 3)
    kept = RecordFolder(tmp_path / "kept")
    for i in range(5):
        kept.write(f"{i:016x}", {"i": i})
        os.utime(kept.folder / f"{i:016x}.json", ns=(i, i))
    assert [kept.read(f"{i:016x}") for i in range(5)] == [None, None, {"i": 2}, {"i": 3}, {"i": 4}]
    (kept.folder / f"{4:016x}.json").write_text("{")
    assert kept.read(f"{4:016x}") is None and kept.read("../kept") is None


@pytest.mark.nightly
def test_a_ratio_is_that_of_the_rates_of_one_round(play: RunService) -> None:
    made = RepeatMeasurement(play, [greedy(play, PLAIN), greedy(play, CHAIN)], 3)
    for _ in range(3):
        made.step()
    assert made.end is not None and made.end.reason == "max_new_tokens"
    slow, quick = made._rates
    each = [b / a for a, b in zip(slow, quick, strict=True)]
    found = made.record()["ratios"][made.runs[0]][made.runs[1]]
    assert found["median"] == sorted(each)[1] and found["interval"] == bootstrap_interval(each, sure=0.95)


@pytest.mark.nightly
def test_stopped_repeats_keep_the_rounds_that_were_made(play: RunService) -> None:
    made = RepeatMeasurement(play, [greedy(play, PLAIN), greedy(play, CHAIN)], 9)
    for _ in range(2):
        made.step()
    made.stop()
    made.step()
    assert made.end is not None and made.end.reason == "stopped_by_user" and made.rounds == 2
    assert next(iter(made.record()["ratios"][made.runs[0]].values()))["n"] == 2


@pytest.mark.nightly
def test_models_that_are_not_loaded_are_loaded_by_the_worker_that_repeats(
    play: Any, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels, models, threads = [greedy(play, PLAIN), greedy(play, CHAIN)], dict(play.models.present), set()

    def bring(names: Any) -> Any:
        threads.add(threading.current_thread().name)
        play.models.present.update(models)
        return play.models.loaded_models(names)

    monkeypatch.setattr(play.models, "ensure_loaded", bring)
    play.models.present.clear()
    begun = client.post("/ds/compare/repeat", json={"runs": [x.run for x in channels], "times": 3}).json()
    assert wait(client, begun["id"])["rounds"] == 3 and threads == {"decodescope-runner"}
    play.models.present.clear()
    models["toy"].fingerprint = "another"
    begun = client.post("/ds/compare/repeat", json={"runs": [x.run for x in channels], "times": 3}).json()
    told = wait(client, begun["id"])
    assert (
        told["rounds"] == 0
        and told["over"]
        and told["message"].startswith("Run A was made with the target model toy")
    )


def test_what_cannot_be_repeated_is_refused_in_a_sentence(play: Any, client: TestClient) -> None:
    a, b = greedy(play, PLAIN), greedy(play, CHAIN)

    def refusal(*channels: Any, times: Any = 5) -> str:
        found = client.post(
            "/ds/compare/repeat", json={"runs": [getattr(x, "run", x) for x in channels], "times": times}
        )
        assert found.status_code == 422, found.text
        return str(found.json()["error"])

    assert "[3, 40]" in refusal(a, b, times=2) and "[3, 40]" in refusal(a, b, times=41)
    assert "Send" in refusal(a, b, times="5") and "2 to 4 different runs" in refusal(a, a)
    assert "prompts of these runs differ" in refusal(a, finished(play, prompt="other"))
    play.pausing = True
    going = play.start(speculative(max_new=200))
    assert "still going" in refusal(a, going)
    play._jobs[going.run].cancel()
    play._jobs[going.run].wait(60)
    play.models.loaded_models()["target"].fingerprint = "another"
    assert refusal(a, b).startswith(
        "Run A was made with the target model toy, and the one of that name here has other weights"
    )
    assert client.get("/ds/compare/repeat/0000").status_code == 422
    assert client.post("/ds/compare/repeat/0000/stop").status_code == 422


def test_a_refused_line_up_is_stopped_again(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from decodescope.app.runs.compare import comparison

    started = []
    real = play.start

    def start(choice: RunChoice, **more: Any) -> Any:
        if started:
            raise RequestRefusal("16 runs are waiting.")
        started.append(real(choice, **more))
        return started[0]

    monkeypatch.setattr(play, "start", start)
    said = {"prompt": "hello", "seed": 1, "new": 4000, "methods": ["plain", "chain"]}
    with pytest.raises(RequestRefusal, match="16 runs"):
        comparison.start_all(play, parse_choices(said))
    assert play._jobs[started[0].run].wait(60) and play._jobs[started[0].run].status in ("cancelled", "done")
