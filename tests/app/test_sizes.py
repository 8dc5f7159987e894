"""The page for a projector and in forced colours; lists of further draft models where a method uses several."""

from __future__ import annotations

from typing import Any

import pytest
from browser import Lab, seek
from sizes import first_of

from decodescope.app.runs.catalogue.examples import shipped_examples

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
SIZE = "parseFloat(getComputedStyle(document.querySelector('{}')).fontSize)"
FITS = "document.documentElement.scrollWidth <= innerWidth + 1"
TABS = ("report", "hardware", "library")


def label_boxes(page: Any) -> list[list[float]]:
    """Left, top, right and bottom of the labels of the tree."""
    found: list[list[float]] = page.locator(".ds .tree g.node:visible text.label").evaluate_all(
        "x => x.map((t) => t.getBoundingClientRect()).map((b) => [b.left, b.top, b.right, b.bottom])"
    )
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("width", first_of(1280, 1920))
def test_larger_type_is_kept_and_everything_still_fits(lab: Lab, width: int) -> None:
    page = lab.open(f"/#run={shipped_examples()[0].run}&step=3", width=width, height=1080)
    page.wait_for_selector(".ds .node >> visible=true")
    page.wait_for_function("document.querySelector('.ds h1').textContent == 'Step 3'")
    usual = page.evaluate(SIZE.format(".ds .label"))
    page.click(".ds-top .size")
    page.wait_for_function(f"{SIZE.format('.ds .label')} > {usual}")
    assert page.get_attribute(".ds-top .size", "aria-pressed") == "true"
    assert [page.evaluate(SIZE.format(x)) for x in (".ds", "#ds-prompt textarea", ".ds-tabs button")] == [
        16,
        16,
        16,
    ]
    seek(page, 4)
    boxes = label_boxes(page)
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            over = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
            assert not (over[0] > 1 and over[1] > 6), "labels were measured with the new size"
    assert page.evaluate(FITS)
    for tab in TABS:
        page.click(f"#ds-tab-{tab}")
        page.wait_for_selector(f"#ds-page-{tab} h1 >> visible=true")
        assert page.evaluate(FITS), tab
    page.reload()
    page.wait_for_function("document.documentElement.dataset.dsSize == 'projector'")
    page.wait_for_selector(".ds-top .size[aria-pressed=true]")
    page.click(".ds-top .size")
    page.wait_for_function("document.documentElement.dataset.dsSize == 'usual'")


@pytest.mark.nightly
def test_in_forced_colours_what_is_chosen_is_told_from_the_rest(lab: Lab) -> None:
    page = lab.open(forced_colors="active")
    page.click(".browse")
    page.wait_for_selector(".ds-catalogue[open] [aria-selected=true]")
    ground = "(x) => getComputedStyle(document.querySelector(x)).backgroundColor"
    chosen = page.evaluate(ground, ".ds-catalogue [aria-selected=true]")
    assert chosen != page.evaluate(ground, ".ds-catalogue [aria-selected=false]")
    assert page.evaluate(ground, ".ds-catalogue .families [aria-pressed=true]") == chosen


@pytest.mark.nightly
def test_lists_of_further_draft_models_come_with_a_method_that_reads_them(lab: Lab) -> None:
    page = lab.open()
    assert not page.locator("#ds-draft2").is_visible()
    page.click(".browse")
    page.wait_for_selector(".ds-catalogue[open] [data-name='drafter specinfer']")
    page.click(".ds-catalogue [data-name='drafter specinfer']")
    page.keyboard.press("Enter")
    models = page.locator("#ds-method .ds-knobs:visible").get_by_label("models").first
    models.wait_for()
    models.fill("2")
    models.press("Tab")
    page.wait_for_selector("#ds-draft2 >> visible=true")
    assert not page.locator("#ds-draft3").is_visible()
    page.wait_for_selector("#ds-answer .ds-refusal >> text=needs 2 draft models and the page has 1")
