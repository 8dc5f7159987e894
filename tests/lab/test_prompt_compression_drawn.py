"""A compressed prompt on the page: every token with its reason, another budget computed from the record, and the cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import toys
from sizes import thinned
from toylab import Words

from decodescope.engine import Session
from decodescope.engine.trace import Trace
from decodescope.engine.trace.records.prompt_cut import LEFT, STAYS, reasons_under_budget
from decodescope.lab.charts import CHARTS

from .drawn import Drawn, told

OPEN = """(all) => { place.replaceChildren(); window.view = S.mount(place, { views: ['text', 'time'] });
all.forEach((one) => view.push(one)); view.seek(0); }"""
SLIDE = """(budget) => { const range = document.querySelector('.prompt-pane input'); range.value = budget;
range.dispatchEvent(new Event('input')); }"""
WORDS = Words(
    [" Who", " ran", ".", " the", " cat", " of", ",", " Bob", "\n\n", "?", " sat", "<b>", "<|end|>"]
)
WORDS.marks, WORDS.front = frozenset({12}), [12]  # type: ignore[attr-defined] # attributes of a tokenizer
LONG = [
    12,
    0,
    1,
    9,
    *[7, 1, 5, 3, 4, 6, 10, 3, 4, 2, 8, 7, 10, 11, 2, 4, 1, 5, 7, 2, 8, 7, 7, 6, 1, 2] * 2,
    0,
    10,
    9,
    12,
]
CONTEXTS: dict[str, dict[str, Any]] = {
    "selective_context": dict(reduce_ratio=0.4),
    "llmlingua": dict(keep_rate=0.5, segment=12, paragraph_budget=1.2),
    "specpc": dict(prompt_budget=20, window=4, neighbours=4),
    "gemfilter": dict(prompt_budget=20),
}


def run(context: str, **knobs: Any) -> Trace:
    big, small = (replace(x, tokenizer=WORDS) for x in toys.pair())  # type: ignore[arg-type] # a substitute tokenizer
    made = toys.method(prompt_compression=(context, {**CONTEXTS.get(context, {}), **knobs}))
    models = {"draft": small} if "draft" in made.lanes else {}
    return toys.finish_session(Session(big, made, LONG, models=models, max_new_tokens=3)).sink  # type: ignore[return-value]


@pytest.mark.parametrize("context", CONTEXTS)
def test_the_wire_says_what_the_record_says(context: str) -> None:
    trace = run(context)
    cut, one = trace.prefill.cut, told(trace)[0]["shortened"]
    assert one["reason"] == cut.reason.tolist() and one["budget"] == cut.budget and one["near"] == cut.near
    assert np.array_equal(np.float32(one["scores"]), cut.scores) and one["texts"][4] == " Bob"
    assert one["units"] == (None if cut.units is None else cut.units.tolist()) and one["guess"] == (
        context == "llmlingua"
    )
    looked = [x for x in trace.prefill.passes if x.phase == "score"]
    assert (
        one["looked"][0] == sum(x.tokens for x in looked) >= len(LONG) - 1 and one["lane"] == looked[0].lane
    )
    assert one["read"][0] == len(cut.kept) - 1 and one["whole"][0] == len(LONG) - 1
    assert one["whole"][1] > one["read"][1] > 0 and one["looked"][1] > 0


def test_a_prompt_that_is_read_as_it_is_has_no_such_view_and_no_chart() -> None:
    plain = toys.decode(toys.method(), count=2).sink
    assert told(plain)[0]["shortened"] is None
    with pytest.raises(ValueError, match="no token was left out"):
        CHARTS["prompt"].draw(plain)


def test_the_chart_has_a_bar_for_each_token_by_its_reason() -> None:
    trace = run("selective_context")
    drawing = CHARTS["prompt"].draw(trace)
    assert isinstance(drawing, go.Figure) and sum(len(bar.x) for bar in drawing.data) == len(LONG)
    left = next(bar for bar in drawing.data if bar.name.startswith("left out"))
    cut = trace.prefill.cut
    assert list(left.x) == np.flatnonzero(cut.reason == LEFT).tolist()
    assert np.allclose(left.y, cut.scores[cut.reason == LEFT])


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
@pytest.mark.parametrize("context", thinned(2, CONTEXTS))
def test_another_budget_on_the_page_is_the_rule_in_python(drawn: Drawn, context: str) -> None:
    trace = run(context)
    cut, one = trace.prefill.cut, told(trace)[0]["shortened"]
    made = [
        drawn.run("(one, budget) => S.recut(one, budget)", one, budget)
        for budget in range(0, len(LONG) + 1, 5)
    ]
    due = [reasons_under_budget(cut, budget).tolist() for budget in range(0, len(LONG) + 1, 5)]
    assert made == due and len({tuple(x) for x in due}) > 6


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_tokens_that_went_are_struck_through_and_a_press_says_why(drawn: Drawn) -> None:
    trace = run("selective_context")
    cut = trace.prefill.cut
    drawn.run(OPEN, told(trace))
    tokens = drawn.page.locator(".prompt-pane .tok")
    struck = tokens.evaluate_all(
        "all => all.map((x) => getComputedStyle(x).textDecorationLine === 'line-through')"
    )
    assert struck == [x == LEFT for x in cut.reason.tolist()] and 5 < sum(struck) < len(LONG) - 5
    at = int(np.flatnonzero(cut.reason == LEFT)[0])
    tokens.nth(at).click()
    said = drawn.text(".prompt-pane .took")
    assert f"Token {at + 1}" in said and "left out" in said and f"{cut.scores[at]:.3g}"[:3] in said
    drawn.run(SLIDE, len(LONG))
    assert not drawn.page.locator(".prompt-pane .tok.left").count() and "a run would read" in drawn.text(
        ".prompt-pane output"
    )
    drawn.run(SLIDE, 0)
    stays = int((cut.reason == STAYS).sum())
    assert drawn.page.locator(".prompt-pane .tok:not(.left)").count() == stays
    drawn.page.locator(".prompt-pane .budget button").click()
    assert drawn.page.locator(".prompt-pane .tok.left").count() == sum(struck)
    prices = drawn.cells(".prompt-pane tbody tr")
    assert [x[3].split(",")[0] for x in prices] == [
        f"{one} rows" for one in (len(LONG), len(cut.kept) - 1, len(LONG) - 1)
    ]
    drawn.run(OPEN, told(toys.decode(toys.method(), count=4).sink))
    assert not drawn.page.locator(".prompt-pane").is_visible()
