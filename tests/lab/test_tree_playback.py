"""A large tree is drawn as a picture while its steps play, and as elements when playback stops; both look alike."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from .drawn import Drawn, told
from .runs import known

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("drawn")]
SEEN = "(selector) => document.querySelector(selector).checkVisibility({ visibilityProperty: true })"
STANDS = f"() => ({SEEN})('svg.tree')"
PLACES = """() => [...document.querySelectorAll('.tree .node')].filter((x) => x.style.display !== 'none').map((x) => {
  const box = x.querySelector('.mark').getBoundingClientRect();
  return [Number(x.dataset.node), box.x + box.width / 2, box.y + box.height / 2]; })"""


def large(more: int = 60) -> list[dict[str, Any]]:
    """The messages of a run whose trees have so many additional nodes, all of them guesses without a result."""
    head, *rest = told(known("tree"))
    steps = [x for x in rest if x["kind"] == "step"]
    for step in steps:
        step["nodes"] += [[k % 3, f" guess{k}" if k % 5 else "\n\n", k, 0.01] for k in range(more)]
    return [head, *steps]


def put(drawn: Drawn, messages: list[dict[str, Any]], at: int) -> None:
    """Show a step during playback: nothing waits for its elements."""
    drawn.run(
        """(told, i) => { window.view = S.mount(place, { views: ['tree', 'card'] }); told.forEach((one) => view.push(one));
        view.seek(i); }""",
        messages,
        at,
    )


def held(drawn: Drawn) -> None:
    """Keep drawing the next steps as pictures for as long as the test looks at them: the page's clock is stopped."""
    drawn.page.evaluate("() => { const now = performance.now(); performance.now = () => now; }")


def shot(drawn: Drawn, width: int) -> np.ndarray:
    """A screenshot of the tree's place on the page."""
    box = drawn.page.locator(".tree-box").bounding_box()
    clip = {"x": box["x"] - 8, "y": box["y"], "width": width - 2 * box["x"] + 16, "height": box["height"]}
    return np.asarray(Image.open(io.BytesIO(drawn.page.screenshot(clip=clip))).convert("L")).astype(int)


@pytest.mark.parametrize("width", [390, 1440])
def test_the_picture_looks_like_the_elements(driver: Any, width: int) -> None:
    made = Drawn(driver, width)
    held(made)
    put(made, large(), 3)
    assert made.run(SEEN, ".tree-picture") and not made.run(SEEN, "svg.tree")
    picture = shot(made, width)
    made.page.evaluate(
        "() => { performance.now = () => 1e9; view.select({ step: 3, node: view.selection?.node ?? 1 }); }"
    )
    made.page.wait_for_function(STANDS)
    assert not made.run(SEEN, ".tree-picture")
    elements = shot(made, width)
    assert picture.shape == elements.shape, "what follows the tree stays where it is"
    ink = np.abs(elements - np.median(elements)) > 40
    assert ink.sum() > 1500, "the test needs a tree"
    assert np.abs(picture - elements)[ink].mean() < 40, "what is drawn in one is drawn in the other"
    assert (np.abs(picture - elements) > 100).mean() < 0.01
    made.close()


@pytest.mark.nightly
def test_a_step_that_stands_becomes_elements(drawn: Drawn) -> None:
    put(drawn, large(), 2)
    drawn.page.wait_for_function(STANDS)
    assert drawn.page.locator(".tree .node").first.get_attribute("aria-label")
    drawn.run("() => view.seek(4)")
    drawn.page.wait_for_function(
        f"() => ({SEEN})('svg.tree') && document.querySelector('svg.tree').ariaLabel.endsWith(' 4')"
    )


def test_a_node_of_the_picture_can_be_clicked(drawn: Drawn) -> None:
    put(drawn, large(), 3)
    drawn.page.wait_for_function(STANDS)
    places = [x for x in drawn.page.evaluate(PLACES) if x[2] < 880]  # on the screen
    drawn.run("() => view.seek(2)")
    held(drawn)
    drawn.run("() => view.seek(3)")
    assert drawn.run(SEEN, ".tree-picture")
    for node, x, y in places[:: len(places) // 6]:
        drawn.page.mouse.click(x, y)
        assert drawn.run("() => view.selection") == {"step": 3, "node": node}


@pytest.mark.nightly
def test_keys_walk_the_tree_while_it_is_a_picture_and_the_focus_keeps_its_elements(drawn: Drawn) -> None:
    put(drawn, large(), 3)
    drawn.page.wait_for_function(STANDS)
    drawn.page.focus(".tree .node[tabindex='0']")
    held(drawn)
    drawn.run("() => view.seek(2)")
    assert drawn.run(SEEN, "svg.tree") and not drawn.run(SEEN, ".tree-picture"), (
        "a reader of elements keeps them"
    )
    drawn.page.focus(".ds")
    drawn.run("() => view.seek(3)")
    assert drawn.run(SEEN, ".tree-picture")
    before = drawn.run("() => view.selection?.node ?? null")
    drawn.page.keyboard.press("l")
    assert drawn.run("() => view.selection.node") != before


@pytest.mark.nightly
def test_a_small_tree_is_elements_at_once(drawn: Drawn) -> None:
    held(drawn)
    put(drawn, large(0), 3)
    assert drawn.run(SEEN, "svg.tree") and not drawn.run(SEEN, ".tree-picture")


@pytest.mark.nightly
def test_inks_of_the_picture_follow_the_theme(drawn: Drawn) -> None:
    held(drawn)
    put(drawn, large(), 3)
    light = shot(drawn, 1440)
    drawn.run("() => view.theme('dark')")
    dark = shot(drawn, 1440)
    assert drawn.run(SEEN, ".tree-picture") and np.median(dark) < 60 < np.median(light)
    assert (np.abs(dark - np.median(dark)) > 60).sum() > 1500, "light ink on a dark ground"


@pytest.mark.nightly
def test_trees_that_go_by_share_one_picture(drawn: Drawn) -> None:
    """A new picture for each tree would take longer than drawing it; the visible part is as high as the tree."""
    messages = large()
    held(drawn)
    put(drawn, messages, 0)
    seen, made = [], []
    for i in range(len(messages) - 1):
        messages[i + 1]["nodes"] = messages[i + 1]["nodes"][: len(messages[i + 1]["nodes"]) - i % 8]
        drawn.run("(step, i) => (view.push(step), view.seek(i))", messages[i + 1], i)
        assert drawn.run(SEEN, ".tree-picture")
        seen.append(drawn.run("() => document.querySelector('.tree-picture').offsetHeight"))
        made.append(
            drawn.run(
                "() => (({ width, height }) => [width, height])(document.querySelector('.tree-picture canvas'))"
            )
        )
    assert len({*seen}) > 5, "the test needs trees of many heights"
    assert len({tuple(x) for x in made}) <= 3 and made[-1] == made[len(made) // 2], (
        "it grows a few times and stays"
    )
    assert all(high >= tree for tree, (_, high) in zip(seen, made, strict=True))


@pytest.mark.nightly
def test_on_a_narrow_page_the_chosen_node_is_not_folded_away(driver: Any) -> None:
    made = Drawn(driver, 390)
    put(made, large(), 3)
    made.page.wait_for_function(STANDS)
    node = len(large()[4]["nodes"]) - 2
    assert node not in [x[0] for x in made.page.evaluate(PLACES)], "the test needs a node that is folded away"
    made.run("(node) => view.select({ step: 3, node })", node)
    made.page.wait_for_function(
        f"() => document.querySelector('.tree .node[aria-selected=true]')?.dataset.node === '{node}'"
    )
    assert node in [x[0] for x in made.page.evaluate(PLACES)]
    made.close()
