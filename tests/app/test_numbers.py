"""Impossible numbers of a run: Run names the number, its value and its limits, in the usual place for refusals."""

from __future__ import annotations

from typing import Any

import pytest
from browser import Lab

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.runs.run_service import RunChoice, RunService


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"max_new": 999_999_999_999}, "New tokens = 999999999999: must lie in [1, 4096]."),
        ({"max_new": 0}, "New tokens = 0: must lie in [1, 4096]."),
        ({"seed": -5}, "Seed = -5: must lie in [0, 9007199254740991]."),
        ({"seed": 1 << 53}, "Seed = 9007199254740992: must lie in [0, 9007199254740991]."),
    ],
)
def test_a_number_outside_its_limits_is_refused_by_name(
    play: RunService, wanted: dict[str, Any], says: str
) -> None:
    with pytest.raises(RequestRefusal) as refused:
        play.start(RunChoice("abc", **wanted))
    assert str(refused.value) == says


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_the_page_says_it_where_run_stands_and_nowhere_else(lab: Lab) -> None:
    page = lab.open()
    page.fill("#ds-new input", "999999999999")
    page.press("#ds-new input", "Tab")
    page.click("#ds-run")
    page.wait_for_selector("#ds-start .ds-refusal >> text=New tokens = 999999999999: must lie in [1, 4096].")
    assert page.locator(".toast-body").count() == 0, "the page library says nothing beside it"
    page.fill("#ds-new input", "12")
    page.fill("#ds-seed input", "-5")
    page.press("#ds-seed input", "Tab")
    page.click("#ds-run")
    page.wait_for_selector("#ds-start .ds-refusal >> text=Seed = -5: must lie in")
