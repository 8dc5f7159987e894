"""The Cache page: what its routes answer, which requests they refuse, and the tab that finds where a text was lost."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Lab
from sizes import first_of
from starlette.testclient import TestClient
from toylab import HOSTILE, Words, finished, toy_play
from waiting import eventually

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.routes import cache as caching
from decodescope.app.runs.catalogue.examples import shipped_examples
from decodescope.app.runs.record_stream import RING
from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.engine.session.method import Method
from decodescope.engine.session.session import Session
from decodescope.engine.trace import End, TraceError, TraceWriter, open_trace, read_header
from decodescope.engine.trace.records.events import CacheChange, Header, Prefill, Step
from decodescope.lab.cache.lifetimes import EntryLifetimes

PAGE = "#ds-page-cache"
PROMPT = "abcdefghijklm the quick brown fox jumps over it"
SINKS = RunChoice(
    PROMPT, {"policy": "streaming_llm"}, {"policy": {"sink_tokens": 2, "recent": 20}}, max_new=24
)
ALL = RunChoice(PROMPT, max_new=24)
# the first line and bar for 64 and for 2,048 heads that hold 60 of 100 positions, 200 being settled for each
HEADS = """async () => {
  const file = performance.getEntriesByType("resource").find((x) => x.name.includes("cache/heads.js")).name;
  const { headsView } = await import(file);
  return [1, 32].map((layers) => {
    const of = (x) => Array(layers * 64).fill(x), by_head = { held: of(60), due: of(200), kinds: [], kind: null };
    const map = { layers, heads: 64, length: 100, step: 0, once: false, by_head };
    const view = headsView({ map, wide: () => 350, rowName: String });
    view.draw();
    return [".due", ".room"].map((x, k) => view.element.querySelector(x)?.getAttribute(k ? "width" : "d") ?? null);
  });
}"""
H2O = RunChoice(PROMPT, {"policy": "h2o"}, {"policy": {"heavy": 8, "recent": 8}}, max_new=24)
REFERENCE = replace(H2O, reference=True, level="full")

BEAMS = RunChoice(PROMPT, {"strategy": "beam"}, {"strategy": {"width": 5}}, max_new=24)

OTHER = "another text, which no other test reads"


def ran(play: RunService, choice: RunChoice) -> Any:
    """A finished run of the choice."""
    channel = play.start(choice)
    assert play._jobs[channel.run].wait(300)
    return channel


def counting(play: RunService) -> Session:
    """A run with the trace level that keeps only counts."""
    window = Method.from_names({"policy": "window"}, {"policy": {"window": 8}})
    return Session(
        play.models.loaded_models()["target"],
        window,
        Words().encode(PROMPT),
        max_new_tokens=6,
        level="summary",
    )


def told(client: TestClient, run: str, path: str = "", **asked: Any) -> Any:
    """The server's answer."""
    found = client.get(f"/ds/run/{run}/cache{path}", params=asked)
    assert found.status_code == 200 and found.headers["cache-control"] == "no-store", found.text
    return found.json()


def lives_of(channel: Any) -> EntryLifetimes:
    made = EntryLifetimes(channel.wire.header)
    for record in (channel.wire.prefill, *channel.steps(0, channel.count)):
        made.learn(record)
    return made


def bytes_of(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), np.uint8)


# ---- answers


def test_the_map_says_what_the_last_pass_did_not_read(play: RunService, client: TestClient) -> None:
    text = f"{PROMPT}, and sees another dog asleep in the sun"
    channel = ran(
        play,
        RunChoice(text, {"policy": "quest"}, {"policy": {"token_budget": 48, "dense_layers": 1}}, max_new=6),
    )
    answer = told(client, channel.run, step=4)
    read, recorded = (
        bytes_of(answer["read"]).reshape(6, -1),
        channel.steps(4, 5)[0].cache[0].read.reshape(6, -1),
    )
    assert answer["bin"] == 1 and np.array_equal(read, 255 * recorded) and not read.all() and read[:2].all()
    assert told(client, ran(play, ALL).run, step=4)["read"] is None


def test_the_map_and_one_head_are_those_of_the_records(play: RunService, client: TestClient) -> None:
    channel = ran(play, H2O)
    lives = lives_of(channel)
    found = told(client, channel.run, step=9)
    assert (found["layers"], found["heads"], found["length"]) == (3, 2, lives.length[9])
    assert found["held"] == found["least"] == 16
    assert found["bin"] == 1 and np.array_equal(
        bytes_of(found["kept"]).reshape(6, -1) > 0, lives.held_mask(9)
    )
    assert np.array_equal(bytes_of(found["mass"]).reshape(6, -1) > 0, lives.held_mask(9)), (
        "the policy's own scores are recorded"
    )
    step = channel.steps(9, 10)[0]
    sent, whole = (channel.wire.step(step, whole=x) for x in (False, True))
    assert sent["few"] and whole["kv"][0]["mass"] == found["mass"], (
        "a step that came without its map is asked for again"
    )
    assert found["texts"][:3] == [" g", " h", " i"] and (found["near"], found["heavy"], found["sinks"]) == (
        8,
        8,
        None,
    )
    few = told(client, channel.run, step=9, columns=7)
    assert few["columns"] <= 7 and few["bin"] * few["columns"] >= few["length"]
    head = told(client, channel.run, "/head", step=9, row=4, **{"from": 5, "many": 12})
    assert [x[0] for x in head["entries"]] == list(range(5, 17)) and head["held"] == 16
    for p, _, letter, left, part in head["entries"]:
        held = bool(lives.held_mask(9)[4, p])
        assert (left is None) == held == (letter in "HW") and (part > 0) == held
    heavy = told(client, channel.run, "/heavy", step=9)
    assert heavy["measured"] == "mass" and [x[2] for x in heavy["rows"]] == sorted(
        (x[2] for x in heavy["rows"]), reverse=True
    )
    one = told(client, channel.run, "/heavy", step=9, row=2)
    assert all(lives.held_mask(9)[2, x[0]] for x in one["rows"])


def test_the_life_of_an_entry_ends_where_the_record_says(play: RunService, client: TestClient) -> None:
    channel = ran(play, H2O)
    lives = lives_of(channel)
    p = int(np.argmax((lives.eviction_steps(23) < 24).sum(0) * (np.arange(lives.length[23]) > 40)))
    found = told(client, channel.run, "/life", position=p, step=23)
    left = [None if x > 23 else int(x) for x in lives.eviction_steps(23)[:, p]]
    assert (
        found["came"] == lives.creation_step(p)
        and [x[0] for x in found["rows"]] == left
        and any(x is not None for x in left)
    )
    for step, column in zip(found["steps"], found["mass"], strict=True):
        assert [x > 0 for x in bytes_of(column)] == [x is None or x > step for x in left], step
    rows = told(client, channel.run, "/lives", step=23, **{"from": p, "many": 1})["rows"]
    assert rows[0]["position"] == p and rows[0]["kept"] == left.count(None)
    series = told(client, channel.run, "/series")
    assert series["held"] == lives.held and series["full"] == lives.full and series["step"][-1] == 23
    assert all(
        kept == full * held // read
        for kept, full, held, read in zip(
            series["kept"], series["full"], series["held"], series["length"], strict=True
        )
    )
    last = told(client, channel.run, step=23)
    assert last["kept_bytes"] == series["kept"][-1] < last["full"], (
        "entries against entries, pages left out on both sides"
    )


def test_what_a_full_cache_says_is_told_of_each_step_and_over_all(
    play: RunService, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = ran(play, REFERENCE)
    series, references = (
        told(client, channel.run, "/series"),
        [x.cache[0].reference for x in channel.steps(0, channel.count)],
    )
    assert series["lost"] == [pytest.approx(float(x.lost_mass.mean()), abs=2e-6) for x in references]
    assert series["drift"] == [pytest.approx(float(x.drift.mean()), abs=2e-6) for x in references]
    step = int(np.argmax(series["worst"]))
    missed, heads = told(client, channel.run, step=step)["missed"], references[step].lost_mass.mean(0)
    assert (
        missed["worst"]
        == series["worst"][step]
        == pytest.approx(float(heads[tuple(missed["head"])]), abs=2e-6)
    )
    assert (
        missed["worst"] == pytest.approx(float(heads.max()), abs=2e-6)
        and missed["worst"] > missed["lost"] > 0
    )
    assert sum(told(client, channel.run, step=k)["missed"]["cut"] for k in range(4)) > 0
    scores, lives = channel.steps(0, 1)[0].cache[0].scores, lives_of(channel)
    row, p = next(x for x in zip(*np.nonzero(lives.eviction_steps(0) == 0), strict=True))
    life = told(client, channel.run, "/life", position=int(p), step=5)
    score, cut = next(x for k, *x in life["scores"] if k == row)
    assert (score, cut) == (
        scores.entries[row // 2, row % 2, p],
        scores.cut[row // 2, row % 2],
    ) and score <= cut
    assert [x[0] for x in life["scores"]] == [
        k for k, at in enumerate(lives.eviction_steps(5)[:, p]) if at <= 5
    ], "of each its own cut"
    with monkeypatch.context() as patch:
        patch.setattr(type(channel), "steps", None)
        assert told(client, channel.run, "/life", position=int(p), step=5) == life, (
            "the trace, opened once, has all of it"
        )
    assert told(client, ran(play, SINKS).run, "/life", position=5, step=9)["scores"] == []
    without = ran(play, H2O)
    assert told(client, without.run, step=9)["missed"] is None and "lost" not in told(
        client, without.run, "/series"
    )
    with pytest.raises(RequestRefusal, match="records nothing of a full reference cache"):
        play.start(replace(REFERENCE, level="summary"))
    with pytest.raises(RequestRefusal, match="a reference cache says nothing"):
        play.start(RunChoice(PROMPT, {"strategy": "samples"}, reference=True))


def test_a_lost_text_is_found_and_two_runs_are_compared(play: RunService, client: TestClient) -> None:
    sinks, all_, h2o = (ran(play, x) for x in (SINKS, ALL, H2O))
    other = finished(play, prompt="something else")
    found = told(client, sinks.run, "/find", text=" i j k l", step=23)
    assert found["places"][0] == [2, 5] and "no head holds any of it" in found["sentence"]
    assert all(row["kept"] == 0 and row["why"] == "O" for row in found["rows"])
    assert (
        "all 6 heads hold all of it" in told(client, all_.run, "/find", text=" I J K L", step=23)["sentence"]
    )
    assert told(client, sinks.run, "/find", text="nowhere", step=23)["places"] == []
    offered = told(client, sinks.run, "/others")["runs"]
    assert set(offered) == {all_.run, h2o.run} and other.run not in offered, "only runs of the same prompt"
    both = told(client, sinks.run, "/compare", step=23, **{"with": all_.run})
    mine, upto = lives_of(sinks), both["upto"]
    assert (
        both["jaccard"] == pytest.approx((mine.held_mask(23)[:, :upto].sum(1) / upto).tolist())
        and both["beside"] == 23
    )
    same = told(client, sinks.run, "/compare", step=5, **{"with": sinks.run})
    assert same["jaccard"] == [1.0] * 6


def test_attention_is_shown_where_it_was_recorded_and_can_be_recorded_again(
    play: RunService, client: TestClient
) -> None:
    channel = ran(play, ALL)
    assert told(client, channel.run, "/attention", step=3)["layers"] == []
    answer = client.post(f"/ds/run/{channel.run}/cache/attention", json={"layers": [2, 0]})
    again = play.find(answer.json()["run"])
    assert play._jobs[again.run].wait(300) and again.end.tokens == channel.end.tokens, (
        "a level never changes the text"
    )
    assert (
        again.wire.header.levels[-1] == "full"
        and again.wire.header.prompt.tolist() == channel.wire.header.prompt.tolist()
    )
    found = told(client, again.run, "/attention", step=3, layer=2, head=1)
    fields = again.steps(3, 4)[0].fields
    assert found["layers"] == [0, 2] == fields.layers and found["layer"] == 2
    assert np.allclose(np.array(found["weights"]), fields.attention[1, 1].astype(float), atol=1e-4)
    assert found["queries"] == [[again.steps(3, 4)[0].n - 1, found["texts"][-1]]] and sum(
        found["shares"]
    ) == pytest.approx(1, abs=1e-3)
    heavy = told(client, again.run, "/heavy", step=3)
    assert heavy["measured"] == "step" and heavy["recorded"] == [0, 1, 4, 5]


def test_a_long_run_is_answered_in_parts(play: RunService, client: TestClient, tmp_path: Path) -> None:
    """Steps that are no longer in memory, more positions than a map has columns, more steps than a series has points."""
    count, run = RING + 600, "ab" * 8
    path = play.folder / f"{run}.dstrace"
    head = Header(
        {"n_layers": 2, "n_kv_heads": 2, "vocab": 13},
        {"policy": {"recent": 100}},
        np.array([1, 2, 3], np.int32),
        0,
        run=run,
    )
    with TraceWriter(path, head) as writer:
        writer.write(Prefill(2, cache=[CacheChange("target", 2, 2, 0, 0)]))
        for i in range(count):
            gone = np.array([i - 97], np.int32) if i >= 97 else None
            change = CacheChange(
                "target", 1, min(100, i + 3), 9, 9 * i, 0 if gone is None else 1, evicted_all=gone
            )
            writer.write(Step(i, i + 3, 0.0, 0.0, [i % 13], ["target"], cache=[change]))
        writer.seal(End("max_new_tokens", [i % 13 for i in range(count)], count))
    eventually(
        lambda: told(client, run)["step"] >= count - 1
    )  # the trace is still being read while the test asks
    found = told(client, run)
    assert found["step"] == count - 1 and found["columns"] <= 450 and found["length"] == count + 2
    kept = bytes_of(found["kept"]).reshape(4, -1)
    assert kept[:, -15:-1].all() and not kept[:, :400].any()
    assert len(told(client, run, "/series")["step"]) <= 480
    life = told(client, run, "/life", position=2, step=count - 1)
    assert len(life["steps"]) <= 242 and [x[0] for x in life["rows"]] == [99] * 4 and life["mass"] is None
    assert told(client, run, step=5)["held"] == 8
    assert len(told(client, run, "/head", step=count - 1, **{"from": 2000})["entries"]) == caching.ENTRIES


# ---- refusals


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("", {"step": 99}),
        ("", {"step": "-1"}),
        ("", {"step": "x", "columns": 5}),
        ("", {"columns": 0}),
        ("/head", {"row": 6}),
        ("/head", {"from": 1 << 20}),
        ("/life", {"position": 4000}),
        ("/find", {"text": " "}),
        ("/find", {"text": "x" * 2001}),
        ("/compare", {"with": "0" * 16}),
        ("/compare", {"with": "<script>"}),
        ("/heavy", {"row": "9"}),
        ("/lives", {"from": "²"}),
    ],
)
@pytest.mark.nightly
def test_a_question_that_makes_no_sense_is_refused_in_a_sentence(
    client: TestClient, play: RunService, path: str, asked: Any
) -> None:
    channel = ran(play, RunChoice(PROMPT, max_new=3))
    found = client.get(f"/ds/run/{channel.run}/cache{path}", params=asked)
    assert (
        found.status_code == 422 and found.json()["error"].endswith(".") and len(found.json()["error"]) < 300
    )


def test_runs_that_cannot_be_compared_and_records_without_evictions_are_refused(
    play: RunService, client: TestClient
) -> None:
    one, two = ran(play, ALL), ran(play, RunChoice("another prompt", max_new=3))

    def why(path: str, **asked: Any) -> str:
        found = client.get(f"/ds/run/{one.run}/cache{path}", params=asked)
        return str(found.json()["error"])

    assert "different prompts" in why("/compare", **{"with": two.run})
    assert "differ in shape" in why("/compare", **{"with": shipped_examples()[0].run})
    counted = play.launch({"target": "toy"}, lambda models: counting(play))
    assert play._jobs[counted.run].wait(300)
    assert told(client, counted.run)["untold"] and "decisions" in why("/compare", **{"with": counted.run})
    assert client.get(f"/ds/run/{'0' * 16}/cache").status_code == 404
    for body, code in (
        ("[]", 400),
        ("{", 400),
        ('{"layers": []}', 422),
        ('{"layers": [3]}', 422),
        ('{"layers": ["0"]}', 422),
    ):
        found = client.post(f"/ds/run/{one.run}/cache/attention", content=body)
        assert found.status_code == code and found.json()["error"].endswith("."), body
    found = client.post(f"/ds/run/{shipped_examples()[1].run}/cache/attention", json={"layers": [0]})
    assert found.status_code == 200, "the model that the example was made with is loaded when its turn comes"
    play.act(play.channels()[found.json()["run"]], "stop")


def test_a_header_is_read_without_the_rest(play: RunService, tmp_path: Path) -> None:
    path = ran(play, RunChoice(PROMPT, max_new=3)).path
    whole = open_trace(path)
    assert (
        read_header(path).run == whole.header.run
        and read_header(path).prompt.tolist() == whole.header.prompt.tolist()
    )
    whole.close()
    data = path.read_bytes()
    for broken in (b"", data[:9], data[:40], b"x" + data[1:], data[:60] + b"?" + data[61:]):
        (tmp_path / "broken").write_bytes(broken)
        with pytest.raises(TraceError, match="broken"):
            read_header(tmp_path / "broken")
    with pytest.raises(TraceError, match="cannot be opened"):
        read_header(tmp_path / "none")


# ---- the tab


@pytest.mark.browser
@pytest.mark.xdist_group("tabs")
class TestTheTab:
    """What the tab shows, and what works with the keyboard alone."""

    def opened(self, lab: Lab, run: str, step: int | None = None, **more: Any) -> Any:
        """The page with the run's views drawn."""
        page = lab.open(f"/#cache&run={run}" + ("" if step is None else f"&step={step}"), ready=False, **more)
        page.wait_for_selector(f"{PAGE} .map canvas:visible")
        page.wait_for_selector(f"{PAGE} .cell")
        return page

    @pytest.mark.nightly
    def test_keeping_all_saves_nothing_and_costs_nothing(self, lab: Lab) -> None:
        """Entries are compared with entries; the page also reports the memory pages that hold them."""
        page = self.opened(lab, ran(lab.play, replace(ALL, prompt=OTHER)).run)
        page.wait_for_selector(f"{PAGE} .bytes .lead b")
        kept, rest = page.inner_text(f"{PAGE} .bytes .lead").split(" of entries kept, ")
        missed = page.locator(f"{PAGE} .missed")
        assert missed.count() == 1 and missed.is_hidden(), "no full cache was kept beside"
        assert rest.startswith(f"100 % of the {kept} of all;") and "in whole pages of 16 entries" in rest
        page = self.opened(lab, ran(lab.play, replace(SINKS, prompt=OTHER)).run)
        page.wait_for_selector(f"{PAGE} .bytes .lead b")
        assert 0 < int(page.inner_text(f"{PAGE} .bytes .lead").split("kept, ")[1].split(" %")[0]) < 100
        (ends, wide), (none, _) = page.evaluate(HEADS)
        assert ends == "M40,0v16" and wide == "6", (
            "of 64 heads on a phone each has a bar, and no line stands beyond its end"
        )
        assert none is None, "more than a thousand heads are told by the table alone"

    @pytest.mark.nightly
    def test_what_hypotheses_share_is_a_tree_of_nodes(self, lab: Lab) -> None:
        beams = ran(lab.play, replace(BEAMS, prompt=OTHER))
        page = self.opened(lab, beams.run, 20)
        change = next(iter(beams.steps(20, 21))).cache[0]
        page.wait_for_selector(f"{PAGE} .prefixes .node")
        assert page.locator(f"{PAGE} .prefixes .node").count() == len(change.shared) > 3
        assert page.locator(f"{PAGE} .prefixes .shared").count() == int((change.shared[:, 3] > 1).sum())
        titles = page.locator(f"{PAGE} .prefixes title").all_text_contents()
        assert (
            titles[0]
            == f"positions 0 to {change.shared[0, 2] - 1}, {change.shared[0, 2]} entries, read by 5 texts"
        )
        wide = page.locator(f"{PAGE} .tree svg").bounding_box()["width"]
        page.set_viewport_size({"width": 390, "height": 900})
        page.wait_for_function(
            "([at, wide]) => { const tree = document.querySelector(at); return tree.clientWidth < wide"
            " && tree.scrollWidth <= tree.clientWidth; }",
            arg=[f"{PAGE} .tree", wide],
        )
        tops = page.locator(f"{PAGE} .prefixes rect").evaluate_all("x => x.map((y) => y.getAttribute('y'))")
        parents = set(change.shared[:, 0].tolist())
        leaves = [y for node, y in enumerate(tops) if node not in parents]
        assert len(leaves) == len(set(leaves)) > 2, "texts stand below each other"
        assert f"replace the {change.held * 5} that 5 texts read" in page.inner_text(
            f"{PAGE} .prefixes .lead"
        )
        kept = page.inner_text(f"{PAGE} .bytes .lead b")
        assert kept == f"{change.kept_bytes(change.held) / 1024:.1f} KiB", "what is shared is kept once"
        page = self.opened(lab, ran(lab.play, replace(ALL, prompt=OTHER)).run, 5)
        page.wait_for_selector(f"{PAGE} .bytes .lead b")
        assert page.locator(f"{PAGE} .prefixes").is_hidden()

    def test_why_the_needle_was_lost_and_what_another_policy_keeps(self, lab: Lab) -> None:
        sinks, all_ = ran(lab.play, SINKS), ran(lab.play, ALL)
        page = self.opened(lab, sinks.run, 20)
        page.wait_for_selector(f"{PAGE} h1:text-is('Step 20')")
        page.get_by_label("text to find").fill(" i j k l")
        page.keyboard.press("Enter")
        page.wait_for_selector(f"{PAGE} aside .told >> text=no head holds any of it")
        assert "the window moved past it" in page.inner_text(f"{PAGE} aside .told")
        assert page.locator(f"{PAGE} aside .told ~ div table").first.locator("tbody tr").count() == 6
        page.wait_for_selector(f"{PAGE} .cell.hit")
        assert page.locator(f"{PAGE} .cell.hit.gone").count() == 4
        page.wait_for_function(f"document.querySelector('{PAGE} .both select')?.options.length == 2")
        page.select_option(f"{PAGE} .both select", all_.run)
        page.wait_for_selector(f"{PAGE} .both table")
        lives = lives_of(sinks)
        upto = int(page.locator(f"{PAGE} .both .told").inner_text().split("the first ")[1].split(" ")[0])
        due = [f"{x:.2f}" for x in lives.held_mask(20)[:, :upto].sum(1) / upto]
        assert page.locator(f"{PAGE} .both tbody .share").all_inner_texts() == due
        assert "step=20" in page.evaluate("location.hash")
        page.click("#ds-tab-lab")
        page.wait_for_function(f"location.hash == '#run={sinks.run}'")

    @pytest.mark.nightly
    def test_the_arrows_walk_in_the_map_and_each_picture_has_its_table(self, lab: Lab) -> None:
        run = ran(lab.play, REFERENCE)
        page = self.opened(lab, run.run, 12)
        page.focus(f"{PAGE} .map canvas")
        for key in ("Home", "ArrowRight", "ArrowRight", "ArrowDown"):
            page.keyboard.press(key)
        page.wait_for_selector(f"{PAGE} .tip:has-text('layer 0, head 1, position 2')")
        page.wait_for_selector(f"{PAGE} .life h2:has-text('Position 2')")
        page.keyboard.press("Enter")
        assert page.evaluate("!!document.activeElement.closest('.life')")
        page.wait_for_selector(f"{PAGE} .cell[aria-selected='true'][data-p='2']")
        page.focus(f"{PAGE} .cell[aria-selected='true']")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(f"{PAGE} .life h2:has-text('Position 3')")
        page.wait_for_function("document.activeElement.dataset.p == '3'")
        step = page.inner_text(f"{PAGE} .where")
        page.keyboard.press(".")
        page.wait_for_function(f"document.querySelector('{PAGE} .where')?.textContent != '{step}'")
        lives = lives_of(run)
        for name in ("map", "one", "life", "bytes", "missed"):
            page.locator(f"{PAGE} .{name} >> text=Show as table").click()
            page.wait_for_selector(f"{PAGE} .{name} tbody tr")
        rows = page.locator(f"{PAGE} .map tbody tr")
        page.wait_for_function(
            f"document.querySelectorAll('{PAGE} .map tbody tr').length == {lives.length[13]}"
        )
        assert [
            int(x.split(" of ")[0]) for x in rows.locator("td:nth-child(4)").all_inner_texts()
        ] == lives.held_mask(13).sum(0).tolist()
        missed = run.steps(13, 14)[0].cache[0].reference
        page.wait_for_selector(
            f"{PAGE} .missed p:has-text('In step 13, {100 * missed.lost_mass.mean():.0f} % of the full')"
        )
        assert page.locator(f"{PAGE} .life tbody tr").count() == 6
        assert page.locator(f"{PAGE} .missed tbody tr").count() == 24
        cuts = page.locator(f"{PAGE} .life tbody tr:has-text(': score ')")
        assert cuts.count() == (lives.eviction_steps(13)[:, 3] <= 13).sum() > 0, (
            "each head that lost it says by how much"
        )
        assert (
            page.locator(f"{PAGE} .missed").inner_text().count(f"drifted by {missed.drift.mean():.3f} nats")
            == 1
        )

    @pytest.mark.nightly
    @pytest.mark.parametrize("width", first_of(390, 900, 1920))
    def test_it_fits_and_a_run_is_recorded_again_with_attention(self, lab: Lab, width: int) -> None:
        page = self.opened(
            lab, ran(lab.play, ALL).run, 5, width=width, color_scheme="dark" if width == 900 else "light"
        )
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")
        assert "Record it with --trace-level full" in page.inner_text(f"{PAGE} .seen")
        if width != 390:
            return
        page.get_by_label("layers, with commas").fill("x")
        page.keyboard.press("Enter")
        page.wait_for_selector(f"{PAGE} .seen .ds-refusal")
        page.get_by_label("layers, with commas").fill("0, 2")
        page.keyboard.press("Enter")
        page.wait_for_selector(f"{PAGE} .seen canvas:visible")
        assert page.locator(f"{PAGE} .seen select >> nth=0 >> option").all_inner_texts() == ["0", "2"]
        page.locator(f"{PAGE} .seen >> text=Show as table").click()
        page.wait_for_selector(f"{PAGE} .seen tbody tr")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")

    @pytest.mark.nightly
    def test_the_steps_stay_at_the_bottom_of_the_window(self, lab: Lab) -> None:
        page = self.opened(lab, ran(lab.play, H2O).run, 5)
        bar = page.locator(f"{PAGE} .steps").bounding_box()
        assert (
            page.evaluate("document.documentElement.scrollHeight") > 1000
            and 895 <= bar["y"] + bar["height"] <= 901
        )

    @pytest.mark.nightly
    def test_a_run_that_is_gone_is_said_with_what_to_do(self, lab: Lab) -> None:
        page = lab.open(f"/#cache&run={'0' * 14}ee&step=3", ready=False)
        page.wait_for_selector(
            f"{PAGE} .nothing >> text=This run is not here any more. No run is shown: press Run in the Lab"
        )
        assert page.evaluate("location.hash") == "#cache" and page.locator(f"{PAGE} .open").is_hidden()
        page.evaluate(f"location.hash = 'cache&run={shipped_examples()[1].run}'")
        page.wait_for_selector(f"{PAGE} .map canvas:visible")
        assert page.locator(f"{PAGE} .nothing").is_hidden()

    @pytest.mark.nightly
    def test_hostile_tokens_are_text(self, driver: Any, tmp_path: Path) -> None:
        from browser import served

        from decodescope.app.http.guard import Guard
        from decodescope.app.server import build_app

        play = toy_play(tmp_path, HOSTILE)
        run = ran(play, H2O).run
        with served(lambda port: Guard(build_app(play), port)) as address:
            lab = Lab(driver, address, play)
            page = self.opened(lab, run)
            page.get_by_label("text to find").fill("<script>")
            page.keyboard.press("Enter")
            page.wait_for_selector(f"{PAGE} aside .told >> text=It is at")
            page.locator(f"{PAGE} >> text=Show it").click()
            page.wait_for_selector(f"{PAGE} .life h2:has-text('script')")
            for button in page.locator(f"{PAGE} >> text=Show as table").all():
                if button.is_visible():
                    button.click()
            page.wait_for_selector(f"{PAGE} .map tbody tr")
            assert (
                page.evaluate("window.trap") is None
                and page.locator(f"{PAGE} script, {PAGE} img").count() == 0
            )
            page.context.close()
            play.close()
        assert not lab.troubles
