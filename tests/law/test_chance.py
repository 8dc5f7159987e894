"""Chance: the numbers, the draws made from them, and what two methods with one seed share."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from law.cases import worlds

from decodescope.engine.decoding.values.chance import Chance, invert_cdf, remainders, remaining_distributions
from decodescope.engine.methods.drafters.draft_model.draft_model import DraftModel
from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.session.method import Method
from decodescope.engine.session.session import Session
from decodescope.testing.tables import PROMPT, table_model

LAST = 1 - 2.0**-53  # the largest uniform
PURPOSES = ("token", "accept", "draft", "shuffle", "init")


def test_uniforms_lie_in_the_half_open_unit_interval_and_are_uniform():
    us = [
        Chance(seed).uniform(position, purpose)
        for seed in range(20)
        for position in range(200)
        for purpose in PURPOSES
    ]
    assert all(0 <= u < 1 for u in us)
    cells = [0] * 100
    for u in us:
        cells[int(u * 100)] += 1
    expected = len(us) / 100
    x2 = sum((n - expected) ** 2 / expected for n in cells)
    assert 45 < x2 < 180, "99 degrees of freedom; one in a million lies above 180"


def test_neighbouring_keys_have_unrelated_numbers():
    us = [Chance(7).uniform(position, "token") for position in range(4000)]
    mean = sum(us) / len(us)
    lag = sum((a - mean) * (b - mean) for a, b in pairwise(us)) / sum((a - mean) ** 2 for a in us)
    assert abs(lag) < 5 / math.sqrt(len(us))


def test_a_key_gives_its_number_again_and_every_key_another():
    keys = [
        (seed, position, purpose)
        for seed in (0, 1, -1, 1 << 63)
        for position in (0, 1, 999)
        for purpose in PURPOSES
    ]
    numbers = []
    for seed, position, purpose in keys:
        chance, again = Chance(seed), Chance(seed)
        uses = [chance.uniform(position, purpose) for _ in range(3)]
        assert uses == [again.uniform(position, purpose) for _ in range(3)]
        numbers += uses
    assert len(set(numbers)) == len(numbers)


def test_order_of_use_elsewhere_changes_nothing():
    a, b = Chance(3), Chance(3)
    for purpose in PURPOSES:
        a.uniform(4, purpose)
    assert a.uniform(5, "token") == b.uniform(5, "token")


def test_a_copy_has_the_same_future_and_its_own():
    chance = Chance(11)
    chance.uniform(2, "draft")
    twin = chance.copy()
    assert [chance.uniform(2, "draft") for _ in range(4)] == [twin.uniform(2, "draft") for _ in range(4)]
    chance.uniform(2, "draft")
    assert chance.uniform(2, "draft") != twin.uniform(2, "draft")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_invert_finds_the_interval_lowest_id_first(dtype):
    p = torch.tensor([0.25, 0.5, 0.0, 0.25], dtype=dtype)
    found = {u: invert_cdf(p, u) for u in (0.0, 0.2499, 0.25, 0.7499, 0.75, LAST)}
    assert [drawn.token for drawn in found.values()] == [0, 0, 1, 1, 3, 3]
    assert all(drawn.low <= u < drawn.high for u, drawn in found.items())


@pytest.mark.parametrize(
    "p", [[0, 1, 0], [0, 0.3, 0.7, 0], [0, 0, 1e-300, 0], [0.1] * 10, [0, 1 / 3, 0, 1 / 3, 1 / 3, 0]]
)
def test_no_uniform_draws_an_impossible_token(p):
    law = torch.tensor(p, dtype=torch.float64)
    edges = [0.0, 5e-324, 2.0**-53, LAST, *(c for c in (law.cumsum(0) / law.sum()).tolist() if c < 1)]
    for u in [*edges, *(i / 97 for i in range(97))]:
        assert law[invert_cdf(law, u).token] > 0


def test_a_test_of_probability_zero_fails_and_one_of_one_passes_at_every_uniform():
    for u in (0.0, 2.0**-53, 0.5, LAST):
        chance = Chance(0)
        chance.uniform = lambda position, purpose, u=u: u  # type: ignore[method-assign] # a scripted number
        assert not chance.accept(0.0, 0.3, 0)[0]
        assert chance.accept(0.3, 0.3, 0)[0]
        assert chance.accept(0.3, 0.0, 0)[0]


def test_draws_without_replacement_stop_where_the_law_ends():
    law = torch.tensor([0.0, 0.4, 0.0, 0.6], dtype=torch.float64)
    rest = remainders(law[None])[0]
    made = Chance(5).draw_distinct(rest, 4, 0)
    assert sorted(drawn.token for drawn in made) == [1, 3] and rest.taken == [drawn.token for drawn in made]
    q = remaining_distributions([(law, rest.taken[:i]) for i in range(2)])
    assert q[1, made[0].token] == 0 and float(q[1].sum()) == 1
    assert law.tolist() == [0.0, 0.4, 0.0, 0.6], "the law itself stays whole"


@pytest.mark.parametrize("heat", [1.0, 12.0])
def test_draws_without_replacement_are_those_from_what_is_summed_anew(heat: float) -> None:
    """If a few tokens have nearly all the probability, the remaining sums must not drown in rounding."""
    laws = (torch.randn(40, 50, generator=torch.Generator().manual_seed(1)).double() * heat).softmax(-1)
    least = 1.0
    for i, (law, rest) in enumerate(zip(laws, remainders(laws), strict=True)):
        plain = Chance(i)
        for drawn in Chance(i).draw_distinct(rest, 6, 0):
            assert drawn.token == invert_cdf(law, plain.uniform(0, "draft")).token
            law[drawn.token] = 0.0
            least = min(least, float(law.sum()))
    assert (least < 1e-6) == (heat > 1), "the test needs laws of which next to nothing is left"


def test_orders_are_even():
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(6000):
        order = tuple(Chance(seed).shuffle(3, 0))
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6 and all(abs(n - 1000) < 150 for n in counts.values())


def test_a_bonus_token_is_the_one_that_plain_decoding_draws_there():
    """Common random numbers: if nothing was refused, both methods draw the token at a position from the same uniform."""
    target, draft = worlds(4, "mixed")
    shared = 0
    for seed in range(40):
        fast = _session(seed, PROMPT, DraftModel(max_draft_tokens=2), target, draft)
        while True:
            fast.start()
            with torch.inference_mode():
                move = fast.method.strategy.step(fast)
            verdict = move.verdict
            if move.end is not None:
                break
            if verdict.origin != "bonus":
                continue
            prefix = fast.tokens[:-1]
            plain = _session(seed, prefix, None, target, draft)
            plain.step()
            assert plain.tokens[len(prefix)] == verdict.token == fast.tokens[-1]
            shared += 1
    assert shared > 40, "the test needs bonus tokens"


def _session(seed, prompt, drafter, target, draft):
    method = Method(sampler=Temperature(temperature=1.0), **({} if drafter is None else {"drafter": drafter}))
    others = {} if drafter is None else {"draft": table_model(draft, 4)}
    return Session(
        table_model(target, 4), method, prompt, models=others, max_new_tokens=8, seed=seed, stop_tokens=()
    )
