"""Definitions of terms: for a pointer, for a screen reader, and in the list of keys; each text exists once."""

from __future__ import annotations

import re

import pytest

from decodescope.lab.views.bundle import WEB

from .drawn import Drawn, told
from .runs import known

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("drawn")]
TERM = ".ds [data-term='{}']:visible"


@pytest.fixture
def shown(drawn: Drawn) -> Drawn:
    """A drawn tree at a step with a rejection."""
    trace = known("tree")
    step = next(s.step for s in trace.steps if s.trials is not None and not all(s.trials.ok))
    drawn.run(
        "(messages) => { window.view = S.mount(place, {}); messages.forEach((m) => view.push(m)); }",
        told(trace),
    )
    drawn.run("(step) => view.seek(step)", step)
    return drawn


def test_symbols_and_words_can_be_asked_with_the_pointer_and_the_keyboard(shown: Drawn) -> None:
    page, tip = shown.page, shown.page.locator(".ds > .terms")
    page.focus(".ds")
    page.keyboard.press("?")
    listed = page.inner_text(".ds dialog.keys")
    page.keyboard.press("Escape")
    for term in ("p", "q", "u", "threshold", "tau", "rate", "draft", "target", "accepted", "rejected"):
        one = page.locator(TERM.format(term)).first
        said = str(one.get_attribute("aria-description"))
        one.hover()
        assert tip.inner_text() == said and len(said) > 20 and said in listed, term
    box = tip.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 1440
    page.keyboard.press("Escape")
    assert not tip.is_visible()
    for kind in ("pointerover", "pointerleave"):  # a finger has left when it lifts
        one.dispatch_event(kind, {"pointerType": "touch"})
    assert tip.is_visible()


def test_no_text_of_a_term_stands_twice() -> None:
    text = (WEB / "scope" / "shared" / "terms.js").read_text(encoding="utf-8")
    sentences = re.findall(r'^  \w+: "(.+)",$', text, re.MULTILINE)
    others = " ".join(p.read_text(encoding="utf-8") for p in WEB.rglob("*.js") if p.name != "terms.js")
    assert len(sentences) > 15 and len(set(sentences)) == len(sentences)
    assert not [x for x in sentences if x in others]
