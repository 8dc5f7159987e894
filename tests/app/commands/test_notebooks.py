"""The course is copied into the reader's folder, and nothing that is the reader's own is written over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from decodescope.app.cli import main
from decodescope.app.commands.notebooks import COURSE

BAD_INPUT = 2


def test_the_course_is_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "my" / "course"
    assert main(["notebooks", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    names = {path.name for path in folder.iterdir()}
    assert names == set(told["files"]) == {path.name for path in COURSE.glob("*.ipynb")} | {"README.md"}
    assert all((folder / name).read_bytes() == (COURSE / name).read_bytes() for name in names)
    assert main(["notebooks", str(folder)]) == 0, "what is there already is the same"
    assert "jupyterlab" in capsys.readouterr().out


def test_what_the_reader_wrote_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "03_trees.ipynb"
    mine.write_text("my answers")
    assert main(["notebooks", str(tmp_path)]) == BAD_INPUT
    assert mine.read_text() == "my answers" and [*tmp_path.iterdir()] == [mine]
    assert "03_trees.ipynb of its own" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["notebooks", str(tmp_path / "file" / "course")]) == BAD_INPUT
    assert "cannot be written" in capsys.readouterr().err
