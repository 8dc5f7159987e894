"""The end of the tests' output: every skip with its reason, what was left out, what was counted; any other reason fails."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from again import AGAIN

HERE = Path(__file__).resolve().parent
OPTIONS = ["-q", "--import-mode=importlib", "-p", "no:cacheprovider", "-m", "not gpu", "--rootdir=."]
TESTS = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_counted(number, record_property):
    record_property("counted", "even" if number % 2 == 0 else "odd")
    record_property("largest", ["distance", number * 1e-4])

@pytest.mark.skipif(True, reason="no judge is shipped")
def test_skipped():
    raise AssertionError

@pytest.mark.gpu
def test_left():
    raise AssertionError
"""
SAID = [
    "     2 test_counted: even",
    "     1 test_counted: odd",
    "0.0002 distance",
    "     1 skipped, no judge is shipped; run where assets/models/lab/heads/judge lies: training/heads.py trains it",
    "       test_these.py::test_skipped",
    "     1 gpu: pytest -m gpu",
]
SILENT = """
def test_silent():
    pytest.skip("I do not feel like it")
"""
UNKNOWN = "FAILED: skipped for a reason that tests/conftest.py does not know: I do not feel like it"


def closing(tests: str, folder: Path, *options: str) -> tuple[int, list[str]]:
    """Run these tests under our conftest; return the exit code and the lines of output."""
    for name in ("again.py", "conftest.py", "real.py", "sizes.py"):
        shutil.copy(HERE / name, folder)
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\nmarkers = gpu\n  nightly")
    (folder / "test_these.py").write_text(tests)
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", *OPTIONS, *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, timeout=120)
    return done.returncode, done.stdout.splitlines()


def test_skips_counts_and_what_is_left_out_are_said(tmp_path: Path) -> None:
    code, lines = closing(TESTS, tmp_path)
    assert code == 0 and set(SAID) <= set(lines), lines


PROCESSES = pytest.mark.parametrize(
    "options", [[], ["-p", "xdist", "-n", "2", "--dist", "loadgroup"]], ids=["one", "two processes"]
)


@PROCESSES
def test_skip_for_a_reason_that_is_not_written_down_fails(tmp_path: Path, options: list[str]) -> None:
    code, lines = closing(TESTS + SILENT, tmp_path, *options)
    assert code == 1 and set(SAID) <= set(lines), lines
    assert UNKNOWN in lines, lines


SIZED = """
import pytest
from again import AGAIN
from sizes import sizes, thinned

@pytest.mark.parametrize("a, b", thinned(2, range(3), range(3)))
def test_thinned(a, b):
    assert not (a + b) % 2

@sizes("n", usual=1, full=2)
def test_sized(n):
    assert n == 1
"""


@PROCESSES
def test_nightly_cases_are_not_made_for_a_run_that_leaves_them_out_and_that_is_said(
    tmp_path: Path, options: list[str]
) -> None:
    code, lines = closing(SIZED, tmp_path, "-m", "not nightly", *options)
    assert code == 0 and "     5 nightly or more, which this run did not make: pytest -m nightly" in lines, (
        lines
    )
    assert not any("deselected" in line for line in lines)


def test_nightly_cases_are_made_for_a_run_that_asks_for_them(tmp_path: Path) -> None:
    code, lines = closing(SIZED, tmp_path, "-m", "nightly")
    assert code == 1 and sum(line.startswith("FAILED test_these.py::test_") for line in lines) == 5, lines


SKIPS = ("mark.skipif", "mark.skip", "pytest.skip", "importorskip")


def test_reasons_that_are_written_down_are_those_in_the_tests() -> None:
    table = next(
        node.value
        for node in ast.parse((HERE / "conftest.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "REASONS"
    )
    given = set()
    texts = [
        path.read_text(encoding="utf-8") for path in HERE.rglob("*.py") if path != Path(__file__).resolve()
    ]
    for text in (text for text in texts if "skip(" in text or "skipif(" in text):
        for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
            if ast.unparse(call.func).endswith(SKIPS):
                said = [word.value for word in call.keywords if word.arg == "reason"] or call.args[:1]
                given.add(ast.literal_eval(said[0]))
    assert given == set(ast.literal_eval(table))


@pytest.mark.parametrize("name", AGAIN)
def test_a_test_that_is_tried_again_exists(name: str) -> None:
    path, function = name.split("::")
    assert f"def {function}(" in (Path(__file__).parent / path).read_text(encoding="utf-8")
