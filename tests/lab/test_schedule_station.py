"""The stations of the method: a schedule if one decides, and one mark for the text of the whole run."""

from __future__ import annotations

import pytest
import toys

from .drawn import Drawn, told

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("drawn")]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("schedule", "seen"),
    [
        ("fixed", None),
        (("confidence", {"threshold": 0.6}), "threshold 0.6, max draft tokens 20, tune threshold true"),
    ],
)
def test_strip_shows_the_schedule_that_decides(drawn: Drawn, schedule, seen: str | None) -> None:
    method = toys.method(drafter=("draft_model", {"max_draft_tokens": 3}), schedule=schedule)
    data = told(toys.decode(method, count=12).sink)
    drawn.run(
        "(data) => { window.view = S.mount(place); data.forEach((one) => view.push(one)); view.seek(1); }",
        data,
    )
    words = [x.split("  ")[0] for x in drawn.page.locator(".station .what").all_inner_texts()]
    assert words[0] == "Draft" and ("Schedule" in words) == (seen is not None)
    if seen is not None:
        station = drawn.page.locator(".station", has=drawn.page.get_by_text("Schedule", exact=True))
        assert (
            station.locator("b").inner_text() == "confidence"
            and station.locator(".knobs").inner_text() == seen
        )


@pytest.mark.parametrize(
    ("parts", "mark"),
    [
        (
            {"policy": ("streaming_llm", {"recent": 2})},
            "lossy, because: entries leave the cache (streaming llm)",
        ),
        (
            {"adaptive_depth": ("confidence_exit", {})},
            "lossy, because: layers are left out (confidence exit)",
        ),
        ({"drafter": ("draft_model", {"max_draft_tokens": 3})}, "lossless"),
    ],
)
def test_one_mark_says_whose_text_the_whole_run_wrote(drawn: Drawn, parts, mark: str) -> None:
    data = told(toys.decode(toys.method(**parts), count=12).sink)
    drawn.run(
        "(data) => { window.view = S.mount(place); data.forEach((one) => view.push(one)); view.seek(1); }",
        data,
    )
    assert drawn.text(".whose").lower() == mark
    words = [x.split("  ")[0] for x in drawn.page.locator(".station .what").all_inner_texts()]
    assert ("Rule" in words) is ("drafter" in parts), "no rule stands where nothing is tested"
    assert "own law" not in drawn.text(".stations"), "the rule's station says nothing of the whole run"
