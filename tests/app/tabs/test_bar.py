"""The bar of pages: each page has an address, is reached with the keyboard, and leaves the other pages unchanged."""

from __future__ import annotations

from typing import Any

import pytest
from browser import STEP, Lab, seek, settled
from sizes import first_of

from decodescope.app.runs.catalogue.examples import shipped_examples

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("tabs")]
SHOWN = "document.documentElement.dataset.dsTab"
FOCUSED = "document.activeElement.id"


def names(page: Any) -> list[str]:
    return [
        x.removeprefix("ds-tab-")
        for x in page.locator(".ds-tabs [role=tab]").evaluate_all("all => all.map((x) => x.id)")
    ]


@pytest.mark.nightly
def test_the_lab_stays_as_it_was_while_another_page_is_looked_at(lab: Lab) -> None:
    page = lab.open(f"/#run={shipped_examples()[0].run}")
    page.evaluate("window.same = true")
    seek(page, 3)
    page.locator("#ds-prompt textarea").fill("Something else")
    for name in names(page)[1:]:
        page.click(f"#ds-tab-{name}")
        page.wait_for_selector(f"#ds-page-{name} h1")
        assert page.locator("#ds-grid").is_hidden() and page.locator(".ds-page:visible").count() == 1
        assert page.evaluate("location.hash") == f"#{name}&run={shipped_examples()[0].run}"
        page.click("#ds-tab-lab")
        page.wait_for_selector(".ds .node:visible")
        assert (
            page.evaluate(STEP) == 3 and page.evaluate("location.hash") == f"#run={shipped_examples()[0].run}"
        )
    assert page.input_value("#ds-prompt textarea") == "Something else"
    assert page.evaluate("window.same"), "nothing was loaded again"
    page.go_back()
    page.wait_for_function(f"{SHOWN} != 'lab'")
    page.go_forward()
    page.wait_for_function(f"{SHOWN} == 'lab'")


@pytest.mark.nightly
def test_an_address_opens_its_page_and_an_unknown_one_the_lab(lab: Lab) -> None:
    other = shipped_examples()[1]
    page = lab.open(f"/#library&run={other.run}", ready=False)
    page.wait_for_selector("#ds-page-library h1:visible")
    page.wait_for_function("document.title == 'Library · DecodeScope'")
    page.click("#ds-tab-lab")
    page.wait_for_function(
        f"document.querySelector('.ds-shown select')?.value == '{other.run}' && {STEP} >= 0"
    )
    page.evaluate(
        "new Promise((done) => { addEventListener('hashchange', done); location.hash = '#nothing'; })"
    )
    settled(page)
    assert page.evaluate(SHOWN) == "lab" and page.title() == "DecodeScope"


@pytest.mark.nightly
def test_settings_in_a_link_are_read_behind_another_page_too(lab: Lab) -> None:
    page = lab.open("/#library&set=%7B%22nonsense%22", ready=False)
    page.wait_for_selector("#ds-page-library h1:visible")
    page.wait_for_function("!location.hash.includes('set=')")
    assert page.evaluate("location.hash") == "#library"
    page.click("#ds-tab-lab")
    page.wait_for_selector("#ds-answer .ds-refusal")


@pytest.mark.nightly
def test_arrows_walk_along_the_bar_and_the_focus_stays_there(lab: Lab) -> None:
    page = lab.open()
    all_names = names(page)
    assert all_names[0] == "lab" and len(all_names) > 1
    page.focus("#ds-tab-lab")
    for name in [*all_names[1:], "lab"]:
        page.keyboard.press("ArrowRight")
        page.wait_for_function(f"{SHOWN} == '{name}'")
        assert page.evaluate(FOCUSED) == f"ds-tab-{name}"
        chosen = page.locator(".ds-tabs [aria-selected=true]")
        assert chosen.count() == 1 and chosen.get_attribute("id") == f"ds-tab-{name}"
        assert page.locator(".ds-tabs [tabindex='0']").count() == 1
    for key, name in [("ArrowLeft", all_names[-1]), ("Home", "lab"), ("End", all_names[-1])]:
        page.keyboard.press(key)
        page.wait_for_function(f"{SHOWN} == '{name}'")
        assert page.evaluate(FOCUSED) == f"ds-tab-{name}"
    # the page is there
    page.wait_for_selector(f"#ds-page-{all_names[-1]} :is(button, input, select, a[href]):visible")
    for _ in range(3):  # the switches of size and theme, then the page's own controls, never hidden ones
        page.keyboard.press("Tab")
    assert page.evaluate("!!document.activeElement.closest('.ds-page')")


@pytest.mark.nightly
def test_every_tab_names_its_panel(lab: Lab) -> None:
    page = lab.open()
    for tab in page.locator(".ds-tabs [role=tab]").all():
        tab.click()
        panel = page.locator("#" + tab.get_attribute("aria-controls"))
        assert panel.get_attribute("role") == "tabpanel"
        assert panel.get_attribute("aria-labelledby") == tab.get_attribute("id")


@pytest.mark.parametrize("width", first_of(390, 900, 1440))
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_no_page_scrolls_sideways(lab: Lab, width: int, scheme: str) -> None:
    page = lab.open(f"/#run={shipped_examples()[0].run}", width, color_scheme=scheme)
    for name in names(page)[1:]:
        page.click(f"#ds-tab-{name}")
        page.wait_for_selector(f"#ds-page-{name} h1")
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), name
        style = "x => [getComputedStyle(x).backgroundColor, getComputedStyle(x).color]"
        ground, ink = page.locator(f"#ds-page-{name}").evaluate(style)
        assert (ground == "rgb(255, 255, 255)") == (scheme == "light") and ground != ink


@pytest.mark.nightly
def test_a_page_that_does_not_come_is_a_sentence_and_can_be_asked_for_again(lab: Lab) -> None:
    page = lab.open()
    page.route("**/ds/web/styles/library.css", lambda route: route.abort())
    # the page asks again by itself after half a second: here only the button makes it ask
    later = "const later = setTimeout; window.setTimeout = (f, ms, ...x) => later(f, ms === 500 ? 1e6 : ms, ...x);"
    page.evaluate(f"() => {{ {later} }}")
    page.click("#ds-tab-library")
    page.wait_for_selector("#ds-page-library .ds-refusal >> text=could not be loaded")
    page.unroute("**/ds/web/styles/library.css")
    page.click("#ds-page-library >> text=Try again")
    page.wait_for_selector("#ds-page-library h1")


@pytest.mark.nightly
def test_a_page_that_is_on_its_way_is_a_sentence(lab: Lab) -> None:
    page, held = lab.open(), []
    page.route("**/ds/web/styles/library.css", lambda route: held.append(route))
    page.click("#ds-tab-library")
    page.wait_for_selector("#ds-page-library >> text=Library is on its way…")
    for route in held:
        route.continue_()
    page.wait_for_selector("#ds-page-library h1")
    assert not page.locator("#ds-page-library .coming").count()
