"""A method that is missing from the tests' tables makes its tests fail, and the failure names the table to extend."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import toys
from contracts import test_policies

from decodescope.engine.core.component import build, component, param, registry
from decodescope.engine.decoding.bases.policy import CachePolicy

TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a registered policy that is in no table."""

    @component
    class Planted(CachePolicy):
        """Keep everything, whatever the budget is."""

        title = "Planted"
        source = "this test"

        budget: int = param(8, low=1, high=99, unit="entries", help="entries that it says it keeps")

    Planted.__module__ = "planted"  # a component is named after its file
    monkeypatch.setitem(registry("policy"), "planted", Planted)
    return "planted"


@pytest.mark.parametrize("ask", [toys.variants, toys.representatives])
def test_method_without_settings_stops_all_that_go_over_the_registry(planted: str, ask) -> None:
    with pytest.raises(LookupError, match=rf"^{planted} has no entry in SETTINGS of tests/toys\.py"):
        ask("policy")


def test_policy_without_a_bound_fails_by_name(planted: str) -> None:
    with pytest.raises(
        LookupError, match=rf"^{planted} has no entry in BOUND of tests/contracts/test_policies\.py"
    ):
        test_policies.bound(build("policy", planted))


def test_policy_with_settings_and_without_a_bound_fails_in_its_contract(
    planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(toys.SETTINGS, planted, [{}])
    assert (planted, {}) in toys.variants("policy")
    with pytest.raises(LookupError, match="BOUND"):
        test_policies.test_policy_keeps_its_bound_and_what_left_never_returns(planted, {})


def test_no_table_of_methods_is_read_with_a_default() -> None:
    """A lookup with a default would silently skip a method without an entry."""
    files = [
        TESTS / "toys.py",
        *(x for room in ("contracts", "law", "methods") for x in (TESTS / room).glob("*.py")),
    ]
    found = [
        f"{path.relative_to(TESTS)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"\b[A-Z]{3,}\.get\((name|kind|rule|drafter|policy|strategy|part|\w+\.name)\b", line)
    ]
    assert not found, found
