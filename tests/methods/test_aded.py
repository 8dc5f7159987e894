"""ADED: trigrams gain weight as the text grows, and the draft follows the most visited branches of the search."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import toys
from drafting import drafts, path_of
from law.cases import SAMPLERS, true_law

from decodescope.engine import Session
from decodescope.engine.core.component import build
from decodescope.engine.methods.drafters.shared.tree_search import (
    BONUS,
    HIGHEST,
    SUCCESSORS,
    SearchNode,
    SuccessorTable,
    SuccessorWeights,
    TrigramWeights,
    search_tree,
    visited_nodes,
)
from decodescope.engine.session.method import Method, MethodError
from decodescope.testing.tables import logit_table, table_model
from decodescope.testing.walk import Walk, distribution_distance

IDS = [int(x) for x in Path(toys.DATASTORE).read_text().split()]


def test_trigrams_are_the_most_frequent_successors() -> None:
    found, counts = SuccessorTable(np.array([*IDS, -1])), {}
    for a, b, c in zip(IDS, IDS[1:], IDS[2:], strict=False):
        counts.setdefault((a, b), Counter())[c] += 1
    assert len(counts) > 50
    for pair, row in counts.items():
        due = sorted(row.items(), key=lambda x: (-x[1], x[0]))[:SUCCESSORS]
        assert list(found.followers(pair)) == [c for c, _ in due]
        assert found.followers(pair) == pytest.approx({c: n / row.total() for c, n in due})
    assert found.followers((-1, 3)) == found.followers((3, 10**9)) == {}
    assert SuccessorTable(np.array([1, 2, -1, 3, 4])).followers((1, 2)) == {}, (
        "no trigram goes over the end of a text"
    )
    assert SuccessorTable(np.array([])).followers((0, 0)) == {}


def test_newest_text_gains_weight_up_to_a_limit() -> None:
    weights = TrigramWeights(SuccessorTable(np.array([1, 2, 3, -1, 1, 2, 4])))
    weights.raise_recent([5, 1, 2, 3])
    assert weights.successor_weights((1, 2)) == pytest.approx(
        {3: 0.5 + BONUS, 4: 0.5}
    ) and weights.successor_weights((5, 1)) == {2: BONUS}
    weights.raise_recent([5, 1, 2, 3])
    assert weights.successor_weights((5, 1)) == {2: BONUS}, "the same text counts once"
    weights.raise_recent([1, 2, 3, *range(6, 20)])
    assert weights.successor_weights((1, 2))[3] == pytest.approx(0.5 + BONUS), "only 16 tokens are new"
    for n in range(200):
        weights.raise_recent([1, 2, 3] * (n + 1))
    assert weights.successor_weights((1, 2))[3] == HIGHEST


TOY = {
    (0, 1): {1: 0.4, 2: 0.35, 0: 0.25},
    (1, 1): {0: 0.2, 1: 0.1},
    (1, 2): {2: 1.5, 0: 0.5},
    (1, 0): {1: 0.6},
    (2, 2): {0: 0.3},
}


def toy(pair: tuple[int, int]) -> SuccessorWeights:
    return SuccessorWeights(TOY.get(pair, {}))


def test_every_iteration_visits_the_root_and_ends_somewhere() -> None:
    for n in (1, 7, 150):
        root = search_tree((0, 1), toy, 3, n)
        assert root.visits == n == sum(x.visits for x in root.children or ())
        for x in visited_nodes(root):
            below = sum(y.visits for y in x.children or ())
            assert below <= x.visits and len(x.path) <= 3
            assert x.visits - below <= 1 or not x.children, "what was grown is left only by going further"


def test_two_iterations_worked_by_hand() -> None:
    """Two iterations by hand.

    First: expand 1, 2, 0 after (0, 1), go to the heaviest, 1; draw a step after (1, 1), with weight w. Second: the next is 2,
    which was never visited; draw after (1, 2). Rewards 1 + 0.4 + w and 1 + 0.35 + w'.
    """
    root = search_tree((0, 1), toy, 2, 2)
    first, second, third = root.children or ()
    assert [x.path for x in (first, second, third)] == [(1,), (2,), (0,)] and [
        x.prior for x in (first, second)
    ] == [0.4, 0.35]
    assert (first.visits, second.visits, third.visits) == (1, 1, 0)
    assert any(first.total == pytest.approx(1.4 + w) for w in TOY[1, 1].values())
    assert any(second.total == pytest.approx(1.35 + w) for w in TOY[1, 2].values())
    assert root.total == pytest.approx(first.total + second.total)


def test_best_child_is_that_of_the_formula() -> None:
    root = search_tree((0, 1), toy, 3, 90)
    for at in (root, *(x for x in visited_nodes(root) if x.children)):
        if all(x.visits for x in at.children):
            n = at.visits
            scores = [
                x.total / x.visits + (32 + math.log((n + 9) / 8)) * x.prior * math.sqrt(n) / (1 + x.visits)
                for x in at.children
            ]
            assert at.best_child() is at.children[scores.index(max(scores))]
    assert root.best_child().visits
    fresh = SearchNode((0, 0), row=[(1, 0.5), (2, 0.1)], visited=[SearchNode((0, 1), visits=1, total=99.0)])
    assert fresh.best_child().pair == (0, 2), "one that was never visited comes first"


def test_with_many_iterations_visits_rank_as_the_rewards() -> None:
    """With equal weights of the first steps, later ones rank them: 2 leads to 1.5, then 0.3; 0 to 0.6; 1 to 0.2, then 0.2."""
    flat = {**TOY, (0, 1): {0: 0.3, 1: 0.3, 2: 0.3}, (1, 1): {1: 0.2}}

    def value(pair: tuple[int, int], left: int) -> float:
        row = flat.get(pair, {}) if left else {}
        return max((w + value((pair[1], x), left - 1) for x, w in row.items()), default=0.0)

    worth = {x: 0.3 + value((1, x), 2) for x in range(3)}
    root = search_tree((0, 1), lambda pair: SuccessorWeights(flat.get(pair, {})), 3, 20_000)
    by_visits = sorted(root.children or (), key=lambda x: -x.visits)
    assert [x.path[0] for x in by_visits] == sorted(worth, key=worth.__getitem__, reverse=True) == [2, 0, 1]
    assert by_visits[0].mean == pytest.approx(1 + worth[2], abs=0.2) and by_visits[0].visits > 10_000


def test_search_is_the_same_for_the_same_seed() -> None:
    def seen(seed: int) -> list[tuple[int, float]]:
        return [(x.visits, x.total) for x in visited_nodes(search_tree((0, 1), toy, 3, 60, seed))]

    assert seen(0) == seen(0) != seen(1)


def test_draft_is_the_most_visited_paths_and_what_follows_them() -> None:
    settings = dict(datastore=toys.DATASTORE, iterations=60, depth=2, max_paths=5)
    found = 0
    for text, draft, drafter in drafts("aded", settings, steps=12):
        root = search_tree((text[-2], text[-1]), drafter._weights.successor_weights, 2, 60)
        visited = {x.path: x.visits for x in visited_nodes(root)}
        paths = [tuple(path_of(draft, node)) for node in range(len(draft))]
        kept = paths[: min(5, len(visited))]
        assert (
            [visited[x] for x in kept]
            == sorted(visited.values(), reverse=True)[:5]
            == draft.notes["visits"][: len(kept)]
        )
        for path in paths[len(kept) :]:
            assert path[:-1] in kept
            row = drafter._weights.successor_weights(tuple([*text[-2:], *path[:-1]][-2:]))
            assert row[path[-1]] == max(row.values()), "behind a kept path stands its heaviest successor"
        assert len(set(paths)) == len(paths) and max(map(len, paths), default=0) <= 3
        found += len(paths) > len(kept)
    assert found > 6


def test_a_text_that_repeats_itself_is_drafted_from_itself(tmp_path: Path) -> None:
    """With an uninformative datastore, weights come from the text alone."""
    file = tmp_path / "ids.txt"
    file.write_text("12 12")
    cycle = [3, 1, 4, 5]
    session = Session(toys.pair()[0], toys.method(drafter=("aded", dict(datastore=str(file)))), cycle * 4)
    session.start()
    draft = session.drafter.propose(session.context)
    assert draft.is_chain and draft.tokens == [3, 1, 4, 5]
    assert all(
        draft.notes["prior"][i] <= HIGHEST and x >= y
        for i, (x, y) in enumerate(pairwise(draft.notes["visits"]))
    )


@pytest.mark.parametrize("sampler", ["T=0.7", "T=1.5, top-p 0.8", "penalty, mirostat"])
def test_law_is_the_targets(sampler: str, tmp_path: Path) -> None:
    file = tmp_path / "ids.txt"
    file.write_text("1 2 1 0 1 0 0 2 0 1 1 1 2 2")
    drafter = build("drafter", "aded", dict(datastore=str(file), iterations=12, depth=2, max_paths=5))
    walk = Walk(
        Method(drafter=drafter, sampler=SAMPLERS[sampler][0]),
        {"target": table_model(logit_table(3, seed=1), 3)},
        4,
    )
    assert distribution_distance(walk.text_distribution(), true_law(3, sampler, 4)) <= 1e-12
    assert any(len(move.draft) >= 5 and not move.draft.is_chain for _, move in walk.step_outcomes())


def test_a_file_that_cannot_serve_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(MethodError, match=r"^aded\.datastore: there is no file .*\.$"):
        Session(
            toys.pair()[0],
            toys.method(drafter=("aded", dict(datastore=str(tmp_path / "none.txt")))),
            toys.PROMPT,
        )
