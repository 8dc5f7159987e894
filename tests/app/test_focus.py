"""The focus never falls back to the beginning of the page.

When an element with the focus is stopped, deleted, closed or removed, a neighbour gets the focus.
"""

from __future__ import annotations

from typing import Any

import pytest
from browser import Lab
from sizes import first_of
from toylab import finished
from waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
SETTLED = (
    "new Promise((done) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 0))"
)
TABS = ("compare", "debugger", "report", "cache", "hardware", "library", "lab")


def somewhere(page: Any) -> str:
    """The focused element after a frame or two; it is never the page itself."""
    page.evaluate(SETTLED)
    where = str(
        page.evaluate(
            "(({ activeElement: x, body }) => (x === body ? '' : x.outerHTML.slice(0, 120)))(document)"
        )
    )
    assert where, "the focus fell to the page"
    return where


def run(page: Any, tokens: int = 12) -> str:
    """Start a run by the keyboard and give its id."""
    page.fill("#ds-new input", str(tokens))
    before = page.evaluate("location.hash")
    page.press("#ds-run", "Enter")
    page.wait_for_function(
        "(before) => location.hash !== before && location.hash.startsWith('#run=')", arg=before
    )
    return str(page.evaluate("location.hash.slice(5).split('&')[0]"))


@pytest.mark.nightly
def test_after_a_stop_and_in_every_tab(paused: Lab) -> None:
    page = paused.open()
    run(page, 300)
    page.wait_for_function("document.documentElement.dataset.dsRun == 'paused'")
    page.press(".ds-button.stop", "Enter")
    page.wait_for_function("document.documentElement.dataset.dsRun == 'cancelled'")
    assert "stop" in somewhere(page)
    for tab in TABS:
        page.press(f"#ds-tab-{tab}", "Enter")
        page.wait_for_function(f"document.documentElement.dataset.dsTab == {tab!r}")
        assert f"ds-tab-{tab}" in somewhere(page)


@pytest.mark.nightly
def test_after_a_dialog_is_closed(lab: Lab) -> None:
    page = lab.open()
    for close in ("Escape", "Close"):
        page.press("text=All methods…", "Enter")
        page.wait_for_selector("dialog[open]")
        if close == "Escape":
            page.keyboard.press("Escape")
        else:
            page.press("dialog[open] >> text=Close", "Enter")
        page.wait_for_selector("dialog[open]", state="detached")
        assert "browse" in somewhere(page)
    page.focus(".ds .node >> nth=0")
    page.keyboard.press("?")
    page.wait_for_selector("dialog.keys[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog.keys[open]", state="detached")
    assert "node" in somewhere(page)
    page.click(".ds .under button:text-is('terms')")  # visitors without a keyboard read the definitions there
    page.wait_for_selector("dialog.keys li:has-text('Tau: tokens of text per verify pass')")
    page.click("dialog.keys >> text=Close")
    page.wait_for_selector("dialog.keys[open]", state="detached")
    page.wait_for_function("document.activeElement.textContent === 'terms'")


@pytest.mark.nightly
def test_after_a_trace_is_deleted(lab: Lab) -> None:
    page = lab.open()
    first = run(page)
    page.wait_for_function("document.documentElement.dataset.dsRun == 'done'")
    second = run(page)
    page.wait_for_function("document.documentElement.dataset.dsRun == 'done'")
    page.press("#ds-tab-library", "Enter")
    for name in (second, first):
        row = page.locator(f"#ds-page-library tr[data-run='{name}']")
        row.locator("button.open").focus()
        page.keyboard.press("Delete")
        row.wait_for(state="detached")
        assert "ds-page" not in somewhere(page)


@pytest.mark.nightly
def test_while_a_step_is_on_its_way(lab: Lab) -> None:
    """The tree is hidden then.

    The element that has the focus meanwhile returns it to the step's node, however late the node comes.
    """
    done = finished(lab.play, max_new=24)
    page = lab.open()
    held: list[Any] = []
    page.route("**/range*", lambda route: held.append(route))  # before the page requests what it may need
    page.evaluate(f"location.hash = '#run={done.run}'")
    page.wait_for_selector(".ds .outcome >> text=as many tokens")
    page.focus(".ds .node >> nth=0")
    for _ in range(done.count):
        page.keyboard.press("ArrowLeft")
        somewhere(page)
        if not page.locator(".ds .tree-box svg.tree").is_visible():
            break
    eventually(lambda: page.evaluate("0") or held)  # evaluating gives the browser time to run
    assert "tree-box" in somewhere(page)
    for request in held:
        request.continue_()
    page.wait_for_function("document.activeElement.matches('.ds .node')")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.activeElement.matches('.ds .node')")


@pytest.mark.nightly
def test_after_a_line_with_its_button_has_gone(lab: Lab) -> None:
    page = lab.open()
    run(page)
    page.wait_for_function("document.documentElement.dataset.dsRun == 'done'")
    page.fill("#ds-new input", "17")
    follow = page.locator(".ds-next button")
    follow.wait_for(state="visible")
    follow.press("Enter")
    follow.wait_for(state="hidden")
    assert "Put this run" not in somewhere(page)


@pytest.mark.parametrize(
    "away", first_of("remove()", "hidden = true", "parentElement.style.display = 'none'", "disabled = true")
)
@pytest.mark.nightly
def test_whatever_goes_away_leaves_the_focus_to_a_neighbour(lab: Lab, away: str) -> None:
    """Also for elements that no current page removes; a click on the empty page gives the focus up."""
    page = lab.open()
    page.evaluate(
        """() => {
          const place = document.createElement("section");
          place.id = "try";
          for (const name of ["a", "b", "c"]) {
            const button = Object.assign(document.createElement("button"), { textContent: name });
            place.appendChild(document.createElement("span")).append(button);
          }
          document.querySelector(".ds-places").append(place);
        }"""
    )
    page.focus("#try button >> nth=1")
    page.evaluate(f"() => {{ document.activeElement.{away}; }}")
    assert "<button>c</button>" in somewhere(page)
    page.evaluate("() => { document.activeElement.blur(); document.querySelector('#try button').focus(); }")
    page.mouse.click(2, 200)
    page.evaluate(SETTLED)
    assert page.evaluate("document.activeElement === document.body")


def test_the_lab_has_one_play(lab: Lab) -> None:
    page = lab.open(reduced_motion="reduce")
    play = page.locator("button:visible").filter(has_text="Play")
    named = page.locator("button[aria-label^=play i]:visible, button[aria-label^=pause i]:visible")
    assert play.count() == 1 and named.count() == 0
    page.keyboard.press("Escape")
