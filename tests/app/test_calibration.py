"""The risk of a calibrated knob, on the page: every number comes from the calibration file, which is read by its name alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import Lab
from starlette.testclient import TestClient
from toylab import finished, toy_play

from decodescope.app.runs.run_service import RunChoice
from decodescope.engine import Method
from decodescope.engine.core import calibration
from decodescope.engine.core.calibration import (
    Calibration,
    CalibrationPoint,
    ConformalThresholds,
    method_without_knob,
    write,
)
from decodescope.engine.cost.risk import hoeffding_bentkus
from decodescope.lab.figures.measured.risk import half_split_table

from .conftest import opened

N, DELTA, EPS = 80, 0.2, 0.1
VIEW = ".ds-calibration"


def point(value: float, wrong: int, passed: bool) -> CalibrationPoint:
    losses = tuple(float(i * 7 % N < wrong) for i in range(N))
    return CalibrationPoint(value, wrong / N, hoeffding_bentkus(losses, DELTA), passed, losses)


CURVE = tuple(
    point(*x) for x in ((1.0, 0, True), (0.9, 4, True), (0.8, 6, True), (0.5, 30, False), (0.3, 44, False))
)
METHOD = method_without_knob(
    Method.from_names(
        {"adaptive_depth": "confidence_exit"}, {"adaptive_depth": {"threshold": "0.8"}}
    ).record(),
    "adaptive_depth",
    "threshold",
)
ABOUT: dict[str, Any] = dict(eps=EPS, n=N, models={}, max_new_tokens=12, seed=0, texts="texts")
ONE = Calibration(
    **ABOUT, name="calm", part="adaptive_depth", knob="threshold", value=0.8, risk="edit", test="hoeffding_bentkus",
    delta=DELTA, method=METHOD, curve=CURVE,
)  # fmt: skip
EXITS = ConformalThresholds(
    **ABOUT, name="exits", part="adaptive_depth", knob="thresholds", value=(1.01, 0.7), how="shared", tokens=300, method=METHOD,
    agreed=(0.5, 0.9), leave=(0.0, 0.4), wrong=0.02,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The user's calibrations: a valid one, and an invalid file."""
    made = tmp_path_factory.mktemp("calibrated")
    write(ONE, made / "calm.json")
    write(EXITS, made / "exits.json")
    (made / "odd.json").write_text('{"calibration": 1}')
    (made / "not a name.json").write_text("{}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "default_folder", lambda: made)
        yield made


def test_those_that_are_there_are_listed_and_one_says_what_its_file_says(
    client: TestClient, folder: Path
) -> None:
    rows = client.get("/ds/calibrations").json()["rows"]
    assert [x["name"] for x in rows] == ["calm", "exits", "odd"]
    assert (
        rows[0]["value"] == 0.8
        and rows[1]["promise"] == EXITS.promise
        and "make it again" in rows[2]["trouble"]
    )
    assert client.get("/ds/calibrations/exits").json()["exits"] == [[1.01, 0.5, 0.0], [0.7, 0.9, 0.4]]
    one = client.get("/ds/calibrations/calm").json()
    assert one["curve"] == [[x.value, x.risk, x.p, x.passed] for x in CURVE]
    drawn = half_split_table(ONE)
    assert one["halves"]["chosen"] == [int((drawn["value"] == x.value).sum()) for x in CURVE]
    assert sum(one["halves"]["chosen"]) + one["halves"]["none"] == one["halves"]["count"] == len(drawn)
    assert one["halves"]["held"] == pytest.approx(drawn["held_out"].mean())
    assert len(set(one["halves"]["chosen"])) > 2, "the test needs halves that choose differently"


@pytest.mark.parametrize("name", ["other", "odd", "..%2fcalm", "%2Fetc%2Fpasswd", "calm.json", "a" * 90])
def test_a_foreign_name_and_a_path_are_refused_in_a_sentence(
    client: TestClient, folder: Path, name: str
) -> None:
    answer = client.get(f"/ds/calibrations/{name}")
    assert answer.status_code in (404, 422)
    said = answer.json()["error"]
    assert said.endswith(".") and "\n" not in said and str(folder) not in said


@pytest.fixture(scope="module")
def calm(driver: Any, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab in which the file of one calibration exists."""
    yield from opened(driver, toy_play(tmp_path_factory.mktemp("traces")))


def ran(lab: Lab) -> str:
    """A run with the calibrated knob."""
    knobs = {"adaptive_depth": {"threshold": "calibrated:calm"}}
    channel = lab.play.start(RunChoice("hello", {"adaptive_depth": "confidence_exit"}, knobs, max_new=6))
    assert lab.play._jobs[channel.run].wait(300) and channel.status == "done", channel.status
    return str(channel.run)


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_the_run_leads_to_the_curve_of_its_knob(calm: Lab, folder: Path) -> None:
    page = calm.open(f"/#run={ran(calm)}&step=0")
    page.focus(".ds-shown button:text-is('Calibration')")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{VIEW} circle.chosen")
    assert (
        page.locator(f"{VIEW} circle.passed").count() == 3
        and page.locator(f"{VIEW} circle.failed").count() == 2
    )
    marks = page.locator(f"{VIEW} circle:not(.chosen)")
    level = [float(x) for x in marks.evaluate_all("all => all.map((x) => x.getAttribute('cy'))")]
    assert level == sorted(level, reverse=True) and len(set(level)) == 5, (
        "the risk grows, and its circle is higher"
    )
    assert page.locator(f"{VIEW} .chosen").get_attribute("cy") == page.locator(f"{VIEW} .passed").nth(
        2
    ).get_attribute("cy")
    spot = page.locator(f"{VIEW} .took")
    assert spot.inner_text().startswith("0.8: risk 0.075") and "passed, chosen" in spot.inner_text()
    page.focus(f"{VIEW} .plot")
    page.keyboard.press("ArrowRight")
    assert "the walk ends here" in spot.inner_text()
    page.keyboard.press("End")
    assert spot.inner_text().startswith("0.3:") and "not tested" in spot.inner_text()
    assert page.get_attribute(f"{VIEW} .plot", "aria-valuetext") == spot.inner_text()
    page.click(f"{VIEW} button:text-is('Show as table')")
    rows = [row.split("\t") for row in page.locator(f"{VIEW} tbody tr").all_inner_texts()]
    assert [row[0] for row in rows] == ["1", "0.9", "0.8, chosen", "0.5", "0.3"] and [
        row[3] for row in rows
    ].count("yes") == 3
    assert "at least 90 %" in page.inner_text(VIEW)
    (folder / "calm.json").rename(folder / "gone.json")
    page.reload()
    calm.ready(page)
    page.click(".ds-shown button:text-is('Calibration')")
    page.wait_for_selector(f"{VIEW} :text('There is no calibration calm on this machine')")
    assert not page.locator(f"{VIEW} .plot").is_visible()
    (folder / "gone.json").rename(folder / "calm.json")


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.nightly
def test_another_one_of_the_same_name_is_not_taken_for_the_run_s(calm: Lab, folder: Path) -> None:
    run = ran(calm)
    write(replace(ONE, delta=0.15), folder / "calm.json")
    page = calm.open(f"/#run={run}&step=0")
    page.click(".ds-shown button:text-is('Calibration')")
    page.wait_for_selector(f"{VIEW} circle.chosen")
    said = page.inner_text(f"{VIEW} [role=alert]")
    assert "has another calibration of this name" in said and "at most 0.2" in said
    write(ONE, folder / "calm.json")


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.nightly
def test_the_library_lists_them_and_a_run_without_has_no_button(calm: Lab) -> None:
    page = calm.open("/#library", ready=False)
    page.wait_for_selector(".calibrations tbody tr")
    assert page.locator(".calibrations tbody tr").count() == 3
    page.click(".calibrations button:text-is('exits')")
    page.wait_for_selector(f".calibrations {VIEW} .twin tbody tr")
    assert not page.locator(f"{VIEW} .plot").is_visible() and EXITS.promise in page.inner_text(VIEW)
    cells = [row.split("\t") for row in page.locator(f"{VIEW} .twin tbody tr").all_inner_texts()]
    assert [row[0] for row in cells] == ["1", "2"] and cells[1][1] == "0.700"
    page.focus(".calibrations button:text-is('calm')")
    page.keyboard.press("Enter")
    page.wait_for_selector(f".calibrations {VIEW} circle.chosen")
    assert page.get_attribute(".calibrations button:text-is('calm')", "aria-expanded") == "true"
    plain = finished(calm.play).run
    page = calm.open(f"/#run={plain}&step=0")
    assert not page.locator(".ds-shown button:text-is('Calibration')").is_visible()
