"""SlotPlan: the number of candidates, and of prompt tokens at each of them, when both share the rows of one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .trees import Template, monotone_rates, shaped_tree

ROUNDS = 50  # limit of policy iteration; a handful is enough
RESTART = 1e-9  # probability that a step without guesses follows; it makes the Markov chain irreducible


@dataclass(frozen=True)
class SlotTree:
    """The tree of one state, and its prompt tokens.

    slots: per place, the root first, its prompt tokens;  ends: per place, the probability that the accepted path ends there
    """

    template: Template
    slots: tuple[int, ...]
    ends: tuple[float, ...]


@dataclass(frozen=True)
class SlotPlan:
    """The trees of all states, and their long-run rates.

    trees: by state, the number of levels with guesses;  stationary: share of the steps in each state;  tokens: long-run tokens
    per step, including the target's own
    """

    trees: tuple[SlotTree, ...]
    stationary: tuple[float, ...]
    tokens: float


@lru_cache(64)
def slot_plan(rates: tuple[tuple[float, ...], ...], rows: int, ensemble: int = 1) -> SlotPlan:
    """The plan with the most tokens per step with at most `rows` rows per pass.

    The rows are the root, candidates, and `ensemble` rows for each prompt token.

    The guess of rank r at level d is right with probability rates[d][r]. In state s the candidates are the tree that
    `shaped_tree` makes of the first s levels. If the accepted path ends at a place with k prompt tokens, the next state is k.
    So the states are a Markov chain, and the choice of a tree per state is a decision problem with few states. Policy iteration
    finds the best tokens per step (Howard 1960). Each state compares every number of candidates with the remaining prompt
    tokens, which are distributed exactly (`distribute_slots`).
    """
    sizes = [
        [_tree_with_ends(rates[:s], count) for count in range(rows if s else 1)]
        for s in range(len(rates) + 1)
    ]
    plan, worth = evaluate_trees(
        tuple(_best_slot_tree(some, np.arange(len(rates) + 1.0), rows, ensemble) for some in sizes)
    )
    for _ in range(ROUNDS):
        trees = tuple(
            _best_slot_tree(some, worth, rows, ensemble, old)
            for some, old in zip(sizes, plan.trees, strict=True)
        )
        if trees == plan.trees:
            break
        plan, worth = evaluate_trees(trees)
    return plan


def evaluate_trees(trees: tuple[SlotTree, ...]) -> tuple[SlotPlan, np.ndarray]:
    """The plan of these trees, by state, and the value of each state relative to state 0, in tokens."""
    n = len(trees)
    chain = np.array(
        [[sum(e for e, k in zip(x.ends, x.slots, strict=True) if k == s) for s in range(n)] for x in trees]
    )
    chain = (1 - RESTART) * chain + RESTART * (np.arange(n) == 0)
    tokens = np.array([x.template.expected for x in trees])
    # gain + worth[s] - sum over k of chain[s, k] worth[k] = tokens[s], with worth[0] = 0
    left = np.eye(n) - chain
    left[:, 0] = 1.0
    solved = np.linalg.solve(left, tokens)
    balance = np.vstack([(np.eye(n) - chain).T[1:], np.ones(n)])
    shares = np.linalg.solve(balance, np.arange(n) == n - 1).clip(0)
    worth = np.concatenate([[0.0], solved[1:]])
    return SlotPlan(trees, tuple((shares / shares.sum()).tolist()), float(solved[0])), worth


def distribute_slots(ends: Sequence[float], worth: np.ndarray, budget: int) -> tuple[float, tuple[int, ...]]:
    """Distribute at most `budget` prompt tokens over the places so that the sum of ends[v] worth[slots[v]] is largest.

    Returns that sum, and the number at each place. A dynamic programme over places and budgets: exact for any worth.
    """
    most = len(worth) - 1
    # [k, b] -> b - k, behind `most` impossible ones
    spent = most - np.arange(most + 1)[:, None] + np.arange(budget + 1)
    best, picks = np.zeros(budget + 1), []
    for end in ends:
        options = np.concatenate([np.full(most, -np.inf), best])[spent] + end * worth[:, None]  # [k, b]
        picks.append(options.argmax(0))
        best = options.max(0)
    b, slots = budget, []
    for pick in reversed(picks):
        slots.append(int(pick[b]))
        b -= slots[-1]
    return float(best[budget]), tuple(reversed(slots))


def _tree_with_ends(rates: tuple[tuple[float, ...], ...], nodes: int) -> tuple[Template, tuple[float, ...]]:
    """The best tree of `nodes` nodes (or of all possible ones), and the probability that the path ends at each place."""
    template = shaped_tree(rates, nodes) if nodes else Template((), (), 1.0)
    sure = monotone_rates(rates)
    value = [1.0]
    depth = [0]
    ends = [1.0]
    for parent, rank in zip(template.parents, template.ranks, strict=True):
        depth.append(depth[parent + 1] + 1)
        value.append(value[parent + 1] * sure[depth[parent + 1]][rank])
        ends.append(value[-1])
        ends[parent + 1] -= value[-1]
    whole = sum(max(x, 0.0) for x in ends)
    return template, tuple(max(x, 0.0) / whole for x in ends)


def _best_slot_tree(
    sizes: Sequence[tuple[Template, tuple[float, ...]]],
    worth: np.ndarray,
    rows: int,
    ensemble: int,
    old: SlotTree | None = None,
) -> SlotTree:
    """Over all sizes, the tree with the most tokens now and later; of equal ones `old`, then the smallest."""
    best, most = old, -np.inf
    if old is not None:
        later = sum(e * worth[k] for e, k in zip(old.ends, old.slots, strict=True))
        most = old.template.expected + later
    for template, ends in sizes:
        later, slots = distribute_slots(ends, worth, max(0, rows - 1 - len(template)) // ensemble)
        if template.expected + later > most + 1e-12:
            best, most = SlotTree(template, slots, ends), template.expected + later
    assert best is not None
    return best
