"""The notebooks of a gallery's course: run by the kernel of this Python; notebooks that fail are left out."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from decodescope.app.commands.notebooks import chapters
from decodescope.engine.core.refusal import Refusal

from .kernel import at_home


def test_notebooks_are_run_and_their_runs_are_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_home(tmp_path / "home", monkeypatch)
    folder = tmp_path / "notebooks"
    folder.mkdir()
    sources = {"01_good": "from decodescope.lab import show\nshow('eagle', 3)", "02_bad": "1 / 0"}
    for name, source in sources.items():
        book = new_notebook(cells=[new_markdown_cell(f"# {name}"), new_code_cell(source)])
        nbformat.write(book, folder / f"{name}.ipynb")
    left: dict[str, str] = {}
    pages = chapters(left, folder)
    assert [(x.name, x.title) for x in pages] == [("01-good", "01_good")]
    assert pages[0].live[0]["step"] == 3 and len(pages[0].live[0]["messages"]) > 5
    assert list(left) == [str(folder / "02_bad.ipynb")] and "ZeroDivisionError" in next(iter(left.values()))


def test_a_folder_without_notebooks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="no notebooks"):
        chapters({}, tmp_path)
