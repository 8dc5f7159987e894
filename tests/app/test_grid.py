"""The grid of a method that settles blocks, on the page: each cell shows the record of that pass and place."""

from __future__ import annotations

from contextlib import closing

import pytest
from browser import Lab
from sizes import first_of

from decodescope.app.runs.catalogue.examples import examples
from decodescope.engine.trace import open_trace
from decodescope.lab.decision.block_progress import block_progress

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
EXAMPLES = {x.name: x for x in examples()}
CELLS = """() => [...document.querySelectorAll('.ds-grid tbody td[data-place][title]')].map((x) => [
  ...x.title.match(/pass (\\d+), place (\\d+)/).slice(1).map(Number), x.className.replace(/ ?at$/, '')])"""


@pytest.mark.parametrize("width", first_of(390, 1280))
def test_each_cell_says_what_the_record_says(lab: Lab, width: int) -> None:
    page = lab.open(f"/#run={EXAMPLES['jacobi'].run}&step=0", width=width)
    page.wait_for_selector(".ds h1:text-is('Step 0')")
    page.focus(".ds")
    page.keyboard.press("End")
    page.wait_for_selector(".ds-grid .own th button:text-is('28')")
    with closing(open_trace(EXAMPLES["jacobi"].path)) as trace:
        made, steps, text = block_progress(trace), list(trace.steps), dict[int, int]()
        for step in steps:
            text |= {step.n + k: token for k, token in enumerate(step.emitted)}
    cells = page.evaluate(CELLS)
    due = []
    for step in steps[-14:]:
        it = step.detail("fixed_point")
        for k, token in enumerate(it.candidate.tolist()):
            right = text.get(it.start + k) == token
            kind = "final" if k < len(it.places) else "right" if right else "guess"
            since = right and made.since[it.start + k] == step.step
            due.append([step.step, it.start + k, f"{kind} since" if since else kind])
    assert cells == due and len({kind for *_, kind in due}) > 3
    said = page.inner_text(".ds-grid .quiet >> nth=1")
    assert said.startswith(
        f"Pass 28: {len(steps[28].detail('fixed_point').places)} final, {made.forwarded[28]} of them fast-forwarded"
    )
    assert f"{made.stationary[28]} stationary" in said
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.click(".ds-grid tbody button:text-is('24')")
    page.wait_for_selector(".ds h1:text-is('Step 24')")
    place = steps[25].detail("fixed_point").start + 2
    page.click(f".ds-grid tr[data-step='25'] td[data-place='{place}']")
    page.wait_for_selector(".ds h1:text-is('Step 25')")
    page.wait_for_selector(f".ds-grid .own td.at[data-place='{place}']")
    page.wait_for_selector(".ds .node[data-node='3'][aria-selected=true]", state="attached")
    assert page.locator(".ds-grid .at").count() == 1
    box, cell = (page.locator(x).bounding_box() for x in (".ds-grid .passes", ".ds-grid .at"))
    # the page has scrolled to the cell
    assert box["x"] <= cell["x"] and cell["x"] + cell["width"] <= box["x"] + box["width"]
    page.click(
        ".ds-grid tr[data-step='21'] td[data-place]:not([title])"
    )  # the block of this step has no such place
    page.wait_for_selector(".ds h1:text-is('Step 21')")
    page.wait_for_selector(".ds-grid .own .at", state="detached")


@pytest.mark.nightly
def test_a_run_without_blocks_has_no_grid(lab: Lab) -> None:
    page = lab.open(f"/#run={EXAMPLES['recycling'].run}")
    page.wait_for_selector(".ds .node:visible")
    assert not page.locator(".ds-grid").is_visible()
