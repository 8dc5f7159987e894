"""Exports of the page: views as standalone pictures, decisions as a table, and addresses that lead back."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import STEP, Lab, seek, served, settled
from starlette.testclient import TestClient
from toylab import HOSTILE, finished, toy_play

from decodescope.app.http.guard import Guard
from decodescope.app.runs.catalogue.examples import shipped_examples
from decodescope.app.server import build_app
from decodescope.engine.trace import Trace, open_trace
from decodescope.lab.decision.decision_csv import COLUMNS, escape_formula, export_csv

FIRST = shipped_examples()[0]
SHAPES = {"path", "circle", "ellipse", "rect", "line", "polygon", "polyline", "image"}
DRAWN = {"svg", "title", "g", "text", "tspan", "clipPath", "defs", *SHAPES}
VIEWS = {"Method", "Draft tree", "Decision", "Text", "KV cache", "Time"}


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def example() -> Iterator[Trace]:
    """The recorded run that the page opens on."""
    trace = open_trace(FIRST.path)
    yield trace
    trace.close()


# ---- decisions as a table


def test_every_trial_has_a_row_whose_numbers_give_its_verdict_again(example: Trace) -> None:
    rows = table("".join(export_csv(example)))
    assert tuple(rows[0]) == COLUMNS
    tried = [x for x in rows if x["tried"]]
    assert len(tried) == sum(len(step.trials.ok) for step in example.steps if step.trials) == 96
    for x in tried:
        ok = float(x["u"]) * float(x["q"]) < float(x["r"])
        assert x["verdict"] == "accepted" if ok else x["verdict"] == "rejected"
    step, nodes = example.steps[0], {x["node"]: x for x in rows if x["step"] == "0"}
    assert [int(x["token"]) for x in nodes.values()][: len(step.draft.tokens)] == step.draft.tokens
    assert all(
        x["parent"] == "0" or nodes[x["parent"]]["depth"] == str(int(x["depth"]) - 1) for x in nodes.values()
    )
    written = [int(x["token"]) for x in rows if x["emitted"] == "1"]
    assert written == example.emitted_ids, "the tokens of the text, in order"
    assert [int(x["position"]) for x in rows if x["emitted"] == "1"] == list(
        range(len(example.header.prompt), len(example.tokens))
    )


def test_the_table_comes_by_route_and_by_command_and_is_the_same(
    client: TestClient, said: Any, tmp_path: Path
) -> None:
    got = client.get(f"/ds/run/{FIRST.run}/decisions.csv")
    assert got.status_code == 200 and got.headers["content-type"].startswith("text/csv")
    assert "attachment" in got.headers["content-disposition"] and got.headers["cache-control"] == "no-store"
    out = tmp_path / "run.csv"
    code, printed, _ = said("trace", "export", str(FIRST.path), "--csv", str(out))
    assert code == 0 and str(out) in printed and out.read_bytes() == got.content
    assert said("trace", "export", str(FIRST.path), "--csv", str(out))[0] == 2, "nothing is overwritten"
    assert json.loads(
        said("trace", "export", str(FIRST.path), "--csv", str(tmp_path / "b.csv"), "--json")[1]
    )["csv"]
    assert client.get("/ds/run/0000000000000000/decisions.csv").status_code == 404


def test_no_text_becomes_a_formula() -> None:
    for text in ("=1+1", "+1", "-1", "@x", "\uff1d1", ";=1", ",-1", "|@", '"=x', "a;=b;-c"):
        found = escape_formula(text)
        assert found != text and found.replace("'", "") == text
        assert not re.search(r'(^|[,;|"])[=+\-@\uff1d\uff0b\uff0d\uff20]', found)
    for text in ("word", "␣-", "a=b", "␣=", "⏎", "x-y", "'=x"):
        assert escape_formula(text) == text


def test_hostile_tokens_stay_in_their_cells(tmp_path: Path) -> None:
    play = toy_play(
        tmp_path,
        [
            "=cmd|' /C calc'!A0",
            "+1",
            "-1+2",
            "@sum(a1)",
            ';="x"',
            "a\nb",
            '"',
            ",",
            "\0",
            "\u202e",
            "é",
            "'",
            "z",
        ],
    )
    channel = finished(play, max_new=40)
    trace = open_trace(channel.path)
    rows = table("".join(export_csv(trace)))
    play.close()
    trace.close()
    assert len(rows) > 40 and all(None not in x and None not in x.values() for x in rows), (
        "each row has every cell once"
    )
    assert {x["text"] for x in rows} & {"'=cmd|'␣/C␣calc'!A0", "'+1", "'-1+2", "'@sum(a1)"}
    assert not [
        x["text"] for x in rows if x["text"][:1] in "=+-@" or re.search(r"[\0-\x1f\u202e]", x["text"])
    ]


def test_perfetto_events_are_what_the_format_asks_for(client: TestClient) -> None:
    found = client.get(f"/ds/run/{FIRST.run}/perfetto.json").json()
    assert isinstance(found["traceEvents"], list) and len(found["traceEvents"]) > 100
    for event in found["traceEvents"]:
        assert event["ph"] in ("X", "M") and isinstance(event["name"], str) and isinstance(event["pid"], int)
        if event["ph"] == "X":
            assert (
                event["ts"] >= 0
                and event["dur"] >= 0
                and isinstance(event["tid"], int)
                and isinstance(event["args"], dict)
            )
        else:
            assert event["name"] in ("process_name", "thread_name", "thread_sort_index") and event["args"]
    lanes = {x["args"]["name"] for x in found["traceEvents"] if x["name"] == "thread_name"}
    assert {"steps", "phases", "passes of target", "passes of draft"} <= lanes


# ---- in the browser


@pytest.fixture(scope="module")
def hostile(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    play = toy_play(tmp_path_factory.mktemp("hostile"), HOSTILE)
    with served(lambda port: Guard(build_app(play), port)) as address:
        yield Lab(driver, address, play)
        play.close()


def menu(page: Any) -> Any:
    page.click(".ds-shown .ds-save summary")
    page.wait_for_selector(".ds-save[open] .row")


def saved(page: Any, view: str, kind: str) -> bytes:
    with page.expect_download() as got:
        page.click(f'.ds-save [aria-label="save {view} as {kind}"]')
    assert re.fullmatch(rf"decodescope-[a-z0-9-]+\.{kind.lower()}", got.value.suggested_filename)
    return Path(got.value.path()).read_bytes()


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.nightly
def test_every_view_is_saved_as_a_picture_that_stands_alone(hostile: Lab) -> None:
    channel = finished(hostile.play, prompt="abcdefghijklmnop", max_new=40)
    page = hostile.open(f"/#run={channel.run}")
    page.wait_for_selector(".ds .outcome >> text=as many tokens")
    seek(page, 3)
    menu(page)
    assert set(page.locator(".ds-save .row:has([aria-label$='as SVG']) > span").all_inner_texts()) >= VIEWS
    for view in VIEWS:
        text = saved(page, view, "SVG").decode("utf-8")
        root = ET.fromstring(text)  # hostile tokens leave the picture well-formed
        assert {x.tag.split("}")[1] for x in root.iter()} <= DRAWN
        names = {name.split("}")[-1] for x in root.iter() for name in x.attrib}
        assert not {name for name in names if name.startswith("on") or name in ("class", "style")}
        assert all(
            x.attrib["href"].startswith("data:image/png;base64,") for x in root.iter() if "href" in x.attrib
        )
        assert "var(--" not in text and "http" not in text.replace("http://www.w3.org/", "")
        assert root[1].attrib["fill"] == "#ffffff" or view == "Decision", "the ground that the page has"
        words = "".join(root.itertext())
        if view == "Text":
            assert "<script>window.trap=1</script>" in words and "‹U+202E›abc" in words
            assert {"#0059a0", "#16875c"} & {x.attrib.get("fill") for x in root.iter()}, (
                "underlined by origin"
            )
        if view == "Draft tree":
            assert "Step 3" in words and "accepted" in words
    png = saved(page, "Draft tree", "PNG")
    box = page.locator(".tree-pane").bounding_box()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert [int.from_bytes(png[i : i + 4], "big") for i in (16, 20)] == [
        2 * (math.ceil(box[x]) + 32) for x in ("width", "height")
    ]
    assert page.evaluate("window.trap") is None


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_the_menu_gives_the_run_in_other_forms_and_is_walked_by_keys(lab: Lab) -> None:
    page = lab.open(f"/#run={FIRST.run}&step=2", width=390)
    page.wait_for_function(f"{STEP} == 2")
    page.focus(".ds-shown .ds-save summary")
    page.keyboard.press("Enter")
    page.wait_for_selector(".ds-save[open] .row")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == "SVG"
    box = page.locator(".ds-save .sheet").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    for link, ending in [
        ("a.csv", "-decisions.csv"),
        ("a.perfetto", ".perfetto.json"),
        ("a.trace", ".dstrace"),
        ("a.html", ".html"),
    ]:
        with page.expect_download() as got:
            page.click(f".ds-save {link}")
        assert got.value.suggested_filename.endswith(ending)
    page.keyboard.press("Escape")
    assert page.locator(".ds-save[open]").count() == 0
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.nightly
def test_an_address_leads_to_its_step_and_node(lab: Lab) -> None:
    page = lab.open(f"/#run={FIRST.run}&step=17&node=2")
    page.wait_for_function(
        f"{STEP} == 17 && document.querySelector('.ds .node[data-node=\"2\"][aria-selected=true]')"
    )
    assert "node 2" in page.inner_text(".ds .decision")
    # another step by hand, then another page and back: the reader's position is kept
    seek(page, 5)
    page.click("#ds-tab-library")
    page.wait_for_selector("#ds-page-library .card")
    page.click("#ds-tab-lab")
    settled(page)
    assert page.evaluate(STEP) == 5
    # a step that the run lacks is ignored; the address of another run drops both
    page.evaluate(f"location.hash = '#run={FIRST.run}&step=900'")
    settled(page)
    assert page.evaluate(STEP) == 5
    page.select_option(".ds-shown select", shipped_examples()[1].run)
    page.wait_for_function(f"location.hash == '#run={shipped_examples()[1].run}'")


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.nightly
def test_every_run_in_compare_has_the_menu_of_the_lab(lab: Any) -> None:
    first, second = (x.run for x in shipped_examples()[:2])
    page = lab.open(f"/#compare&runs={first},{second}", ready=False)
    page.wait_for_function("document.querySelectorAll('#ds-page-compare .outcome').length == 2")
    page.click("#ds-page-compare summary[aria-label='save run B']")
    menu = page.locator("#ds-page-compare .ds-save[open]")
    menu.locator("button[aria-label='save Text B as SVG']").wait_for()
    links = menu.locator("a").evaluate_all("all => all.map((x) => x.getAttribute('href'))")
    assert links == [
        f"ds/run/{second}/{form}" for form in ("export.html", "trace", "decisions.csv", "perfetto.json")
    ]
    assert menu.locator(".sheet").bounding_box()["width"] >= 240
    with page.expect_download() as got:
        menu.locator("button[aria-label='save Text B as SVG']").click()
    assert (
        got.value.suggested_filename.startswith("decodescope-text-b-")
        and b"<svg" in got.value.path().read_bytes()
    )
    page.keyboard.press("Escape")
    assert page.locator("#ds-page-compare .ds-save[open]").count() == 0
