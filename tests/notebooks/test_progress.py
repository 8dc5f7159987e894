"""Progress in a notebook: a bar is in the cell while the work runs, and leaves nothing in its outputs."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from .kernel import at_home

BEGIN = """import io, sys
from decodescope.engine.core import progress
from decodescope.engine.core.progress import Progress
progress.SILENT_S = 0"""
WORK = """with Progress("counting", 4, "things") as work:
    for _ in range(3):
        work.add()
    print(" ".join(x.value for x in work._bar.container.children[::2]), work._bar.container.children[1].value)"""


def executed(*cells: str) -> list[NotebookNode]:
    """Run the cells and return them with their outputs."""
    book = new_notebook(cells=[new_code_cell(x) for x in cells])
    NotebookClient(book, timeout=60, kernel_name="python3", allow_errors=True).execute()
    return book.cells


def test_a_bar_stands_in_the_cell_and_goes_away_with_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_home(tmp_path, monkeypatch)
    _, done, failed = executed(BEGIN, WORK, f"{WORK}\n    1 / 0")
    for cell, rest in (done, []), (failed, ["error"]):
        shown, said, *more = cell.outputs
        assert shown.output_type == "display_data" and shown.data == {}, "the bar was there, and is no longer"
        assert "counting" in said.text and "3/4" in said.text and said.text.split()[-1] == "3.0", said.text
        assert [x.output_type for x in more] == rest
