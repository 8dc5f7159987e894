"""The report as a page and as charts: the data behind the marks, and a file that needs nothing else."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from decodescope.engine.core.params import ParamError
from decodescope.lab import report
from decodescope.lab.reports import figures as report_figures
from decodescope.lab.reports.page import POLICY, page, step_table
from decodescope.lab.reports.step_index import StepIndex, format_places
from decodescope.lab.reports.tables import PLACE, tables

from .runs import known, run


class Parsed(HTMLParser):
    """Tags and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "td":
            self.cells.append("")
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "td"

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.cells[-1] += data


def test_one_file_runs_nothing_and_asks_for_nothing() -> None:
    made = Parsed(page(report(known("chain"))))
    assert not [tag for tag, _ in made.tags if tag in ("script", "link", "img", "iframe", "form")]
    links = [dict(props) for tag, props in made.tags if tag == "a"]
    led = {x["href"] for x in links if "href" in x}
    assert led == {"#" + x["id"] for x in links if "id" in x}, "every link leads to a step in the same file"
    assert len(led) > 5 and all(x.startswith("#step-1-") for x in led)
    names = [name for _, attrs in made.tags for name in attrs]
    assert not [x for x in names if x in ("src", "action", "data") or x.startswith("on")]
    assert [a["content"] for tag, a in made.tags if a.get("http-equiv") == "Content-Security-Policy"] == [
        POLICY
    ]


def test_every_cell_of_every_table_stands_in_the_page_and_bars_have_its_share() -> None:
    found = report(known("chain"))
    made = Parsed(page(found))
    shown = [*(x.with_steps() for x in tables(found)), step_table(found, tables(found))]
    cells = [x for table in shown for row in table.rows for x in row]
    assert [x for x in made.cells if x] == [x for x in cells if x]
    bars = [float(a["width"] or 0) / 180 for tag, a in made.tags if tag == "rect" and a["class"] == "fill"]
    due = [bar for table in tables(found) for bar in table.bars if bar]
    assert bars == pytest.approx(due, abs=0.001) and len(bars) > 20


def test_hostile_tokens_and_names_are_text() -> None:
    found = report(run("chain", hostile=True, count=150))
    found.model = "</title><script>window.trap=1</script>@@STYLE@@"
    text = page(found)
    made, plain = Parsed(text), Parsed(page(report(known("chain"))))
    assert {tag for tag, _ in made.tags} == {tag for tag, _ in plain.tags}
    assert text.count("prefers-color-scheme") == 1, "what looks like a place to fill stays as it is"
    assert "script" in " ".join(made.cells)


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_the_file_opens_from_disk_with_the_network_unplugged(driver: Any, tmp_path: Path) -> None:
    page(report(run("chain", hostile=True, count=80)), tmp_path / "report.html")
    context = driver.new_context(offline=True, viewport={"width": 390, "height": 800})
    shown = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    shown.on("console", lambda message: said.append(message.text))
    shown.on("pageerror", lambda error: said.append(str(error)))
    shown.on("request", lambda request: asked.append(request.url))
    shown.goto((tmp_path / "report.html").as_uri())
    assert shown.locator("section").count() >= 7 and shown.locator("rect.fill").count() > 10
    fill = shown.evaluate("getComputedStyle(document.querySelector('rect.fill')).fill")
    assert fill not in ("", "rgb(0, 0, 0)"), "the colours came along"
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
        "wide tables scroll by themselves"
    )
    assert not said and all(url.startswith("file:") for url in asked), (said, asked)
    assert shown.evaluate("window.trap") is None
    context.close()


def test_it_shows_itself_in_a_notebook_as_a_frame_that_runs_nothing() -> None:
    frame = Parsed(report(known("chain"))._repr_html_())
    assert [tag for tag, _ in frame.tags] == ["iframe"] and "Acceptance report" in (
        frame.tags[0][1]["srcdoc"] or ""
    )


# ---- charts


def marks(made: Any) -> list[tuple[list[Any], list[Any]]]:
    return [(list(x.x), list(x.y)) for x in made.data]


def test_charts_hold_the_counts_of_the_report() -> None:
    it = report(known("chain"))
    depths = [x for x in it.depths if x.offered]
    labels = [x.label for x in depths]
    at, so_far = marks(report_figures.depth(it))
    assert at == (labels, [x.share for x in depths]) and so_far == (
        labels,
        [x.accepted / x.offered for x in depths],
    )
    ((names, values),) = marks(report_figures.entropy(it))
    assert dict(zip(names, values, strict=True)) == {x.label: x.share for x in it.entropy if x.tested}
    stays, goes = marks(report_figures.kinds(it))
    tested = [x for x in it.kinds if x.tested]
    assert stays[1] == [x.accepted for x in tested] and goes[1] == [x.tested - x.accepted for x in tested]
    line, dots, mean = marks(report_figures.calibration(it))
    assert line == ([0, 1], [0, 1]) and dots == ([x.q for x in it.bins], [x.share for x in it.bins])
    assert mean[1] == [x.p for x in it.bins]
    assert sum(x.x[0] for x in report_figures.time(it).data) == pytest.approx(sum(it.spent.values()))
    points = [pair for x, y in marks(report_figures.lengths(it))[:2] for pair in zip(x, y, strict=True)]
    assert points == [(x.length, x.over_plain) for x in it.curve]


def test_drafts_without_chance_have_no_calibration() -> None:
    with pytest.raises(ValueError, match="one-hot"):
        report_figures.calibration(report(known("greedy")))


def test_few_tests_are_marked() -> None:
    it = report(known("chain"))
    (bars,) = report_figures.entropy(it).data
    assert [colour.startswith("rgba") for colour in bars.marker.color] == [
        x.tested < 20 for x in it.entropy if x.tested
    ]
    table = next(x for x in tables(it) if x.title == "By the target's entropy")
    assert [bool(re.search(r"\(few\)", row[3])) for row in table.rows] == [
        int(row[1]) < 20 for row in table.rows
    ]


def test_every_row_leads_to_a_step_that_it_counts() -> None:
    """In text the steps are listed, in the file they are linked, and a notebook opens the run there."""
    found = report(known("chain"))
    by = {x.title: x for x in tables(found)}
    rejected = {(x.run, x.step) for x in found.deaths}
    steps = {s.step: s for s in known("chain").steps}
    for row, places in zip(by["By depth"].rows, by["By depth"].steps, strict=True):
        for _, step in places:
            assert len(steps[step].path or []) >= int(row[0]) - 1, "the draft reached this depth there"
    for row, places in zip(
        by["What became of the drafts"].rows, by["What became of the drafts"].steps, strict=True
    ):
        assert len(places) == min(3, int(row[1])) and ("rejected" in row[0]) == (set(places) <= rejected)
    for row, places in zip(by["Speed by length"].rows, by["Speed by length"].steps, strict=True):
        assert all(len(steps[step].path or []) == int(row[0]) for _, step in places)
    longest = max(known("chain").steps, key=lambda s: s.draft_us)
    assert by["Where the time went"].steps[0][0] == (0, longest.step), "drafting, where it took longest"
    empty = [
        (title, row[0])
        for title, x in by.items()
        for row, places in zip(x.rows, x.steps, strict=True)
        if not places
    ]
    deep = len(found.depths)
    assert {title for title, _ in empty} <= {"Speed by length"}, (
        "only lengths that no draft reached have none"
    )
    assert all(int(row) > 0 for _, row in empty) and (not empty or max(int(row) for _, row in empty) > deep)
    assert all(x.with_steps().head.count(PLACE) == 1 for x in by.values())
    shown = found.show(1, by["By depth"].steps[0][0][1])
    assert shown.step == by["By depth"].steps[0][0][1]
    with pytest.raises(ParamError, match="run"):
        found.show(2, 0)


def test_steps_of_a_row_are_those_worth_most_and_each_once() -> None:
    index = StepIndex()
    for worth, step in ((0, 5), (1, 6), (0, 6), (1, 9), (0, 1), (2, 5)):
        index.add("a", "b", (0, step), worth)
    assert index.places("a", "b") == [(0, 5), (0, 6), (0, 9)] and index.places("a", "c") == []
    assert format_places([(0, 5), (2, 0)]) == "1, 5; 3, 0" and format_places([]) == "–"
