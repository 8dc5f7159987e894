"""PyramidKV: the budgets fall from layer to layer and average to the mean, and within a layer it is SnapKV."""

from __future__ import annotations

from itertools import pairwise, product

import torch
import toys
from voted import best, held, maps, sharp, votes

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.decoder import Decoder

KNOBS = dict(prompt_budget=8, window=4)


def lane(decoder: Decoder, name: str = "pyramidkv", **knobs: int) -> Lane:
    return Lane("target", decoder, build("policy", name, {**KNOBS, **knobs}))


def test_budgets_fall_along_a_line_and_come_to_the_mean() -> None:
    falls = 0
    for chosen, window, beta, layers, prompt in product(
        (1, 7, 48, 200), (1, 16), (1, 2, 20), (1, 2, 6, 31), (8, 60, 130, 900)
    ):
        policy = build("policy", "pyramidkv", dict(prompt_budget=chosen, window=window, beta=beta))
        plan = policy.plan(layers, prompt)
        steps = [a - b for a, b in pairwise(plan)]
        assert plan == sorted(plan, reverse=True) and (not steps or max(steps) - min(steps) <= 1)
        if prompt <= chosen + window or prompt < 2 * chosen:
            assert plan == [chosen + window] * layers
            continue
        assert abs(sum(plan) - layers * (chosen + window)) <= layers / 2 and min(plan) >= window
        assert plan[0] <= prompt and (beta > 1 or len(set(plan)) == 1)
        if layers > 1 and prompt - window >= 2 * chosen:
            assert plan[0] == 2 * chosen - chosen // beta + window
        falls += plan[0] > plan[-1]
    assert falls > 20, "the test needs plans that fall"


def test_a_plan_worked_out_by_hand() -> None:
    """The authors' default, 32 layers: a mean of 256, 256 // 20 = 12 in the last layer, 512 - 12 = 500 in the first."""
    policy = build("policy", "pyramidkv", dict(prompt_budget=256, window=64))
    assert [x - 64 for x in policy.plan(32, 4000)[:4]] == [500, 484, 469, 453] and policy.plan(32, 4000)[
        -1
    ] == 12 + 64
    assert policy.plan(32, 540)[0] == 540 and policy.plan(32, 540)[-1] == 36 + 64, "no more than there is"
    assert set(policy.plan(32, 500)) == {320}


@torch.inference_mode()
def test_each_layer_keeps_what_got_most_votes() -> None:
    decoder, text = sharp(n_layers=4), toys.prompts(1, 50)[0]
    made = lane(decoder)
    made.read(text)
    plan = made.policy.plan(4, 50)
    assert plan == [20, 15, 9, 4], "a fall from 16 to 0 before the window"
    end = list(range(46, 50))
    for layer, full in enumerate(maps(decoder, text)):
        assert held(made)[layer] == [best(x, plan[layer] - 4) + end for x in votes(full, 4, 2, "mean")]


@torch.inference_mode()
def test_level_it_is_snapkv() -> None:
    for text in toys.prompts(3, 50, seed=1):
        both = [lane(sharp(), beta=1), lane(sharp(), "snapkv")]
        for one in both:
            one.read(text)
        assert held(both[0]) == held(both[1])
