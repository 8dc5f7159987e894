"""The walker itself: every path once, with its probability."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from decodescope.engine.decoding.values.chance import remainders
from decodescope.testing.chances import lattice_chance, outcomes

P = torch.tensor([0.5, 0.0, 0.3, 0.2], dtype=torch.float64)


def test_paths_have_the_probabilities_of_their_outcomes():
    def coin_then_token(chance):
        ok, _ = chance.accept(1.0, 4.0, 0)
        return ok, chance.draw(P, 0).token if ok else None

    found = {outcome: weight for weight, outcome in outcomes(coin_then_token)}
    assert found == pytest.approx({(True, 0): 0.125, (True, 2): 0.075, (True, 3): 0.05, (False, None): 0.75})


def test_draws_without_replacement_cover_the_ordered_pairs():
    found = outcomes(
        lambda chance: tuple(drawn.token for drawn in chance.draw_distinct(remainders(P[None])[0], 2, 0))
    )
    assert {pair: weight for weight, pair in found}[0, 3] == pytest.approx(0.5 * 0.2 / 0.5)
    assert len(found) == 6 and sum(weight for weight, _ in found) == pytest.approx(1, abs=1e-15)


def test_orders_are_equally_likely():
    found = outcomes(lambda chance: tuple(chance.shuffle(3, 0)))
    assert len({order for _, order in found}) == 6
    assert all(weight == pytest.approx(1 / 6) for weight, _ in found)


def test_certain_outcomes_are_no_forks():
    assert outcomes(lambda chance: (chance.accept(2.0, 1.0, 0)[0], chance.accept(0.0, 1.0, 0)[0])) == [
        (1.0, (True, False))
    ]


def test_lattice_goes_through_the_shipped_draws():
    points = [(i + 0.5) / 10 for i in range(10)]
    found = outcomes(
        lambda chance: (chance.accept(3.0, 5.0, 0)[0], chance.draw(P, 0).token), lattice_chance(points)
    )
    law: Counter = Counter()
    for weight, outcome in found:
        law[outcome] += weight
    assert len(found) == 100
    assert law[True, 2] == pytest.approx(0.6 * 0.3) and law[False, 3] == pytest.approx(0.4 * 0.2)
