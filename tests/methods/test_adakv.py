"""Ada-KV: the heads of a layer share a budget, exactly, and keep entries of at least the worth that an even split keeps."""

from __future__ import annotations

import pytest
import torch
import toys
from voted import best, held, maps, sharp, votes

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.decoder import Decoder

KNOBS = dict(prompt_budget=8, window=4)


def lane(decoder: Decoder, name: str = "adakv", **knobs) -> Lane:
    return Lane("target", decoder, build("policy", name, {**KNOBS, **knobs}))


@pytest.mark.parametrize("floor", [0.0, 0.2, 0.5, 0.85, 1.0])
def test_caps_come_to_the_budget_and_are_worth_more_than_an_even_split(floor: float) -> None:
    """Random heads, steep and flat ones, with two sequences at once."""
    policy, uneven = build("policy", "adakv", dict(min_head_share=floor)), 0
    for seed in range(40):
        g = torch.Generator().manual_seed(seed)
        heads, m = 1 + seed % 6, 9 + seed
        mean = 1 + seed % 9
        worth = torch.rand(2, heads, m, generator=g, dtype=torch.float64) ** (
            1 + 9 * torch.rand(2, heads, 1, generator=g)
        )
        top = worth.sort(dim=2, descending=True).values
        caps = policy.head_budgets(top, mean)
        assert (
            caps.sum(1).tolist() == [heads * mean] * 2
            and int(caps.min()) >= int(floor * mean)
            and int(caps.max()) <= m
        )
        kept = sum(float(top[b, h, : caps[b, h]].sum()) for b in range(2) for h in range(heads))
        assert kept >= float(top[:, :, :mean].sum()) - 1e-12
        uneven += bool((caps != mean).any())
    assert (uneven == 0) if floor == 1 else uneven > 10


def test_without_a_floor_a_layer_keeps_the_best_votes_of_all_its_heads() -> None:
    policy = build("policy", "adakv", dict(min_head_share=0.0))
    top = torch.tensor([[[9.0, 8, 7, 1], [6, 3, 2, 1]]])
    assert policy.head_budgets(top, 2).tolist() == [[3, 1]]
    policy.min_head_share = 0.5  # 3 * 0.5 + 1 = 2.5 and 1.5
    assert policy.head_budgets(top, 2).tolist() == [[3, 1]]
    assert policy.head_budgets(torch.ones(1, 3, 4), 2).tolist() == [[3, 2, 1]], (
        "of equal votes the lower head's count first"
    )


@torch.inference_mode()
def test_each_head_keeps_its_own_best_of_what_the_layer_gives_it() -> None:
    decoder, text, end = sharp(n_kv_heads=4), toys.prompts(1, 50)[0], list(range(46, 50))
    made = lane(decoder)
    made.read(text)
    sizes = set()
    for layer, full in enumerate(maps(decoder, text)):
        worth = votes(full, 4, 3, "max")
        caps = made.policy.head_budgets(torch.tensor(worth)[None].sort(dim=2, descending=True).values, 8)[
            0
        ].tolist()
        assert held(made)[layer] == [best(x, cap) + end for x, cap in zip(worth, caps, strict=True)]
        sizes |= set(caps)
    assert len(sizes) > 2 and all(sum(map(len, heads)) == 4 * 12 for heads in held(made))


@torch.inference_mode()
def test_with_a_floor_of_one_it_is_snapkv() -> None:
    for text in toys.prompts(3, 50, seed=1):
        both = [lane(sharp(), min_head_share=1.0), lane(sharp(), "snapkv", pool_radius=3, pool="max")]
        for one in both:
            one.read(text)
        assert held(both[0]) == held(both[1])
