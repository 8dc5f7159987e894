"""Copied tokens on the page: their source is marked in the text, from the text, from the tree, and in the other direction."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import toys
from toylab import Words

from decodescope.engine import Session
from decodescope.engine.trace import Trace
from decodescope.engine.trace.detail_checks.copies import copied_places, emitted_sources

from .drawn import Drawn, told
from .runs import TEXTS

OPEN = """(all) => { window.view = S.mount(place, { views: ['tree', 'card', 'text'] });
all.forEach((one) => view.push(one)); }"""


@cache
def run() -> Trace:
    target = replace(toys.target(seed=toys.LIVELY), tokenizer=Words(TEXTS))  # type: ignore[arg-type]
    made = toys.method(drafter=("prompt_lookup", {"ngram": 1, "max_draft_tokens": 3}))
    session = Session(target, made, toys.PROMPT, max_new_tokens=48, seed=0)
    session.sink = Trace()
    for _ in session.stream():
        pass
    return session.sink


def test_the_wire_has_the_source_of_every_token_that_was_copied() -> None:
    trace = run()
    steps = [one for one in told(trace) if one["kind"] == "step"]
    due = [emitted_sources(trace.header, step) for step in trace.steps]
    assert [step.get("from", []) for step in steps] == due and sum(map(bool, due)) > 1, (
        "the test needs copies that stayed"
    )
    text = trace.header.prompt.tolist()
    for step in steps:
        for (token, *_), place in zip(step["made"], step.get("from", []), strict=False):
            assert place is None or text[place] == token
        text += [token for token, *_ in step["made"]]


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_a_copy_marks_its_source_and_a_source_its_copies(drawn: Drawn) -> None:
    trace = run()
    drawn.run(OPEN, told(trace))
    k = next(
        k
        for k, step in enumerate(trace.steps)
        if any(x is not None for x in emitted_sources(trace.header, step))
    )
    step, n = trace.steps[k], len(trace.header.prompt)
    drawn.run("(i) => view.seek(i)", k)
    tokens = drawn.page.locator(".text-pane .tok:visible")
    marked = "x => x.flatMap((y, k) => y.classList.contains('%s') ? [k] : [])"
    places = copied_places(trace.header, step)
    assert tokens.evaluate_all(marked % "source") == sorted(set(places))
    assert f"positions {places[0]} to {places[-1]}" in drawn.text(".text-pane .copied") or len(places) == 1
    assert not tokens.evaluate_all(marked % "pointed")
    made, source = next((i, x) for i, x in enumerate(emitted_sources(trace.header, step)) if x is not None)
    at = n + sum(len(x.emitted) for x in trace.steps[:k]) + made
    copies = [
        n + x.n - trace.steps[0].n + i
        for x in trace.steps[: k + 1]
        for i, place in enumerate(emitted_sources(trace.header, x))
        if place == source
    ]
    for one in (at, source):  # from the copy to its source, and from the source to all copies
        tokens.nth(one).hover()
        drawn.settled()
        assert (
            tokens.evaluate_all(marked % "pointed") == [source]
            and tokens.evaluate_all(marked % "copy") == copies
        )
        assert drawn.page.locator(".tree .node.linked").count() == places.count(source)
        drawn.page.mouse.move(1, 1)
        drawn.settled()
        assert not tokens.evaluate_all(marked % "pointed") and not tokens.evaluate_all(marked % "copy")
    node = places.index(source) + 1
    drawn.page.locator(f".tree .node[data-node='{node}']").hover()
    drawn.settled()
    assert tokens.evaluate_all(marked % "pointed") == [source]
    drawn.page.mouse.move(1, 1)
    drawn.run("([i, node]) => view.select({ step: i, node })", [k, node])
    assert tokens.evaluate_all(marked % "pointed") == [source], (
        "the chosen node marks its place without a pointer"
    )
    card = drawn.text(".decision")
    assert "copied from" in card and f"position {source}" in card
