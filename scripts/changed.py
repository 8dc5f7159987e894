#!/usr/bin/env python3
"""Which tests a change asks for: those of the changed files, those that read a changed module, and a few of everything.

python scripts/changed.py          prints what `make check` runs
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# a few of everything, without a browser: the rules of the house, one run each, a trace, the output distribution, the page's
# first answer
SMOKE = (
    "tests/house",
    "tests/test_house.py",
    "tests/engine/test_session.py",
    "tests/trace/test_check.py",
    "tests/law/test_counts.py",
    "tests/lab/test_explain.py",
)
FAMILIES = "engine/methods/"
BY_NAME = ("tests/contracts", "tests/law")  # where a method's tests are found by its name
MOST = 12  # test files for one changed module; the others wait for `make test`


def changed_files(since: str = "HEAD") -> list[str]:
    """Paths that differ from a commit, and those that git does not know yet."""
    differ = ["git", "diff", "--name-only", since]
    unknown = ["git", "ls-files", "--others", "--exclude-standard"]
    lines = [
        subprocess.run(x, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for x in (differ, unknown)
    ]
    return sorted({name for text in lines for name in text.splitlines() if (ROOT / name).exists()})


def test_files() -> dict[str, str]:
    """Path -> text of every test file."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
    }


def tests_for(changed: Iterable[str], tests: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The test files that the changed paths ask for, and the names of the methods among them.

    tests: path -> text of every test file
    """
    files: dict[str, None] = dict.fromkeys(x for x in SMOKE if x in tests or not x.endswith(".py"))
    methods = []
    for path in changed:
        stem = Path(path).stem
        if path in tests:
            files[path] = None
        elif path.startswith("tests/") and path.endswith(".py"):
            files.update(dict.fromkeys(_reading(f"import {stem}", f"from {stem}", tests=tests)))
        elif path.endswith(".py"):
            files.update(dict.fromkeys(_of_module(path, stem, tests)))
            if path.startswith(FAMILIES) and "/shared/" not in path and stem != "__init__":
                methods.append(stem)
        elif path.endswith((".js", ".md", ".json")):
            files.update(dict.fromkeys(_reading(Path(path).name, tests=tests)))
    return list(files), methods


def _of_module(path: str, stem: str, tests: Mapping[str, str]) -> list[str]:
    """The test files of a module: named like it, or importing it."""
    named = [x for x in tests if Path(x).stem == f"test_{stem}"]
    dotted = ".".join(["decodescope", *Path(path).with_suffix("").parts]).removesuffix(".__init__")
    return list(dict.fromkeys([*named, *_reading(dotted, tests=tests)]))[:MOST]


def _reading(*words: str, tests: Mapping[str, str]) -> list[str]:
    """The first test files with one of the words in their text."""
    return [path for path, text in tests.items() if any(word in text for word in words)][:MOST]


if __name__ == "__main__":
    files, methods = tests_for(changed_files(), test_files())
    print("\n".join(files + [f"{' '.join(BY_NAME)} -k {name}" for name in methods]))
