"""Heads in training, on the page: the measurements come from the folders of trainings, and are read again while one goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Lab
from starlette.testclient import TestClient
from toylab import toy_play

from decodescope.engine.session.load import SHIPPED
from decodescope.engine.training import records

from .conftest import opened

RECORD = {"kind": "eagle3", "model": "toy <b>", "tokens": 4000}


def row(step: int, *accepted: float) -> str:
    said = {"step": step, "steps": 4, "tokens": 1000 * step, "loss": 9.5 - step, "accepted": accepted}
    return json.dumps({**said, "tokens_per_pass": 1.5, "seconds": 1.0}) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Three trainings: one that goes on, one that has measured nothing yet, and a damaged one."""
    home = tmp_path_factory.mktemp("trained")
    for name, record in (("going", RECORD), ("new", RECORD), ("odd", [1])):
        (home / name).mkdir()
        (home / name / records.RUN).write_text(json.dumps(record))
    for file in ("config.json", "model.safetensors"):
        shutil.copy(SHIPPED / "lab/heads/eagle3" / file, home / "going" / file)
    (home / "going" / records.METRICS).write_text(
        row(1, 0.25, 0.125) + row(2, 0.5, 0.375) + '{"step": 3, "st'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "default_folder", lambda: home)
        yield home


def test_each_training_is_listed_with_its_measurements_so_far(client: TestClient, folder: Path) -> None:
    rows = {x.pop("name"): x for x in client.get("/ds/trainings").json()["rows"]}
    assert rows["going"] == {
        "kind": "eagle3",
        "model": "toy <b>",
        "wanted": 4000,
        "tokens": [1000, 2000],
        "loss": [8.5, 7.5],
        "accepted": [[0.25, 0.125], [0.5, 0.375]],
        "tokens_per_pass": [1.5, 1.5],
        "finished": False,
        "folder": "trained/going",
    }
    assert rows["new"]["tokens"] == [] and not rows["new"]["finished"]
    assert set(rows["odd"]) == {"trouble"} and rows["odd"]["trouble"].endswith("again.")


@pytest.mark.parametrize("line", ["[]\n", "x\n", '{"step": 1}\n', row(1), row(1, float("nan")), '"x"\n'])
def test_a_damaged_training_is_named_and_the_others_are_listed(
    line: str, client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("bad", line), ("good", row(4, 0.5))):
        (tmp_path / name).mkdir()
        (tmp_path / name / records.RUN).write_text(json.dumps(RECORD))
        (tmp_path / name / records.METRICS).write_text(text)
    monkeypatch.setattr(records, "default_folder", lambda: tmp_path)
    rows = {x["name"]: x for x in client.get("/ds/trainings").json()["rows"]}
    assert "damaged" in rows["bad"]["trouble"] and rows["good"]["finished"]
    monkeypatch.setattr(records, "default_folder", lambda: tmp_path / "none")
    assert client.get("/ds/trainings").json() == {"rows": []}


@pytest.fixture(scope="module")
def trained(driver: Any, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab with these trainings."""
    yield from opened(driver, toy_play(tmp_path_factory.mktemp("traces")))


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_the_library_draws_a_training_while_it_goes_on(trained: Lab, folder: Path) -> None:
    page = trained.open("/#library", ready=False)
    page.wait_for_selector(".trainings tbody tr")
    assert page.locator(".trainings tbody tr").count() == 3
    going = page.locator(".trainings tr", has=page.locator("svg"))
    assert "2,000 of 4,000" in going.inner_text() and "toy <b>" in going.inner_text()
    reading = going.locator(".ds-reading")
    reading.locator("summary").first.click()
    reading.get_by_text("Not used, and why").click()
    assert "made_with.seed" in reading.inner_text() and page.locator(".ds-reading").count() == 1
    reading.locator("summary").first.click()
    lines = page.locator(".trainings path.line")
    assert lines.count() == 2 and lines.first.get_attribute("d").count("L") == 1
    with (folder / "going" / records.METRICS).open("w") as file:
        file.write(row(1, 0.25, 0.125) + row(2, 0.5, 0.375) + row(4, 0.75, 0.5))
    page.wait_for_selector(".trainings td:text-is('4,000 of 4,000, finished')")
    assert lines.first.get_attribute("d").count("L") == 2 and "nothing was measured yet" in page.inner_text(
        ".trainings"
    )
