"""Copied tokens: the place that a drafter names holds the same token, and `check` reports where it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import toys

from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.detail_checks.copies import copied_places, emitted_sources, prompt_as_read

DRAFTERS: list[tuple[str, dict[str, Any]]] = [
    ("prompt_lookup", {"ngram": 1, "max_draft_tokens": 4}),
    ("prompt_lookup", {"ngram": 1, "max_draft_tokens": 4, "match": "first"}),
    ("llma", {"max_draft_tokens": 4}),
    ("aggressive", {}),
    ("trie", {"nodes": 12, "depth": 4}),
]


def run(drafter: tuple[str, dict[str, Any]], **more: Any) -> Trace:
    return toys.decode(toys.method(drafter=drafter, **more), count=24).sink


@pytest.mark.parametrize("drafter", DRAFTERS, ids=lambda x: x[0])
@pytest.mark.parametrize(
    "more", [{}, {"prompt_compression": ("gemfilter", {"prompt_budget": 8})}], ids=["whole", "cut"]
)
def test_every_copy_stands_where_the_drafter_says(
    drafter: tuple[str, dict[str, Any]], more: dict[str, Any]
) -> None:
    trace, told = run(drafter, **more), 0
    text = prompt_as_read(trace.header, trace.prefill)
    for step in trace.steps:
        places = copied_places(trace.header, step)
        assert len(places) == (0 if step.draft is None or not places else len(step.draft.tokens))
        for node, place in enumerate(places):
            assert place is not None and step.draft is not None and text[place] == step.draft.tokens[node]
            told += 1
        for token, place in zip(step.emitted, emitted_sources(trace.header, step), strict=False):
            assert place is None or text[place] == token
        text += step.emitted
    assert told > 4, "the test needs copies"
    assert check(trace).ok and check(trace).counts["copied tokens"] == told


def test_a_copy_of_another_token_is_seen() -> None:
    trace = run(DRAFTERS[0])
    k, step = next((k, x) for k, x in enumerate(trace.steps) if copied_places(trace.header, x))
    assert step.draft is not None and step.draft.notes is not None
    text = [*trace.header.prompt.tolist(), *(x for one in trace.steps[:k] for x in one.emitted)]
    for wrong in (next(i for i, x in enumerate(text) if x != step.draft.tokens[0]), len(text), -1):
        notes = {**step.draft.notes, "copied": [wrong, *step.draft.notes["copied"][1:]]}
        trace.steps[k] = replace(step, draft=replace(step.draft, notes=notes))
        problem = check(trace).problems[0]  # the hashes at the end disagree too
        assert f"step {k}" in problem and f"copy of the token at {wrong}" in problem


def test_an_answer_that_is_a_span_comes_from_its_passage() -> None:
    trace = toys.decode(toys.method(strategy=("exact_extract", {"end_token": "7"})), count=9).sink
    places = emitted_sources(trace.header, trace.steps[0])
    known = [
        (token, place)
        for token, place in zip(trace.steps[0].emitted, places, strict=True)
        if place is not None
    ]
    assert known and all(trace.header.prompt[place] == token for token, place in known) and places[-1] is None
