"""Texts that are drawn until one becomes the run's: how the headline, the card and the notes on the page describe them."""

from __future__ import annotations

import pytest
import toys
from followed import followed

from .drawn import Drawn, told

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("drawn")]
OPEN = "(all) => { window.view = S.mount(place, {}); all.forEach((one) => view.push(one)); }"


def test_the_headline_says_which_text_was_drawn_and_not_that_nothing_was_kept(drawn: Drawn) -> None:
    trace = toys.decode(toys.method(strategy=("aligned", {"samples": 3})), count=6).sink
    drawn.run(OPEN, told(trace))
    lines = []
    for i in range(3):
        drawn.run("(i) => view.seek(i)", i)
        lines.append(drawn.text(".headline .lead"))
        assert drawn.page.locator(".decision tbody tr").count() == 1
        assert "at most" in drawn.text(".decision") and "mass of the grammar" in drawn.text(".notes-pane")
    assert lines == [
        "0 tokens: text 1 of 3 drawn, the last is the run's",
        "0 tokens: text 2 of 3 drawn, the last is the run's",
        "6 tokens: text 3 of 3 drawn, the run's text",
    ]


@pytest.mark.nightly
def test_the_headline_of_samples_that_have_all_ended_speaks_of_the_text(drawn: Drawn) -> None:
    sampler = ("temperature", {"temperature": 0.9})
    made = toys.method(strategy=("samples", {"samples": 2}), sampler=sampler)
    runs = (toys.decode(made, count=30, seed=seed, stop_tokens=[2, 7, 4]).sink for seed in range(40))
    ended = next(trace for trace in runs if not followed(trace.steps[-1]).tokens)
    drawn.run(OPEN, told(ended))
    assert "text, of all that were written" in drawn.text(".headline .lead")


def test_a_vote_is_told_with_every_text_and_its_votes(drawn: Drawn) -> None:
    made = toys.method(strategy=("consensus", {"samples": 4}), sampler=("temperature", {"temperature": 0.9}))
    trace = toys.decode(made, count=6, seed=3).sink
    drawn.run(OPEN, told(trace))
    vote = trace.steps[-1].detail("voted_texts")
    votes, chosen = vote.columns["votes"], vote.values["chosen"]
    assert len({*votes}) > 1, "the test needs votes that differ"
    assert drawn.text(".headline .lead") == f"6 tokens: text {chosen + 1} of 4 has the most votes"
    rows = drawn.page.locator(".decision tbody tr").all_inner_texts()
    assert (
        len(rows) == 4
        and [f"{x:.3f}" in row or x == 1 for row, x in zip(rows, votes, strict=True)] == [True] * 4
    )
    assert "the run's text" in rows[chosen] and "mean likeness to all" in drawn.text(".decision")
    drawn.run("() => view.seek(2)")
    assert drawn.text(".headline .lead") == "0 tokens: 4 hypotheses kept, the text comes at the end"
