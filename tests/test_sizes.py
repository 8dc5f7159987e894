"""Which runs make nightly cases: those that can hold one."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from sizes import first_settings, nightly, reaches_nightly, sizes, thinned

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
COMMIT = PROJECT["tool"]["pytest"]["ini_options"]["addopts"].split(" -m ")[1].strip("'")


@pytest.mark.parametrize(
    ("markers", "arguments", "reached"),
    [
        (COMMIT, ["tests"], False),
        ("not nightly", [], False),
        ("browser and not nightly", [], False),
        ("nightly", [], True),
        ("nightly or slow", [], True),
        ("nightly and not browser", [], True),
        ("not (nightly and slow)", [], True),  # one that is not slow
        ("slow", [], True),  # one that is both
        ("", [], True),
        (COMMIT, ["tests/test_a.py::test_b"], False),
        (COMMIT, ["tests/test_a.py::test_b[full]"], True),
    ],
)
def test_nightly_cases_are_made_where_a_run_can_hold_one(
    markers: str, arguments: list[str], reached: bool
) -> None:
    assert reaches_nightly(markers, arguments) is reached


def test_all_cases_of_both_sizes_are_made_for_a_night_and_one_size_for_a_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for making, due in ((True, (6, 2, 2)), (False, (3, 1, 1))):
        monkeypatch.setattr("sizes.making", making), monkeypatch.setattr("sizes.left_out", 0)
        marked = [pytest.param(1), pytest.param(2, marks=pytest.mark.nightly)]
        both = sizes("n", usual=1, full=2).args[1]
        assert (len(thinned(2, range(2), range(3))), len(both), len([*nightly(marked)])) == due


def test_a_commit_takes_a_parts_first_settings_with_every_value(monkeypatch: pytest.MonkeyPatch) -> None:
    variants = [("a", {}), ("a", {"k": 1}), ("b", {})]
    monkeypatch.setattr("sizes.making", False), monkeypatch.setattr("sizes.left_out", 0)
    commit = [case.values for case in first_settings(variants, "xy")]
    assert commit == [(name, {}, letter) for name in "ab" for letter in "xy"]
    monkeypatch.setattr("sizes.making", True)
    night = first_settings(variants, "xy")
    assert len(night) == 6 and [case.values for case in night if not case.marks] == commit
