"""Consensus: the emitted text has the largest mean similarity to all, in any order; exact equality gives the mode."""

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
from decodescope.engine.trace.details.shapes import MatrixDetail, TallyDetail
from decodescope.engine.trace.details.votes import MEASURES, edit_distance, hold_vote, text_similarity

STOPS = [2, 7]
HOT = ("temperature", {"temperature": 0.8})


def run(measure: str, k: int = 6, seed: int = 0, sampler: Any = HOT, count: int = 12) -> Session:
    method = toys.method(strategy=("consensus", {"samples": k, "similarity": measure}), sampler=sampler)
    return toys.decode(method, count=count, seed=seed, stop_tokens=STOPS)


def alone(seed: int, count: int = 12) -> list[int]:
    """The text of a separate run."""
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


def vote_of(session: Session) -> TallyDetail:
    vote = session.sink.steps[-1].detail("voted_texts")
    assert isinstance(vote, TallyDetail)
    return vote


@pytest.mark.parametrize("measure", MEASURES)
def test_the_text_is_that_of_the_most_votes_among_runs_of_their_own(measure: str) -> None:
    others = 0
    for seed in range(0, 48, 6):
        made, texts = run(measure, seed=seed), [alone(seed + i) for i in range(6)]
        vote = vote_of(made)
        chosen = vote.values["chosen"]
        assert vote.columns["tokens"] == texts and made.end.tokens == texts[chosen]
        due = [sum(alike(a, b, measure) for b in texts) / 6 for a in texts]
        assert vote.columns["votes"] == pytest.approx(due) and max(due) == pytest.approx(due[chosen])
        like = made.sink.steps[-1].detail("likeness").numbers
        assert np.allclose(like, [[alike(a, b, measure) for b in texts] for a in texts])
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
        vote = vote_of(made)
        assert vote.columns["votes"][vote.values["chosen"]] == times / 6
    assert clear > 3, "the test needs texts that come more often than the others"


@pytest.mark.parametrize("measure", MEASURES)
def test_the_order_of_the_texts_decides_nothing(measure: str) -> None:
    """Ties too: two pairs of equal texts, and two texts of one log-probability."""
    texts = [([1, 2], -1.0), ([3, 4], -1.0), ([1, 2], -1.0), ([3, 4], -1.0)]
    more = [([5, 6, 1], -0.5), ([1, 5, 5, 4], -3.0)]
    for some in (texts, [*texts[:2], *more], more, [*texts[:3], more[1]]):
        chosen = set()
        for order in permutations(some):
            vote = hold_vote(*zip(*order, strict=True), measure)
            chosen.add(tuple(order[vote.chosen][0]))
        assert len(chosen) == 1
    tie = hold_vote([x for x, _ in texts], [-1.0] * 4, "exact")
    assert tie.votes == [0.5] * 4 and tie.chosen == 0, "of equal ones the first ids"
    assert tie.outcomes == ["chosen", "equal", "same", "equal"]
    assert hold_vote([[3, 4], [1, 2]], [-1.0, -2.0], "exact").chosen == 0, "of equal votes the likelier"


@pytest.mark.parametrize("measure", MEASURES)
def test_one_text_is_that_of_plain_decoding(measure: str) -> None:
    for seed in range(3):
        assert run(measure, k=1, seed=seed).end.tokens == alone(seed)
    greedy = run(measure, sampler="greedy")
    assert greedy.end.tokens == toys.decode(toys.method(), count=12, stop_tokens=STOPS).end.tokens
    assert vote_of(greedy).columns["votes"] == [1.0] * 6


def test_likeness_is_what_a_table_and_counting_give() -> None:
    texts = [x[: 1 + i % 7] for i, x in enumerate(toys.prompts(60, length=7, seed=5, vocab=3))]
    texts += toys.prompts(4, length=70, vocab=3)
    for a in texts:
        for b in texts[::3]:
            assert edit_distance(a, b) == edits(a, b)
            assert all(
                text_similarity(a, b, x) == pytest.approx(alike(a, b, x)) == text_similarity(b, a, x)
                for x in MEASURES
            )


def columns(detail: TallyDetail, **more: Any) -> TallyDetail:
    return replace(detail, columns={**detail.columns, **more})


def values(detail: TallyDetail, **more: Any) -> TallyDetail:
    return replace(detail, values={**detail.values, **more})


TALLIES = {
    "another text": (
        lambda x: values(x, chosen=(x.values["chosen"] + 1) % 6),
        r"it chose text \d, and by the votes text \d is due",
    ),
    "other votes": (lambda x: columns(x, votes=x.columns["votes"][::-1]), r"its votes are .* are due"),
    "another token": (
        lambda x: columns(x, tokens=[[1], *x.columns["tokens"][1:]]),
        r"not as like each other as it says",
    ),
    "another outcome": (
        lambda x: columns(x, outcome=["fewer" if y == "chosen" else y for y in x.columns["outcome"]]),
        r"its texts are .*, and by the votes",
    ),
    "a text of more": (
        lambda x: values(x, same=5),
        r"it counts 5 texts like the one that it chose, and there",
    ),
    "a text without tokens": (
        lambda x: columns(x, tokens=[[], *x.columns["tokens"][1:]]),
        r"row 1 of voted_texts breaks count\(tokens\) >= 1",
    ),
    "no votes": (lambda x: columns(x, votes=[None] * 6), r"lack tokens, logarithms or votes"),
    "a logarithm of none": (lambda x: columns(x, logp=[0.5] * 6), r"breaks logp <= 0"),
    "a word for tokens": (lambda x: columns(x, tokens=["ab"] * 6), r"must have a list in each row"),
    "fewer texts": (
        lambda x: replace(x, columns={name: y[:5] for name, y in x.columns.items()}),
        r"likeness has 6 rows, where 5 are due",
    ),
}
MATRICES = {
    "half as like": (lambda x: replace(x, numbers=x.numbers * 0.5), r"not as like each other as it says"),
    "no likeness": (lambda x: replace(x, numbers=None), r"likeness has 0 rows, where 6 are due"),
    "more than like": (lambda x: replace(x, numbers=x.numbers * 2), r"is 2, outside of 0 to 1"),
    "fewer columns": (lambda x: replace(x, numbers=x.numbers[:, :5]), r"has 5 columns, where 6 are due"),
    "whole numbers": (lambda x: replace(x, numbers=x.numbers.astype(int)), r"where 2 of kind 'f' are due"),
    "a mark": (lambda x: replace(x, marks=[[0, 0, "x"]]), r"has the mark 'x', which its declaration lacks"),
    "a label": (lambda x: replace(x, rows={"x": [1] * 6}), r"the column 'x', which its declaration lacks"),
}


def clear() -> Session:
    """A run whose six texts have different votes."""
    return next(
        x for x in (run("f1", seed=seed) for seed in range(9)) if len({*vote_of(x).columns["votes"]}) == 6
    )


@pytest.mark.parametrize("lie", [*TALLIES, *MATRICES])
def test_a_vote_that_does_not_follow_is_told(lie: str) -> None:
    made = clear()
    tally, matrix = made.sink.steps[-1].details
    assert isinstance(tally, TallyDetail) and isinstance(matrix, MatrixDetail)
    change, said = TALLIES.get(lie) or MATRICES[lie]
    changed = [change(tally), matrix] if lie in TALLIES else [tally, change(matrix)]
    made.sink.steps[-1].details = changed
    problems = check(made.sink).problems
    assert any(re.search(said, x) for x in problems), problems


def test_a_matrix_stands_beside_its_tally() -> None:
    made = clear()
    made.sink.steps[-1].details = made.sink.steps[-1].details[1:]
    assert any("is there without 'voted_texts'" in x for x in check(made.sink).problems)


def test_a_measure_that_nobody_knows_is_named() -> None:
    made = clear()
    made.sink.header.method["strategy"]["similarity"] = "charm"
    assert any("vote by 'charm', which this version does not know" in x for x in check(made.sink).problems)


def test_counts_keep_neither_texts_nor_likeness() -> None:
    method = toys.method(strategy=("consensus", {"samples": 3}), sampler=HOT)
    brief = toys.decode(method, count=4, level="summary")
    kept = {x.name for step in brief.sink.steps for x in step.details or ()}
    assert kept == {"sampled_texts"} and brief.end.tokens
