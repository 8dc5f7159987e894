"""EvoPress: the budget stays, the best never gets worse, and on eight layers it is the best of all 784 plans in most runs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
import torch

from decodescope.engine.core.params import ParamError
from decodescope.engine.cost.cost import PassShape, pass_ops
from decodescope.engine.decoding.bases.weights import Calibration
from decodescope.engine.methods.weights.cut_layers import CutLayers
from decodescope.engine.methods.weights.evopress import EvoPress
from decodescope.engine.methods.weights.shared.evolution import Judge, Plan, every
from decodescope.engine.methods.weights.shared.texts import divergence, logits, texts
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import KVCache
from tests import toys

SPEC = replace(toys.SPEC, n_layers=8, n_heads=2, n_kv_heads=1, d_ff=32, heads=())
TEXT = Calibration(lambda: torch.randint(SPEC.vocab, (2048,), generator=torch.Generator().manual_seed(3)))
LAYERS = range(8)


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return toys.decoder(SPEC, seed=1)


@pytest.fixture(scope="module")
def table(decoder: Decoder) -> dict[Plan, float]:
    """How far each of the 784 plans of 2 attention and 2 feed-forward blocks is from the whole model, on a few tokens."""
    rows = texts(TEXT, 24)
    dense = logits(decoder, rows)
    with torch.inference_mode():
        return {
            plan: divergence(dense, logits(decoder, rows, plan.skip))
            for plan in every(LAYERS, LAYERS, (2, 2))
        }


def asking(table: dict[Plan, float], asked: set[Plan]) -> Judge:
    """What answers out of the table, and enters what it was asked."""

    def judged(plan: Plan) -> float:
        asked.add(plan)
        return table[plan]

    return lambda stage: judged


def test_the_best_of_all_plans_is_met_in_most_seeds(table: dict[Plan, float]) -> None:
    assert len(table) == 784
    best, search, met = (
        min(table, key=table.__getitem__),
        EvoPress(attn=2, ffn=2, staged=False).search(SPEC),
        0,
    )
    for seed in range(20):
        asked: set[Plan] = set()
        history = search.run(asking(table, asked), Random(seed))
        assert all(len(plan.attn) == len(plan.ffn) == 2 for plan in asked)
        assert all(b.fitness <= a.fitness for a, b in pairwise(history)), (
            "one text for all: the best never gets worse"
        )
        assert len(asked) < 392, "half of them"
        met += history[-1].best == best
    assert met > 15


def test_errors_of_blocks_do_not_add_up(decoder: Decoder, table: dict[Plan, float]) -> None:
    """The plan with the smallest sum of its blocks' own errors is not the best one."""
    rows = texts(TEXT, 24)
    dense = logits(decoder, rows)
    alone = [
        [divergence(dense, logits(decoder, rows, plan.skip)) for plan in every(LAYERS, LAYERS, n)]
        for n in ((1, 0), (0, 1))
    ]
    total = {plan: sum(alone[0][i] for i in plan.attn) + sum(alone[1][i] for i in plan.ffn) for plan in table}
    assert table[min(total, key=total.__getitem__)] > min(table.values())


def test_no_block_is_no_error_and_too_many_are_refused(decoder: Decoder) -> None:
    history = EvoPress(attn=0, ffn=0, generations=1, first=64, last=64).history(decoder, TEXT)
    assert history[-1].fitness == 0 and history[-1].best == Plan((), ())
    with pytest.raises(ParamError, match=r"evopress.ffn = 9: toy has 8 such blocks"):
        EvoPress(ffn=9).search(SPEC)


def test_what_it_finds_is_cut_out_of_weights_and_cache(decoder: Decoder) -> None:
    part = EvoPress(attn=1, ffn=1, whole=True, offspring=3, generations=2, first=64, last=64)
    plan = part.history(decoder, TEXT)[-1].best
    assert plan.attn == plan.ffn and len(plan.attn) == 1
    cut = part.made(decoder, TEXT)
    assert set(cut.spec.absent) == set(plan.words.split(","))
    by_list = CutLayers(skip=(f"l{plan.attn[0]}",)).made(decoder, TEXT)
    rows = texts(TEXT, 24)
    assert torch.equal(logits(cut, rows), logits(by_list, rows))
    torch.testing.assert_close(logits(cut, rows), logits(decoder, rows, plan.skip), atol=1e-5, rtol=1e-5)
    cache = KVCache(cut.spec)
    cut.forward(Feed.causal(toys.PROMPT, 0), cache)
    assert [store.kv.numel() > 0 for store in cache.layers] == [i != plan.attn[0] for i in LAYERS]
    assert not [op for op in pass_ops(cut.spec, PassShape(1, 9)) if op.layer == plan.attn[0]]


def test_a_word_that_names_no_block_is_refused(decoder: Decoder) -> None:
    with pytest.raises(ParamError, match=r"cut_layers.skip names 'a8': write a0 to a7"):
        CutLayers(skip=("a8",)).made(decoder, TEXT)
