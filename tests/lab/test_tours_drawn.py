"""The page shows what a tour quotes: every number of its text, at that stop, in the precision of the page."""

from __future__ import annotations

import re
from contextlib import closing
from math import exp
from typing import Any

import pytest
from sizes import thinned

from decodescope.app.runs.catalogue.examples import Example, examples
from decodescope.app.runs.catalogue.tours import tours
from decodescope.engine.trace import open_trace

from .drawn import Drawn, told

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("drawn")]
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?!\w|\.\d)")
SEEN = """() => [place.innerText, ...Array.from(place.querySelectorAll("svg text"), (x) => x.textContent)].join(" ")"""


def opened(drawn: Drawn, example: Example) -> list[dict[str, Any]]:
    """The example as the page draws it."""
    with closing(open_trace(example.path)) as trace:
        messages = told(trace)
    drawn.run(
        "(messages) => { window.view = S.mount(place, {}); messages.forEach((m) => view.push(m)); }", messages
    )
    return messages


def at(drawn: Drawn, step: int, node: int) -> str:
    """Everything that the page shows at a node."""
    drawn.run("(step, node) => view.select({ step, node })", step, node)
    return str(drawn.page.evaluate(SEEN))


def stands(number: str, seen: str) -> bool:
    """True if a page shows this number, or one that agrees in the digits of both.

    For a share at least two digits must be shown.
    """
    places = len(number.partition(".")[2])
    for other in NUMBER.findall(seen):
        shown, apart = len(other.partition(".")[2]), abs(float(other) - float(number))
        if apart == 0 or (places and shown > 1 and apart <= 0.5 * (10**-places + 10**-shown) + 1e-9):
            return True
    return False


LED = [x for x in examples() if x.name in tours()]


@pytest.mark.parametrize("example", thinned(6, LED), ids=lambda x: x.name)
def test_every_number_of_a_tour_stands_on_the_page(drawn: Drawn, example: Example) -> None:
    opened(drawn, example)
    missing, numbers = [], 0
    for stop in tours()[example.name]:
        seen = at(drawn, stop.step, stop.node)
        quoted = NUMBER.findall(stop.text)
        numbers += len(quoted)
        missing += [f"{stop.title}: {number}" for number in quoted if not stands(number, seen)]
    assert not missing, missing
    assert numbers, "a tour without numbers says nothing that can be held against the page"


def test_a_number_that_is_not_there_is_missed() -> None:
    assert stands("0.9157", "q 0.916") and stands("24", "24 of 24") and stands("0.75", "draft 0.755")
    assert stands("0.40", "threshold 0.4")
    assert not stands("0.9157", "0.917") and not stands("24", "124 or 2.4") and not stands("0.27", "0.3")


def test_a_greedy_head_s_own_figure_stands_where_its_q_would_be_one(drawn: Drawn) -> None:
    messages = opened(drawn, next(x for x in examples() if x.name == "eagle"))
    step = next(x for x in messages if x.get("i") == 6)
    scores = step["notes"]["drafter"]["scores"]
    at(drawn, 6, 2)
    given = f"{exp(scores[2] - scores[1]):.3f}"
    assert drawn.page.locator(".ds .node[data-node='2'] .sub").text_content() == f"draft {given}"
    said = str(drawn.page.get_attribute(".ds .node[data-node='2']", "aria-label"))
    assert f"draft {given}" in said and "draft 1.00" not in said
    assert f"draft\tgave it\t{given}" in drawn.text(".decision")
    seen = at(drawn, 0, 2)
    assert "Not reached" in drawn.text(".decision") and "q(x)" not in seen, "no draw, no q"
