"""The notebooks run from top to bottom, offline, and follow the form of this project's notebooks."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from .kernel import NOTEBOOKS, at_home, drawn, in_turns

LONGEST_CELL_S = 300  # a guard against hanging; all cells together take under two minutes on two free cores


@pytest.mark.parametrize("path", in_turns(1))
def test_notebook_runs_from_top_to_bottom_offline(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_home(tmp_path, monkeypatch)
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=LONGEST_CELL_S, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    outputs = [output for cell in code(notebook) for output in cell.outputs]
    assert not [o for o in outputs if o.output_type == "error"]
    shown = {kind for o in outputs if "data" in o for kind in o.data}
    assert "application/vnd.jupyter.widget-view+json" in shown, "no trace was shown"
    assert "application/vnd.plotly.v1+json" in shown, "no chart was drawn"


def code(notebook: Any) -> list[Any]:
    """The code cells."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_imports_names_that_exist(path: Path) -> None:
    """A name that the package no longer has is found in every chapter, even if the chapter is not run."""
    exec(compile(code(nbformat.read(path, as_version=4))[0].source, path.name, "exec"), {})


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_keeps_to_its_form(path: Path) -> None:
    """Imports are only in the first code cell; definitions and cells are short.

    A rule or a drafter that the reader writes completely is in a cell with the tag `definition`, of 40 lines at most.
    """
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for number, cell in enumerate(code(notebook)):
        tree = ast.parse(cell.source)
        imports = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
        assert bool(imports) == (number == 0), f"cell {number}"
        definitions = [
            n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef | ast.Lambda)
        ]
        whole = "definition" in cell.metadata.get("tags", [])
        assert whole or all((n.end_lineno or 0) - n.lineno < 3 for n in definitions), f"cell {number}"
        most = 40 if whole else 20 if number == 0 else 8
        assert len(cell.source.splitlines()) <= most, f"cell {number}"
    kinds = [cell.cell_type for cell in notebook.cells]
    assert kinds[0] == kinds[-1] == "markdown"
    prose = " ".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert prose.count("?") >= 3, "a notebook asks"


def test_every_notebook_has_its_turn_in_jupyterlab() -> None:
    assert drawn(1, "") == drawn(1, "") and len(set(drawn(2, "abc"))) == 2
    assert {path for k in range(200) for path in drawn(1, f"commit {k}")} == set(NOTEBOOKS)
