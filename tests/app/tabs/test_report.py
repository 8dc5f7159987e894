"""The report on the page: its routes and refusals, and the tab that draws it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import STEP, Lab
from sizes import first_of
from starlette.testclient import TestClient
from toylab import HOSTILE, finished, occupied, toy_play

from decodescope.app.routes import examination_job as examinations
from decodescope.app.routes import report as reports
from decodescope.app.runs.catalogue.examples import examples, shipped_examples
from decodescope.app.runs.compare.measurements import RecordFolder
from decodescope.app.runs.run_service import RunService
from decodescope.engine.trace import open_trace
from decodescope.lab import report
from decodescope.lab.formatting.style import format_percent
from decodescope.lab.formatting.tokens import visible_piece
from decodescope.lab.reports.changes import change_interval
from decodescope.lab.reports.tables import headline, tables


def test_the_tables_are_those_of_the_report_over_the_named_runs(play: RunService, client: TestClient) -> None:
    channels = [finished(play, max_new=20), finished(play, prompt="another", max_new=24)]
    found = client.get("/ds/report", params={"runs": ",".join(x.run for x in channels)})
    due = report([open_trace(x.path) for x in channels])
    assert found.status_code == 200 and found.headers["cache-control"] == "no-store"
    assert found.json()["lead"] == headline(due) and due.runs == 2
    assert [x["before"] for x in found.json()["deaths"]] == [
        visible_piece(x.before, 80) for x in due.deaths
    ], "white space is seen"
    assert [(x["run"], x["step"], x["node"]) for x in found.json()["deaths"]] == [
        (x.run, x.step, x.node) for x in due.deaths
    ]
    assert [(x["title"], x["rows"]) for x in found.json()["tables"]] == [
        (x.title, [*map(list, x.rows)]) for x in tables(due)
    ]
    chart = found.json()["chart"]
    light, dark = (chart[x]["layout"]["paper_bgcolor"] for x in ("light", "dark"))
    assert (light, dark) == ("#ffffff", "#14171c") and "Best length" in found.json()["speed"][0]
    script = client.get("/" + chart["library"])
    assert script.headers["content-type"].startswith("text/javascript") and len(script.content) > 1e6
    page = client.get("/ds/report.html", params={"runs": channels[0].run})
    assert page.headers["content-disposition"] == 'attachment; filename="decodescope-report.html"'
    assert page.text.startswith("<!doctype html>") and "1 run of toy with toy" in page.text


def test_what_cannot_be_counted_is_refused_in_a_sentence(
    play: RunService, client: TestClient, tmp_path: Path
) -> None:
    one, shown = finished(play, max_new=12), {x.title: x.run for x in examples()}

    def asked(runs: str) -> tuple[int, str]:
        found = client.get("/ds/report", params={"runs": runs})
        return found.status_code, found.json()["error"]

    assert asked("")[0] == 400 and asked(",".join(f"{i:016x}" for i in range(129)))[0] == 400
    assert asked("0" * 16)[0] == asked("../secret")[0] == 404
    code, said = asked(f"{one.run},{shipped_examples()[0].run}")
    assert code == 422 and "another" in said and str(tmp_path) not in said
    code, said = asked(shown["Eviction while decoding"])
    assert code == 422 and "holds a draft" in said
    one.path.unlink()
    assert asked(one.run)[0] == 404


def test_a_run_that_still_goes_is_refused(play: Any, client: TestClient) -> None:
    from toylab import speculative

    play.pausing = True
    channel = play.start(speculative(max_new=400))
    assert client.get("/ds/report", params={"runs": channel.run}).status_code == 409
    play._jobs[channel.run].cancel()
    assert play._jobs[channel.run].wait(60)


def test_a_trace_that_makes_no_sense_is_refused(
    play: RunService, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = finished(play, max_new=12)
    monkeypatch.setattr(reports, "report_record", lambda made: {"bars": [float("nan")]})
    found = client.get("/ds/report", params={"runs": one.run})
    assert found.status_code == 422 and "holds what no run writes" in found.json()["error"]


# ---- the tab

drawn = [pytest.mark.browser, pytest.mark.xdist_group("tabs")]


def browsed(test: Any) -> Any:
    """Mark a test that drives a page."""
    for mark in drawn:
        test = mark(test)
    return test


def finished_with(play: Any) -> Any:
    """A run that has ended, in a lab whose runs start paused."""
    play.pausing = False
    channel = finished(play, max_new=8)
    play.pausing = True
    return channel


@browsed
def test_an_example_is_reported_and_saved(lab: Lab) -> None:
    example = shipped_examples()[0]
    page = lab.open(f"/#report&run={example.run}", ready=False)
    page.wait_for_selector("#ds-page-report .group")
    drafting = [x for x in examples() if open_trace(x.path).header.method["drafter"]["name"] != "none"]
    assert len(drafting) < len(examples()), "the test needs an example without a draft, which gets no group"
    page.wait_for_function(f"document.querySelectorAll('#ds-page-report .group').length == {len(drafting)}")
    group = page.locator(".group", has=page.locator(f"input[value='{example.run}']"))
    group.get_by_role("button", name="report on 1 run of draft model + temperature, ").click()
    page.wait_for_selector("#ds-page-report .out table")
    made = report(open_trace(example.path))
    due = tables(made)
    page.wait_for_selector(".plot .main-svg")
    drawn = page.evaluate("document.querySelector('.plot').data.map((x) => [x.name, [...x.y]])")
    assert drawn[2] == ["always right", pytest.approx([x.perfect for x in made.curve])]
    assert page.locator("#ds-page-report .out h2").all_inner_texts() == [
        "Speed by length, by the model",
        due[0].title,
        "Examine the draft",
        *(x.title for x in due[1:]),
        "Every rejection",
    ]
    bars = page.locator("#ds-page-report .out rect.fill").evaluate_all(
        "all => all.map((x) => Number(x.getAttribute('width')))"
    )
    assert bars == pytest.approx([140 * x for table in due for x in table.bars if x is not None], abs=0.1)
    box = page.locator("section", has=page.locator("h2", has_text="What to try")).last.locator(".wide")
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 1000})
        assert box.evaluate("x => x.scrollWidth <= x.clientWidth"), width
    assert f"of={example.run}" in page.evaluate("location.hash")
    assert page.locator(".out .lead a").get_attribute("href") == f"ds/report.html?runs={example.run}"
    page.reload()
    page.wait_for_selector("#ds-page-report .out table")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.click("#ds-tab-lab")
    page.wait_for_function(f"location.hash == '#run={example.run}'")
    page.click("#ds-tab-report")
    page.wait_for_function(f"location.hash.endsWith('of={example.run}')")
    assert page.locator("#ds-page-report .out table").count() == len(due) + 1


@browsed
def test_the_draft_of_a_report_is_examined_stopped_and_examined_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The button runs the doctor in the worker; its causes and panels are drawn."""
    monkeypatch.setattr(examinations, "ANSWER", 6)
    channel = finished_with(lab.play)
    page = lab.open(f"/#report&of={channel.run}", ready=False)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    asked = page.locator(".examination")
    asked.locator("code").wait_for()
    asked.get_by_role("button", name="Copy").click()
    asked.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == asked.locator("code").inner_text()
    assert asked.locator("code").inner_text().startswith("decodescope doctor draft --model toy")
    assert f"at most {examinations.PROMPTS} of these prompts" in asked.inner_text()
    with occupied(lab.play):
        asked.get_by_role("button", name="Examine the draft").click()
        asked.get_by_text("waiting for the runs before it").wait_for()
        asked.get_by_role("button", name="Stop").click()
        asked.get_by_text("It was stopped, so there is no result.").wait_for()
    asked.get_by_role("button", name="Examine the draft").click()
    asked.locator(".panels .main-svg").nth(5).wait_for()
    record = json.loads(next((lab.play.folder / "examinations").glob("*.json")).read_bytes())
    cells = asked.locator("tbody tr").first.locator("th, td").all_inner_texts()
    cause = record["result"]["findings"][0]
    assert (cells[0], cells[2], cells[3]) == (cause["title"], cause["evidence"], cause["check"])
    drawn = page.evaluate("document.querySelector('.panels figure:nth-child(2) .plot').data[0].y")
    assert drawn == pytest.approx([x["share"] for x in record["result"]["ranks"]])
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.nightly
@browsed
@pytest.mark.parametrize("width", first_of(390, 900, 1440))
def test_no_word_of_a_table_is_broken_and_none_is_cut_off(lab: Lab, width: int) -> None:
    page = lab.open(f"/#report&of={shipped_examples()[0].run}", ready=False, width=width)
    page.wait_for_selector("#ds-page-report .out table")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    cells = page.locator("#ds-page-report .out tbody :is(th, td)")
    lines = cells.evaluate_all(
        """all => all.map((x) => {
            const range = document.createRange(), words = x.querySelector("a, button") || x;
            range.selectNodeContents(words);
            return [x.textContent.length, new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size];
        })"""
    )
    assert len(lines) > 200 and {rows for length, rows in lines if 0 < length <= 24} == {1}
    assert max(rows for _, rows in lines) <= 3
    for table in page.locator(
        "#ds-page-report .wide"
    ).all():  # tables wider than the window are scrolled with the keyboard
        assert table.get_attribute("tabindex") == "0" and table.get_attribute("aria-label")
    bars = page.locator("#ds-page-report .bar").evaluate_all(
        "all => [...new Set(all.map((x) => x.getBoundingClientRect().width))]"
    )
    assert len(bars) == 1 and bars[0] >= 48, "one scale for all shares"
    sides = page.locator("#ds-page-report .out > section:not(.lead)").evaluate_all(
        "all => new Set(all.map((x) => Math.round(x.getBoundingClientRect().left))).size"
    )
    assert sides == (2 if width == 1440 else 1)


@browsed
@pytest.mark.nightly
def test_the_method_that_is_reported_is_marked(lab: Lab) -> None:
    page = lab.open(f"/#report&of={shipped_examples()[0].run}", ready=False)
    page.wait_for_selector("#ds-page-report .out table")
    marked = page.locator("#ds-page-report .group [aria-current=true]")
    assert str(marked.get_attribute("aria-label")).startswith(
        "report on 1 run of draft model + temperature, "
    )
    page.get_by_role("button", name="report on 1 run of kangaroo + greedy, ").click()
    page.wait_for_selector("#ds-page-report .group [aria-current=true][aria-label*=kangaroo]")
    assert marked.count() == 1


@browsed
@pytest.mark.nightly
def test_runs_are_chosen_with_ticks_and_what_is_refused_is_said(lab: Lab) -> None:
    first, second = (finished(lab.play, prompt=x, max_new=16) for x in ("one", "two"))
    page = lab.open("/#report", ready=False)
    group = page.locator(".group", has_text="toy")
    group.locator("summary").click()
    boxes = group.locator("input[type=checkbox]")
    assert boxes.count() == 2 and group.locator("input:checked").count() == 2
    group.locator(f"input[value='{first.run}']").uncheck()
    assert "1 of 2 runs" in group.inner_text()
    group.locator(f"input[value='{second.run}']").uncheck()
    assert group.locator(".ds-button").is_disabled()
    group.locator(f"input[value='{second.run}']").check()
    group.locator(".ds-button").click()
    page.wait_for_selector(".out .lead p")
    assert page.locator(".out .lead p").first.inner_text().startswith("1 run of toy with toy")
    second.path.rename(second.path.with_suffix(".away"))
    group.locator(".ds-button").click()
    page.wait_for_selector("#ds-page-report .told.ds-refusal")
    assert page.locator(".out table").count() == 0


@browsed
@pytest.mark.nightly
def test_each_row_of_a_rejection_opens_the_debugger_at_its_run_step_and_node(lab: Lab) -> None:
    runs = [finished(lab.play, prompt=x, max_new=40) for x in ("three", "four!")]
    due = report([open_trace(x.path) for x in runs])
    page = lab.open("/#report&of=" + ",".join(x.run for x in runs), ready=False)
    page.wait_for_selector(".deaths tbody tr")
    deep = [x for x in due.deaths if x.depth == 2 and x.run == 1]
    assert deep and len(due.deaths) > 25, (
        "the test needs a rejection behind the first node, in the second run"
    )
    assert (
        page.locator(".deaths tbody tr").count() == 25 and page.locator(".deaths button:visible").count() == 1
    )
    page.get_by_role("button", name=f"list {len(due.deaths)} rejections: draft of a step").click()
    page.wait_for_selector(
        f".deaths [role=status]:text('{len(due.deaths)} places at which a draft was rejected')"
    )
    page.get_by_role("button", name=re.compile("rejections?: depth 2$")).click()
    page.wait_for_function("document.activeElement.matches('.deaths')")
    listed = [x for x in due.deaths if x.depth == 2]
    rows = page.locator(".deaths tbody tr")
    assert rows.count() == min(25, len(listed))
    at = next(i for i, x in enumerate(listed) if x.run == 1)
    assert rows.nth(at).locator("td").nth(3).inner_text() == deep[0].drafted
    rows.nth(at).locator("td").nth(3).click(force=True)  # the link of the first cell covers the whole row
    page.wait_for_function(f"location.hash.startsWith('#debugger&run={runs[1].run}')")
    page.wait_for_function(f"{STEP.replace('.ds h1', '#ds-page-debugger .ds h1')} === {deep[0].step}")
    page.wait_for_selector(f"#ds-page-debugger .decision:has-text('node {deep[0].node + 1}, depth 2')")
    page.go_back()
    page.wait_for_selector("#ds-page-report .deaths tbody tr >> visible=true")
    taken = page.locator(".out > section", has=page.get_by_role("heading", name="Taken for another"))
    place = taken.locator("td a").first
    first = next(
        x for x in due.deaths if (x.drafted, x.came) == (due.confusions[0].drafted, due.confusions[0].came)
    )
    assert (
        place.get_attribute("href")
        == f"#debugger&run={runs[first.run].run}&step={first.step}&node={first.node + 1}"
    )
    rows = page.locator(".out section:not(.deaths, .speed) tbody tr")
    assert rows.count() > 30 and page.locator(".out td.steps").count() == rows.count() - len(due.confusions)
    depth = next(x for x in tables(due) if x.title == "By depth")
    (run, step), *_ = depth.steps[1]
    link = page.locator(".out > section", has=page.get_by_role("heading", name="By depth")).locator(
        "tr:nth-child(2) td.steps a"
    )
    link.first.click()
    page.wait_for_function(f"location.hash.startsWith('#debugger&run={runs[run].run}&step={step}')")


@browsed
@pytest.mark.nightly
def test_runs_of_one_method_are_told_apart_and_lead_to_themselves(lab: Lab) -> None:
    runs = [finished(lab.play, prompt=x, max_new=20, seed=77) for x in ("abc", "bcd")]
    page = lab.open("/#report", ready=False)
    group = page.locator(".group", has_text="toy")
    group.locator("summary").click()
    rows = [group.locator("li", has=page.locator(f"input[value='{x.run}']")) for x in runs]
    names = [row.locator(".name").inner_text() for row in rows]
    begins = [x.removeprefix("draft model + temperature: ").split()[:3] for x in names]
    assert begins == [["g", "h", "i"], ["h", "i", "j"]], "method, and how their prompts begin"
    rows[1].locator("a").click()
    page.wait_for_function(f"location.hash.startsWith('#debugger&run={runs[1].run}')")


@pytest.mark.nightly
@browsed
def test_a_method_is_run_on_prompts_with_progress_and_the_report_over_them_is_shown(lab: Lab) -> None:
    model = finished(lab.play, max_new=8)
    page = lab.open("/#report", ready=False)
    page.wait_for_selector(f"#ds-page-report input[value='{model.run}']", state="attached")
    page.get_by_role("button", name="Run a method on prompts", exact=True).click()
    page.wait_for_function("document.querySelector('.panel select optgroup option')")
    page.locator(".panel form > label select").select_option(model.run)
    page.locator(".panel").get_by_label("Prompts", exact=True).fill("one\n" + "word " * 600 + "\nthree")
    page.locator(".panel").get_by_label("New tokens of each").fill("9")
    page.locator(".panel").get_by_label("Prompts at a time").fill("2")
    page.locator(".panel .go").click()
    page.wait_for_selector("#ds-page-report .deaths tbody tr")
    assert page.locator("#ds-page-report .lead p").first.inner_text().startswith("2 runs of toy with toy")
    assert "3 of 3 prompts, 18 tokens; done, 2 runs recorded." in page.locator(".progress").inner_text()
    refused = page.locator(".refused li")
    assert refused.count() == 1 and "3000 tokens" in refused.inner_text()
    assert (
        page.locator("#ds-page-report .out > p", has_text="were run for several texts at once").count() == 1
    )
    runs = page.evaluate("location.hash").partition("of=")[2].split(",")
    assert [open_trace(lab.play.folder / f"{x}.dstrace").header.seed for x in runs] == [0, 2]


@browsed
@pytest.mark.nightly
def test_a_batch_is_found_again_by_its_address_and_stopped(paused: Lab) -> None:
    model = finished_with(paused.play)
    page = paused.open("/#report", ready=False)
    page.wait_for_selector(f"#ds-page-report input[value='{model.run}']", state="attached")
    page.get_by_role("button", name="Run a method on prompts", exact=True).click()
    page.wait_for_function("document.querySelector('.panel select optgroup option')")
    page.locator(".panel form > label select").select_option(model.run)
    page.locator(".panel").get_by_label("Prompts", exact=True).fill("one\ntwo")
    page.locator(".panel .go").click()
    page.wait_for_function("/batch=[0-9a-f]{16}/.test(location.hash)")
    page.reload()
    page.wait_for_selector(".progress:has-text('paused: 1: “one”')")
    page.locator(".progress .ds-button").click()
    page.wait_for_selector(".progress:has-text('0 recorded'), .progress:has-text('stopped, ')")
    assert (
        page.locator(".progress .ds-button").is_hidden()
        and "1 of 2 prompts" in page.locator(".progress").inner_text()
    )
    page.wait_for_function("!location.hash.includes('batch=')")


@browsed
@pytest.mark.nightly
def test_batches_are_listed_each_with_its_report(lab: Lab) -> None:
    play = lab.play
    runs = [finished(play, prompt=x, max_new=9).run for x in ("one", "two")]
    record = {
        "id": "cd" * 8,
        "called": "draft model",
        "at": 1.0,
        "of": 3,
        "done": 2,
        "tokens": 18,
        "over": False,
    }
    rows = [{"begins": "one <b>", "run": run} for run in runs]
    RecordFolder(play.folder / "batches").write(
        "cd" * 8, {**record, "stopped": False, "rows": rows, "runs": runs}
    )
    page = lab.open("/#report", ready=False)
    page.locator(".earlier summary").click()
    line = page.locator(
        ".earlier li", has_text="2 of 3 prompts, 18 tokens, stopped, “one <b>” first, 1 Jan 1970"
    )
    line.get_by_role("button", name="report on 2 runs of draft model").click()
    page.wait_for_selector("#ds-page-report .lead p >> text=2 runs of toy")
    assert f"of={','.join(runs)}" in page.evaluate("location.hash")


@browsed
@pytest.mark.nightly
def test_kinds_of_a_file_and_of_labbench_are_chosen(lab: Lab, tmp_path: Path) -> None:
    file, bad = tmp_path / "p.jsonl", tmp_path / "bad.txt"
    lines = [
        json.dumps({"turns": [x], "category": kind}) for x, kind in (("a", "qa"), ("b", "qa"), ("c", "math"))
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    bad.write_bytes(b"caf\xe9")
    page = lab.open("/#report", ready=False)
    page.wait_for_selector("#ds-page-report .group")
    page.get_by_role("button", name="Run a method on prompts", exact=True).click()
    page.locator(".panel").get_by_label("Prompts from").select_option("labbench")
    page.wait_for_selector(".set p:has-text('96 prompts.')")
    assert page.locator(".kinds input").count() == 12
    page.locator(".panel").get_by_label("Of each kind").fill("0")
    page.wait_for_selector(".set p:has-text('560 prompts; at most 128 run at a time')")
    page.locator(".panel").get_by_label("Prompts from").select_option("file")
    page.locator(".set input[type=file]").set_input_files(str(file))
    page.wait_for_selector(".set p:has-text('3 prompts.')")
    page.locator(".panel").get_by_label("math").uncheck()
    page.wait_for_selector(".set p:has-text('2 prompts.')")
    page.locator(".set input[type=file]").set_input_files(str(bad))
    page.wait_for_selector(".panel .ds-refusal:has-text('bad.txt is not UTF-8 text')")


def changed(client: TestClient, a: list[str], b: list[str]) -> dict[str, dict[str, list[str]]]:
    """The reported differences between two reports: table -> row -> its cells."""
    both = client.get("/ds/report/changes", params={"runs": ",".join(a), "others": ",".join(b)})
    assert both.status_code == 200, both.text
    return {
        x["title"]: {row[0]: row[1:] for row in x["rows"]} | {"": x["head"], "about": [x["about"]]}
        for x in both.json()["tables"]
    }


@pytest.mark.nightly
def test_every_figure_of_two_reports_has_an_interval_that_is_paired_by_prompt(
    play: RunService, client: TestClient
) -> None:
    a = [finished(play, prompt=f"p{i}", max_new=16, seed=i).run for i in range(6)]
    b = [finished(play, prompt=f"p{i}", max_new=16, seed=50 + i).run for i in range(6)]
    due = [report([open_trace(play.folder / f"{x}.dstrace") for x in runs]) for runs in (a, b)]
    both = changed(client, a, b)
    assert [*both] == ["What changed", "What became of the drafts", "By depth", "By kind of token"]
    means = [sum(x.lengths) / 6 for x in due]
    row = both["What changed"]["accepted length"]
    assert row[:3] == [f"{means[0]:.2f}", f"{means[1]:.2f}", f"{means[1] - means[0]:+.2f}"]
    assert both["What changed"]["tokens per target pass"][:2] == [f"{x.tau:.2f}" for x in due]
    first = [x.depths[0] for x in due]
    assert both["By depth"]["1"][:2] == [
        f"{format_percent(x.accepted / x.tested)} of {x.tested}" for x in first
    ]
    assert all(x[""][-1] == "95 %, paired" for x in both.values())
    intervals = [
        row[3] for table in both.values() for name, row in table.items() if name not in ("", "about")
    ]
    form = r"[+-][0-9.]+( points)? to [+-]|none: [0-4] prompts? with both"
    assert len(intervals) > 8 and all(re.match(form, x) for x in intervals)
    assert sum("to" in x for x in intervals) > 6, "most figures have enough prompts"
    same = changed(client, a, a)
    assert same["What changed"]["tokens a second"][2:] == [
        "+0.00",
        "+0.00 to +0.00, not distinguishable from none",
    ]


def test_figures_of_two_reports_are_over_the_prompts_that_both_have(
    play: RunService, client: TestClient
) -> None:
    a = [finished(play, prompt=f"p{i}", max_new=12, seed=i).run for i in range(7)]
    b = [finished(play, prompt=f"p{i}", max_new=12, seed=9 + i).run for i in range(1, 6)]
    both = changed(client, a, b)["What changed"]
    due = [report([open_trace(play.folder / f"{x}.dstrace") for x in runs]) for runs in (a[1:6], b)]
    assert both["accepted length"][:2] == [f"{sum(x.lengths) / 5:.2f}" for x in due]
    assert "2 runs of other prompts are left out" in both["about"][0]
    few = changed(client, a[:3], b[:3])["What changed"]
    assert few[""] == ["figure", "first", "second", "change"]
    assert "the two have 2 prompts in common, and 5 are needed" in few["about"][0]
    assert "The prompts of the two differ" in few["about"][0]
    assert client.get("/ds/report/changes", params={"runs": a[0], "others": "0" * 16}).status_code == 404


def test_an_interval_of_a_change_is_that_of_prompts_drawn_together() -> None:
    """Two sides that differ by one everywhere have no spread, however much their prompts differ."""
    draws = np.random.default_rng(1).multinomial(8, [1 / 8] * 8, size=400)
    a = [(10.0 * i, 5.0) for i in range(8)]
    assert change_interval(a, [(x + 5, n) for x, n in a], draws) == (1.0, 1.0)
    low, high = change_interval(a, [(x + 5 * (i % 3), n) for i, (x, n) in enumerate(a)], draws)
    assert 0 < low < 7 / 8 < high < 2
    assert change_interval([(0.0, 0.0), *a[1:]], a, draws)[0] < 0, (
        "a prompt that one side does not have pulls its own side alone"
    )


@browsed
@pytest.mark.nightly
def test_two_reports_stand_side_by_side_and_come_with_the_link(lab: Lab) -> None:
    run = finished(lab.play, prompt="side", max_new=24).run
    page = lab.open(f"/#report&of={run}", ready=False)
    page.wait_for_selector(".beside select")
    page.wait_for_selector("#ds-page-report .group")
    page.focus(".beside select")
    page.locator(".beside select").select_option(shipped_examples()[0].run)
    page.wait_for_selector(".changes table")
    assert page.locator(".changes h2").first.inner_text() == "What changed"
    assert len({x["y"] for x in (s.bounding_box() for s in page.locator(".changes > section").all())}) <= 2, (
        "side by side"
    )
    assert page.locator(".leads p").count() == 2 and "lab" in page.locator(".leads p").last.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    before = page.locator(".changes").inner_text()
    assert f"of={run}&beside={shipped_examples()[0].run}" in page.evaluate("location.hash")
    page.reload()
    page.wait_for_selector(".changes table")
    assert page.locator(".changes").inner_text() == before
    page.locator(".beside select").select_option("")
    page.wait_for_function("!location.hash.includes('beside=')")
    assert page.locator(".changes").inner_text() == ""


@pytest.mark.nightly
@browsed
def test_hostile_tokens_are_text_on_the_page(driver: Any, tmp_path: Path) -> None:
    from browser import served

    from decodescope.app.http.guard import Guard
    from decodescope.app.server import build_app

    play = toy_play(tmp_path, HOSTILE)
    run = finished(play, max_new=80).run
    with served(lambda port: Guard(build_app(play), port)) as address:
        lab = Lab(driver, address, play)
        page = lab.open(f"/#report&of={run}", ready=False)
        page.wait_for_selector("#ds-page-report .out table")
        assert "script" in page.locator(".out").inner_text() and page.evaluate("window.trap") is None
        assert page.locator(".out script, .out img").count() == 0
        page.context.close()
        play.close()
    assert not lab.troubles
