"""`make check` runs the tests that a change asks for."""

from __future__ import annotations

import sys

import pytest
from source import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import changed

TESTS = changed.test_files()


@pytest.mark.parametrize(
    ("path", "due"),
    [
        ("engine/methods/strategies/lexical_units.py", "tests/methods/test_lexical_units.py"),
        ("engine/trace/check.py", "tests/trace/test_check.py"),
        ("engine/trace/values/formula.py", "tests/trace/test_formula.py"),
        ("tests/lab/test_tally.py", "tests/lab/test_tally.py"),
        ("tests/brute.py", "tests/engine/test_decoder.py"),
        ("docs/cli.md", "tests/app/test_cli.py"),
    ],
)
def test_a_changed_file_asks_for_its_tests(path: str, due: str) -> None:
    files, _ = changed.tests_for([path], TESTS)
    if due not in TESTS:
        pytest.fail(f"{due} is gone: name another file here")
    assert due in files and set(changed.SMOKE) <= set(files)


def test_a_changed_method_asks_for_its_contracts() -> None:
    assert changed.tests_for(["engine/methods/drafters/lookup/llma.py"], TESTS)[1] == ["llma"]
    assert changed.tests_for(["engine/methods/drafters/shared/trees.py"], TESTS)[1] == []


def test_what_is_run_always_is_there() -> None:
    assert all((ROOT / path).exists() for path in (*changed.SMOKE, *changed.BY_NAME))
