"""Startup: which imports of the page's library are skipped, and that nothing of this remains afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from decodescope.app.page.gradio_import import skip_unused_imports

# a separate process: in this one the library may already be imported
STARTED = """
import ast, sys
from pathlib import Path
from decodescope.app.runs.run_service import RunService
from decodescope.app.server import build_app
read = []
walk, ast.walk = ast.walk, lambda tree: read.append(tree) or walk(tree)  # stubs are compared by walking each source
finders = list(sys.meta_path)
build_app(RunService("lab", None, Path(sys.argv[1])))
ast.walk = walk
print(len(read), *(x in sys.modules for x in ("IPython", "transformers", "pandas.core")), sys.meta_path == finders)
import gradio.caching, gradio.component_meta as meta
print(meta.create_or_modify_pyi.__name__, len(gradio.caching.pd.DataFrame({"a": [1, 2]})))
"""


def test_a_page_is_made_without_stubs_notebooks_and_tables_and_nothing_of_that_stays(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", STARTED, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["0 False False False True", "create_or_modify_pyi 2"], done.stderr


def test_what_is_refused_while_the_page_is_made_is_there_again_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    with skip_unused_imports(), pytest.raises(ModuleNotFoundError):
        __import__("IPython")
    assert not [x for x in sys.meta_path if type(x).__module__ == skip_unused_imports.__module__]
