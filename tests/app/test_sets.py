"""Several methods on a set of prompts: paired ratios, their interval over prompts, kept records, files, and refusals."""

from __future__ import annotations

import csv
import io
import statistics
from typing import Any

import pytest
from starlette.testclient import TestClient
from toylab import HERE, guarded
from waiting import eventually

from decodescope.app.runs.compare.prompt_sets import MOST
from decodescope.app.runs.run_service import RunService
from decodescope.engine.bench.clock.contest import common_prefix_length
from decodescope.engine.bench.questions.bootstrap import bootstrap_interval
from decodescope.engine.trace import open_trace
from decodescope.engine.trace.query.summary import summarise

LINES = "\n".join(
    f'{{"prompt": "{text}", "category": "{kind}"}}'
    for text, kind in (("one two", "a"), ("three", "a"), ("four <b>", "b"), ("five six", "b"), ("seven", "b"))
)


def begun(client: TestClient, **said: Any) -> Any:
    body = {"methods": ["plain", "chain", "lookup"], "seed": 5, "new": 12, "text": LINES} | said
    return client.post("/ds/compare/set", json=body)


def ended(client: TestClient, name: str) -> dict[str, Any]:
    return eventually(lambda: (record := client.get(f"/ds/compare/set/{name}").json())["over"] and record)


def test_ratios_are_paired_by_prompt_and_their_interval_is_over_the_prompts(
    client: TestClient, play: RunService
) -> None:
    record = ended(client, begun(client).json()["id"])
    assert (record["of"], record["done"], record["stopped"]) == (15, 15, False) and len(record["lines"]) == 5
    assert [x["kind"] for x in record["kinds"]] == ["all", "a", "b"] and [
        x["n"] for x in record["kinds"]
    ] == [5, 2, 3]
    chain, kept = [], []
    assert [x["why"] for x in record["lines"]] == [""] * 5
    for i, line in enumerate(record["lines"]):
        traces = [open_trace(play.folder / f"{run}.dstrace") for run in line["runs"]]
        assert {x.header.seed for x in traces} == {5 + i}, "one seed for all methods of a prompt"
        rates = [summarise(x).tokens_per_s for x in traces]
        assert line["ratios"] == pytest.approx([1, rates[1] / rates[0], rates[2] / rates[0]])
        assert [x["same"] for x in line["cells"]] == [
            common_prefix_length(x.emitted_ids, traces[0].emitted_ids) for x in traces
        ]
        drafting = [x.accepted for x in traces[1].steps if x.drafted]
        assert line["cells"][1]["accepted"] == pytest.approx(statistics.fmean(drafting))
        assert line["cells"][0]["accepted"] is None and not line["cells"][1]["parted"]
        chain.append(rates[1] / rates[0])
        kept.append(statistics.fmean(drafting))
    whole = record["kinds"][0]
    assert whole["ratio"][0] is None and whole["ratio"][1]["n"] == 5
    assert whole["ratio"][1]["median"] == pytest.approx(statistics.median(chain))
    assert whole["ratio"][1]["interval"] == pytest.approx(bootstrap_interval(chain, sure=0.95))
    assert whole["accepted"][1]["interval"] == pytest.approx(
        bootstrap_interval(kept, sure=0.95, of=statistics.fmean)
    )
    assert record["kinds"][1]["accepted"][1]["mean"] == pytest.approx(statistics.fmean(kept[:2]))


def test_a_set_says_how_prompts_were_put_and_which_turns_were_not(client: TestClient) -> None:
    text = '{"turns": ["one", "and then?", "why?"]}\n{"turns": ["two"]}'
    record = ended(client, begun(client, text=text, new=4).json()["id"])
    raw, left = (
        "The prompts were put as raw text, without a chat template.",
        "2 later turns, of 1 of 2 prompts.",
    )
    assert record["asked"] == [raw, "Only first turns were asked. Left out: " + left]
    assert [x["later"] for x in record["lines"]] == [2, 0]
    page = client.get(f"/ds/compare/set/{record['id']}/page.html").text
    assert raw in page and left in page


@pytest.mark.nightly
def test_who_begins_moves_on_with_the_prompts(client: TestClient, play: RunService) -> None:
    record = ended(client, begun(client).json()["id"])
    ends = [
        [(play.folder / f"{run}.dstrace").stat().st_mtime_ns for run in x["runs"]]
        for x in record["lines"][:3]
    ]
    assert [x.index(min(x)) for x in ends] == [0, 1, 2]


@pytest.mark.nightly
def test_a_set_is_kept_and_saved_as_csv_and_as_one_page(client: TestClient, play: RunService) -> None:
    name = begun(client).json()["id"]
    record = ended(client, name)
    eventually(lambda: (play.folder / "sets" / f"{name}.json").is_file())
    with TestClient(guarded(play), base_url=HERE, headers={"origin": HERE}) as later:
        assert later.get(f"/ds/compare/set/{name}").json()["lines"] == record["lines"]
        rows = list(csv.DictReader(io.StringIO(later.get(f"/ds/compare/set/{name}/table.csv").text)))
        page = later.get(f"/ds/compare/set/{name}/page.html")
    assert len(rows) == 15 and [x["method"] for x in rows[:3]] == ["A", "B", "C"]
    assert float(rows[1]["times A's speed"]) == pytest.approx(record["lines"][0]["ratios"][1])
    assert "attachment" in page.headers["content-disposition"] and "default-src 'none'" in page.text
    assert "four &lt;b>" in page.text or "four &lt;b&gt;" in page.text, "what was pasted is text"
    assert "<script" not in page.text and "http" not in page.text.replace("http-equiv", "")
    assert f"× {record['kinds'][0]['ratio'][1]['median']:.2f}" in page.text
    assert page.text.count("n = 2, too few prompts to tell") == 2, "kind a has two prompts, and two ratios"
    assert client.get(f"/ds/compare/set/{name}/table.exe").status_code == 404


def test_what_a_set_has_so_far_is_kept_with_every_run(client: TestClient, play: Any) -> None:
    play.pausing = True  # each run pauses before its first step

    def standing() -> list[Any]:
        return [x for x in play.channels().values() if x.status == "paused"]

    name = begun(client, text="one\ntwo").json()["id"]
    first = eventually(standing)[0]
    assert not (play.folder / "sets" / f"{name}.json").exists()
    play.act(first, "resume")
    eventually((play.folder / "sets" / f"{name}.json").is_file)
    eventually(standing)
    with TestClient(guarded(play), base_url=HERE, headers={"origin": HERE}) as later:
        record = later.get(f"/ds/compare/set/{name}").json()
    assert (
        record["over"]
        and record["stopped"]
        and record["done"] == 1
        and record["lines"][0]["cells"][0]["tokens"] == 12
    )
    client.post(f"/ds/compare/set/{name}/stop")
    ended(client, name)


def test_a_stop_keeps_what_was_recorded(client: TestClient, play: Any) -> None:
    name = begun(client, new=400, text="one\ntwo\nthree\nfour").json()["id"]
    eventually(lambda: client.get(f"/ds/compare/set/{name}").json()["done"] >= 1)
    client.post(f"/ds/compare/set/{name}/stop")
    record = ended(client, name)
    assert record["stopped"] and 1 <= record["done"] < 12
    assert sum(cell is not None for x in record["lines"] for cell in x["cells"]) >= 1


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"methods": ["plain"]}, "Choose 2 to 4 methods"),
        ({"methods": ["plain", "none of these"]}, "There is no preset"),
        ({"methods": ["plain", "jacobi"], "sampler": "temperature"}, "Method B: "),
        ({"text": ""}, "no prompt in the text"),
        ({"text": "x\n" * (MOST + 1)}, f"more than {MOST}"),
        ({"seed": -1}, "The seed"),
        ({"seed": 1 << 53}, "Seed = "),
        ({"new": 5000}, "New tokens = 5000"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(
    client: TestClient, said: dict[str, Any], says: str
) -> None:
    answer = begun(client, **said)
    assert (
        answer.status_code == 422 and says in answer.json()["error"] and answer.json()["error"].endswith(".")
    )


def test_a_set_that_is_not_here_is_said_to_be_gone(client: TestClient) -> None:
    for path in ("", "/table.csv", "/page.html"):
        assert "Library" in client.get(f"/ds/compare/set/{'0' * 16}{path}").json()["error"]
