"""Every planted bug is found by tests that `make test` runs, in a copy of the project in which the bug was planted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from planted.bugs import BUGS, Bug
from source import ROOT

COPIED = (
    "engine",
    "lab",
    "app",
    "testing",
    "tests",
    "scripts",
)  # folders that may contain a bug, and its tests
LINKED = ("assets", "notebooks", "docs", "training", "benchmarks")
SECONDS = 600  # the most time for the tests of one bug
# bugs that no test of `make test` finds, each with the reason; at most two
UNFOUND: dict[str, str] = {}


def test_there_are_many_bugs_of_many_kinds() -> None:
    assert len(BUGS) >= 60 and len({bug.name for bug in BUGS}) == len(BUGS)
    assert len({bug.file for bug in BUGS}) >= 25 and len(UNFOUND) <= 2
    assert set(UNFOUND) <= {bug.name for bug in BUGS}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_its_place_is_there(bug: Bug) -> None:
    text = (ROOT / bug.file).read_text(encoding="utf-8")
    assert text.count(bug.right) == 1, (
        f"{bug.file} holds {bug.right!r} {text.count(bug.right)} times: renew tests/planted/bugs.py"
    )
    assert bug.wrong not in text.replace(bug.right, "") or len(bug.wrong) < 40
    assert bug.tests and not [name for name in bug.tests if not (ROOT / name).exists()]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, called decodescope, in which files may be changed."""
    home = tmp_path_factory.mktemp("planted") / "decodescope"
    home.mkdir()
    for name in COPIED:
        shutil.copytree(ROOT / name, home / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in LINKED:
        (home / name).symlink_to(ROOT / name, target_is_directory=True)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, home / path.name)
    return home


def found(copy: Path, bug: Bug) -> str:
    """The end of the output of a bug's tests with the bug planted; "" if all of them pass."""
    path = copy / bug.file
    right = path.read_text(encoding="utf-8")
    path.write_text(right.replace(bug.right, bug.wrong), encoding="utf-8")
    try:
        env = {
            **os.environ,
            "PYTHONPATH": str(copy.parent),
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, *bug.tests], cwd=copy, env=env, capture_output=True, text=True, timeout=SECONDS
        )
        return "" if done.returncode == 0 else done.stdout[-2000:]
    finally:
        path.write_text(right, encoding="utf-8")


@pytest.mark.nightly
def test_without_a_bug_the_tests_pass(copy: Path) -> None:
    assert not found(copy, BUGS[0]._replace(wrong=BUGS[0].right))


@pytest.mark.nightly
@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.name not in UNFOUND], ids=lambda bug: bug.name)
def test_it_is_found(bug: Bug, copy: Path) -> None:
    said = found(copy, bug)
    assert said, f"{bug.name}: {', '.join(bug.tests)} pass with it"
    assert "failed" in said.lower() or "error" in said.lower(), said
