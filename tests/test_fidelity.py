"""The comparisons with the authors' code: what can be tested without that code."""

from __future__ import annotations

import runpy
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from decodescope.engine.core.refusal import Refusal
from decodescope.engine.decoding.values.draft import Draft

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks" / "fidelity"
SCRIPTS = sorted(x.stem for x in FOLDER.glob("*.py") if x.stem != "official")


@pytest.fixture
def official(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that the scripts share and import by name."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return import_module("official")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_folder_without_the_code_is_refused_in_one_sentence(
    official: ModuleType,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [name, str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr()
    assert end.value.code == 2 and not said.out
    assert said.err.startswith(f"{tmp_path} holds no ") and said.err.endswith(
        "checkout of the official code.\n"
    )


def test_every_comparison_is_in_the_document_with_its_command() -> None:
    text = (FOLDER.parents[1] / "docs" / "fidelity.md").read_text(encoding="utf-8")
    assert len(SCRIPTS) >= 5 and all(f"python benchmarks/fidelity/{name}.py" in text for name in SCRIPTS)


def test_a_function_is_taken_out_of_its_file_alone(official: ModuleType, tmp_path: Path) -> None:
    """Nothing else that the file imports or defines is run, so no old library is needed."""
    source = "import old_one\n\ndef double(x: Unknown) -> int:\n    return factor * x\n\nclass A:\n    def g(self): return 7"
    (tmp_path / "b.py").write_text(source, encoding="utf-8")
    (tmp_path / "empty.py").touch()
    code = official.Code(tmp_path, "a.py", "b.py")
    double, g = code.take("double", "A.g", factor=2)
    assert double(4) == 8 and g(None) == 7 and code.place == "b.py"
    assert official.Code(tmp_path, "empty.py").blob == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391", (
        "as git names an empty file"
    )
    with pytest.raises(Refusal, match=r"b\.py has no gone: .* another version"):
        code.take("gone")


def test_a_tree_in_the_authors_layout_reads_along_every_path(official: ModuleType) -> None:
    draft = Draft([5, 6, 7, 8], [-1, -1, 0, 0])
    rows, tokens, lengths = official.candidates(draft, 4, 0)
    assert rows.tolist() == [[0, 1, 3], [0, 1, 4], [0, 2, -1]] and lengths == [2, 2, 1]
    assert tokens.tolist() == [[4, 5, 7], [4, 5, 8], [4, 6, 0]]
