"""Consensus: the text emitted has the largest mean likeness to all, whatever their order; equal or not gives the mode."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import toys

from decodescope.engine import Session
from decodescope.engine.trace import check
from decodescope.engine.trace.details.drawn import MEASURES, Drawn, Text, distance, elected, likeness

STOPS = [2, 7]
HOT = ("temperature", {"temperature": 0.8})


def run(measure: str, k: int = 6, seed: int = 0, sampler: Any = HOT, count: int = 12) -> Session:
    method = toys.method(strategy=("consensus", {"samples": k, "measure": measure}), sampler=sampler)
    return toys.decode(method, count=count, seed=seed, stop_tokens=STOPS)


def alone(seed: int, count: int = 12) -> list[int]:
    """The text of a run of its own."""
    return toys.decode(toys.method(sampler=HOT), count=count, seed=seed, stop_tokens=STOPS).end.tokens


def edits(a: list[int], b: list[int]) -> int:
    """The edit distance, by the whole table."""
    table = [[i + j if i * j == 0 else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i, x in enumerate(a, 1):
        for j, y in enumerate(b, 1):
            table[i][j] = min(table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (x != y))
    return table[-1][-1]


def alike(a: list[int], b: list[int], measure: str) -> float:
    if measure == "exact":
        return float(a == b)
    if measure == "edit":
        return 1 - edits(a, b) / max(len(a), len(b))
    shared = sum(min(a.count(x), b.count(x)) for x in {*a})
    precision, recall = shared / len(a), shared / len(b)
    return 2 * precision * recall / (precision + recall) if shared else 0.0


def vote_of(session: Session) -> Drawn:
    vote = session.sink.steps[-1].drawn
    assert vote is not None and vote.chosen is not None
    return vote


@pytest.mark.parametrize("measure", MEASURES)
def test_the_text_is_that_of_the_most_votes_among_runs_of_their_own(measure: str) -> None:
    others = 0
    for seed in range(0, 48, 6):
        made, texts = run(measure, seed=seed), [alone(seed + i) for i in range(6)]
        vote = vote_of(made)
        assert [x.tokens for x in vote.texts] == texts and made.end.tokens == texts[vote.chosen]
        due = [sum(alike(a, b, measure) for b in texts) / 6 for a in texts]
        assert vote.votes == pytest.approx(due) and max(due) == pytest.approx(due[vote.chosen])
        assert np.allclose(vote.like, [[alike(a, b, measure) for b in texts] for a in texts])
        assert check(made.sink).ok, str(check(made.sink))
        assert made.end.reason == ("stop_token" if made.end.tokens[-1] in STOPS else "max_new_tokens")
        others += made.end.tokens != texts[0]
    assert others > 2, "the test needs votes that the first text loses"


def test_equal_or_not_gives_the_mode() -> None:
    clear = 0
    for seed in range(0, 60, 6):
        made = run("exact", seed=seed, count=3)
        (first, times), *rest = Counter(tuple(alone(seed + i, 3)) for i in range(6)).most_common()
        if not rest or rest[0][1] < times:
            assert tuple(made.end.tokens) == first
            clear += 1
        assert vote_of(made).votes[vote_of(made).chosen] == times / 6
    assert clear > 3, "the test needs texts that come more often than the others"


@pytest.mark.parametrize("measure", MEASURES)
def test_the_order_of_the_texts_decides_nothing(measure: str) -> None:
    """Ties too: two pairs of equal texts, and two texts of one log-probability."""
    texts = [
        Text([1, 2], -1.0, True),
        Text([3, 4], -1.0, True),
        Text([1, 2], -1.0, True),
        Text([3, 4], -1.0, True),
    ]
    more = [Text([5, 6, 1], -0.5, True), Text([1, 5, 5, 4], -3.0, False)]
    for some in (texts, [*texts[:2], *more], more, [*texts[:3], more[1]]):
        chosen = {tuple(some[elected(list(order), measure).chosen or 0].tokens) for order in [some]}
        for order in permutations(some):
            vote = elected(list(order), measure)  # type: ignore[arg-type] # a measure
            chosen.add(tuple(vote.texts[vote.chosen or 0].tokens))
        assert len(chosen) == 1
    tie = elected(texts, "exact")
    assert tie.votes == [0.5] * 4 and tie.texts[tie.chosen or 0].tokens == [1, 2], (
        "of equal ones the first ids"
    )
    assert elected([texts[1], replace(texts[0], logp=-2.0)], "exact").chosen == 0, (
        "of equal votes the likelier"
    )


@pytest.mark.parametrize("measure", MEASURES)
def test_one_text_is_that_of_plain_decoding(measure: str) -> None:
    for seed in range(3):
        assert run(measure, k=1, seed=seed).end.tokens == alone(seed)
    greedy = run(measure, sampler="greedy")
    assert greedy.end.tokens == toys.decode(toys.method(), count=12, stop_tokens=STOPS).end.tokens
    assert vote_of(greedy).votes == [1.0] * 6


def test_likeness_is_what_a_table_and_counting_give() -> None:
    texts = [x[: 1 + i % 7] for i, x in enumerate(toys.prompts(60, length=7, seed=5, vocab=3))]
    texts += toys.prompts(4, length=70, vocab=3)
    for a in texts:
        for b in texts[::3]:
            assert distance(a, b) == edits(a, b)
            assert all(
                likeness(a, b, x) == pytest.approx(alike(a, b, x)) == likeness(b, a, x) for x in MEASURES
            )


CHANGES = [
    (lambda x: replace(x, chosen=(x.chosen + 1) % 6), r"it chose text \d, and by the votes text \d is due"),
    (lambda x: replace(x, votes=x.votes[::-1]), r"its votes are .* are due"),
    (lambda x: replace(x, like=x.like * 0.5), r"not as like each other as it says"),
    (lambda x: replace(x, like=None), r"not a vote and a row of likenesses for each of 6"),
    (lambda x: replace(x, by="charm"), r"vote by 'charm', which this version does not know"),
    (
        lambda x: replace(x, texts=[replace(x.texts[0], tokens=[1]), *x.texts[1:]]),
        r"not as like each other as it says",
    ),
]


@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_a_vote_that_does_not_follow_is_told(change: Any, said: str) -> None:
    made = next(x for x in (run("f1", seed=seed) for seed in range(9)) if len({*vote_of(x).votes}) == 6)
    made.sink.steps[-1].drawn = change(vote_of(made))
    problems = check(made.sink).problems
    assert any(re.search(said, x) for x in problems), problems
