"""Sequoia: the dynamic programme's tree is the best of its size; children accepted at its rates yield the expected tokens."""

from __future__ import annotations

import math
import random
from functools import cache

import pytest
import toys

from decodescope.engine import Session
from decodescope.engine.core.component import build
from decodescope.engine.core.tree import depths
from decodescope.engine.decoding.values.draft import ROOT
from decodescope.engine.methods.drafters.draft_model import sequoia
from decodescope.engine.methods.drafters.draft_model.sequoia import EVERY, PRIOR, RATES
from decodescope.engine.methods.drafters.shared.trees import SequoiaTable, Template, sequoia_tree, shaped_tree

VECTORS = [(0.6, 0.3), (0.4, 0.35, 0.2), (0.3, 0.1, 0.5), (0.0, 0.9), (0.5, 0.5, 0.0)]


@cache
def worth(rates: tuple[float, ...], nodes: int, depth: int, children: int | None = None) -> float:
    """Expected tokens of the best tree with exactly `nodes` nodes, its root among them; -inf if there is none.

    Found by trying every number of nodes for the last child.
    """
    if children is None:
        return max((worth(rates, nodes, depth, b) for b in range(len(rates) + 1)), default=-math.inf)
    if children == 0:
        return 1.0 if nodes == 1 else -math.inf
    if depth == 0:
        return -math.inf
    ways = [
        worth(rates, nodes - k, depth, children - 1) + rates[children - 1] * worth(rates, k, depth - 1)
        for k in range(1, nodes)
        if worth(rates, k, depth - 1) > -math.inf
    ]
    return max(ways, default=-math.inf)


def every_tree(rates: tuple[float, ...], nodes: int, depth: int) -> float:
    """The same number by listing the trees: sets of rank paths, closed under parent and earlier sibling."""
    grown = {frozenset[tuple[int, ...]]()}
    for _ in range(nodes):
        grown = {tree | {path} for tree in grown for path in _open(tree, len(rates), depth)}
    return 1 + max(
        (sum(math.prod(rates[r] for r in path) for path in tree) for tree in grown), default=-math.inf
    )


def _open(tree: frozenset[tuple[int, ...]], ranks: int, depth: int) -> set[tuple[int, ...]]:
    made = set()
    for path in [(), *tree]:
        rank = next(r for r in range(ranks + 1) if (*path, r) not in tree)
        if rank < ranks and len(path) < depth:
            made.add((*path, rank))
    return made


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("rates", VECTORS)
def test_programme_finds_the_best_of_all_trees(rates: tuple[float, ...], nodes: int, depth: int) -> None:
    table, best = SequoiaTable(rates, nodes, depth), every_tree(rates, nodes, depth)
    assert table.expected_tokens(nodes, depth) == pytest.approx(best)
    assert worth(rates, nodes + 1, depth) == pytest.approx(best)
    if best > -math.inf:
        tree = table.tree(nodes, depth)
        assert len(tree) == nodes and value(tree, rates) == pytest.approx(best)


@pytest.mark.parametrize("nodes", [10, 15, 40])
def test_with_falling_rates_it_is_the_tree_of_the_best_paths(nodes: int) -> None:
    assert sequoia_tree(RATES, nodes, 5).expected == pytest.approx(
        shaped_tree((RATES,) * 5, nodes).expected, rel=0.02
    )
    falling = tuple(sorted(RATES, reverse=True))
    assert sequoia_tree(falling, nodes, 5).expected == pytest.approx(
        shaped_tree((falling,) * 5, nodes).expected
    )


def value(tree: Template, rates: tuple[float, ...]) -> float:
    made = {ROOT: 1.0}
    for node, (parent, rank) in enumerate(zip(tree.parents, tree.ranks, strict=True)):
        made[node] = made[parent] * rates[rank]
    return sum(made.values())


def test_a_tree_made_by_hand() -> None:
    """P = (0.5, 0.4), 3 nodes, 2 levels.

    Two children give 1 + 0.5 + 0.4. The third node under the first one adds 0.5 x 0.5, more than 0.4 x 0.5 under the second
    one.
    """
    tree = sequoia_tree((0.5, 0.4), 3, 2)
    assert (tree.parents, tree.ranks) == ((ROOT, ROOT, 0), (0, 1, 0))
    assert tree.expected == pytest.approx(2.15)
    # with one level no tree has three nodes: two are best
    assert sequoia_tree((0.5, 0.4), 3, 1).expected == pytest.approx(1.9)


def test_acceptance_at_the_rates_yields_what_the_programme_says() -> None:
    """Walk down the tree at random: at every place the child of rank b is the accepted one with probability P[b]."""
    tree, rng, runs = sequoia_tree(RATES, 24, 6), random.Random(3), 20_000
    lengths = []
    for _ in range(runs):
        at, tokens = ROOT, 1
        while True:
            rank = rng.choices(range(len(RATES) + 1), [*RATES, 1 - sum(RATES)])[0]
            children = tree.children.get(at, [])
            if rank >= len(children):
                break
            at, tokens = children[rank], tokens + 1
        lengths.append(tokens)
    mean = sum(lengths) / runs
    error = math.sqrt(sum((x - mean) ** 2 for x in lengths)) / runs
    assert abs(mean - tree.expected) < 3 * error and tree.expected > 2


def test_draft_has_the_shape_and_a_level_is_one_pass() -> None:
    session = toys.decode(toys.method(drafter=("sequoia", {"nodes": 12, "depth": 4})), count=40)
    tree = sequoia_tree(RATES, 12, 4)
    levels = [sum(depth == level for depth in depths(tree.parents)) for level in (1, 2, 3, 4)]
    for step in session.sink.steps[:-5]:
        assert tuple(step.draft.parents) == tree.parents and step.draft.notes["ranks"] == list(tree.ranks)
        inner = [
            len({p for p in tree.parents if p != ROOT and depths(tree.parents)[p] == level})
            for level in (1, 2, 3)
        ]
        assert [p.tokens for p in step.passes if p.phase == "draft"] == inner
        assert step.drafted == sum(levels) == 12


def test_measured_vector_counts_the_places_that_the_check_visited() -> None:
    parts = dict(drafter=("sequoia", {"nodes": 12, "depth": 3, "acceptance_rates": "measured"}))
    session = toys.decode(toys.method(**parts), count=120)
    seen, taken = [float(PRIOR)] * len(RATES), [PRIOR * rate for rate in RATES]
    for step in session.sink.steps:
        if not step.drafted:
            continue
        oks = list(zip(step.trials.node, step.trials.ok, strict=True))
        accepted = [node for node, ok in oks if ok]
        for place in [ROOT, *accepted]:
            for rank, child in enumerate(x for x, parent in enumerate(step.draft.parents) if parent == place):
                seen[rank] += 1
                taken[rank] += child in accepted
    assert session.drafter.vector == pytest.approx([x / y for x, y in zip(taken, seen, strict=True)])
    assert len(session.sink.steps) > EVERY and session.drafter.vector != RATES
    shapes = {tuple(step.draft.parents) for step in session.sink.steps[:-4]}
    assert len(shapes) > 1, "the tree follows what was measured"


def test_fit_takes_the_size_with_most_tokens_per_microsecond(monkeypatch: pytest.MonkeyPatch) -> None:
    target, draft = toys.pair()
    ctx = Session(target, toys.method(drafter="sequoia"), toys.PROMPT, models={"draft": draft}).context
    table = SequoiaTable(RATES, 16, 4)
    for own, other in ((1.0, 0.01), (1.0, 10.0), (100.0, 1.0)):
        costs = {1: other, **{n + 1: own * (1 + n / 8) for n in (2, 4, 8, 16)}, 2: own}
        monkeypatch.setattr(sequoia, "verify_costs", lambda decoder, rows, executor=None, costs=costs, other=other: (
            [other] if decoder is draft.decoder else [costs[n] for n in rows]
        ))  # fmt: skip
        nodes, depth = build("drafter", "sequoia", {"nodes": 16, "depth": 4}).best_size(ctx)
        rates = {
            (n, d): table.expected_tokens(n, d) / (costs[n + 1] + d * other)
            for n in (1, 2, 4, 8, 16)
            for d in (1, 2, 3, 4)
        }
        assert rates[nodes, depth] == max(rates.values()) > 0
