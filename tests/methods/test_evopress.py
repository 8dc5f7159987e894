"""EvoPress: the budget stays, the best never gets worse, and on eight layers most runs find the best of all 784 plans."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
import torch

from decodescope.engine.core.params import ParamError
from decodescope.engine.cost.cost import PassShape, pass_ops
from decodescope.engine.decoding.bases.weights import CalibrationData
from decodescope.engine.methods.weights.cut_layers import CutLayers
from decodescope.engine.methods.weights.evopress import EvoPress
from decodescope.engine.methods.weights.shared.evolution import BlockPlan, Judge, all_plans
from decodescope.engine.methods.weights.shared.texts import calibration_texts, kl_divergence, text_logits
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import KVCache
from tests import toys

SPEC = replace(toys.SPEC, n_layers=8, n_heads=2, n_kv_heads=1, d_ff=32, heads=())
TEXT = CalibrationData(lambda: torch.randint(SPEC.vocab, (2048,), generator=torch.Generator().manual_seed(3)))
LAYERS = range(8)


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return toys.decoder(SPEC, seed=1)


@pytest.fixture(scope="module")
def table(decoder: Decoder) -> dict[BlockPlan, float]:
    """The distance from the whole model of each of the 784 plans of 2 attention and 2 feed-forward blocks, on a few tokens."""
    rows = calibration_texts(TEXT, 24)
    dense = text_logits(decoder, rows)
    with torch.inference_mode():
        return {
            plan: kl_divergence(dense, text_logits(decoder, rows, plan.skip))
            for plan in all_plans(LAYERS, LAYERS, (2, 2))
        }


def asking(table: dict[BlockPlan, float], asked: set[BlockPlan]) -> Judge:
    """A judge that answers from the table and collects the plans that it was asked about."""

    def judged(plan: BlockPlan) -> float:
        asked.add(plan)
        return table[plan]

    return lambda stage: judged


def test_the_best_of_all_plans_is_met_in_most_seeds(table: dict[BlockPlan, float]) -> None:
    assert len(table) == 784
    best, search, met = (
        min(table, key=table.__getitem__),
        EvoPress(attention_blocks=2, ffn_blocks=2, two_stages=False).build_search(SPEC),
        0,
    )
    for seed in range(20):
        asked: set[BlockPlan] = set()
        history = search.run(asking(table, asked), Random(seed))
        assert all(len(plan.attn) == len(plan.ffn) == 2 for plan in asked)
        assert all(b.fitness <= a.fitness for a, b in pairwise(history)), (
            "one text for all: the best never gets worse"
        )
        assert len(asked) < 392, "half of them"
        met += history[-1].best == best
    assert met > 15


def test_errors_of_blocks_do_not_add_up(decoder: Decoder, table: dict[BlockPlan, float]) -> None:
    """The plan with the smallest sum of its blocks' own errors is not the best one."""
    rows = calibration_texts(TEXT, 24)
    dense = text_logits(decoder, rows)
    alone = [
        [kl_divergence(dense, text_logits(decoder, rows, plan.skip)) for plan in all_plans(LAYERS, LAYERS, n)]
        for n in ((1, 0), (0, 1))
    ]
    total = {plan: sum(alone[0][i] for i in plan.attn) + sum(alone[1][i] for i in plan.ffn) for plan in table}
    assert table[min(total, key=total.__getitem__)] > min(table.values())


def test_no_block_is_no_error_and_too_many_are_refused(decoder: Decoder) -> None:
    history = EvoPress(
        attention_blocks=0, ffn_blocks=0, generations=1, first_stage_tokens=64, last_stage_tokens=64
    ).history(decoder, TEXT)
    assert history[-1].fitness == 0 and history[-1].best == BlockPlan((), ())
    with pytest.raises(ParamError, match=r"evopress.ffn_blocks = 9: toy has 8 such blocks"):
        EvoPress(ffn_blocks=9).build_search(SPEC)


def test_what_it_finds_is_cut_out_of_weights_and_cache(decoder: Decoder) -> None:
    part = EvoPress(
        attention_blocks=1,
        ffn_blocks=1,
        whole_layers=True,
        offspring=3,
        generations=2,
        first_stage_tokens=64,
        last_stage_tokens=64,
    )
    plan = part.history(decoder, TEXT)[-1].best
    assert plan.attn == plan.ffn and len(plan.attn) == 1
    cut = part.transform(decoder, TEXT)
    assert set(cut.spec.absent_blocks) == set(plan.words.split(","))
    by_list = CutLayers(skip=(f"l{plan.attn[0]}",)).transform(decoder, TEXT)
    rows = calibration_texts(TEXT, 24)
    assert torch.equal(text_logits(cut, rows), text_logits(by_list, rows))
    torch.testing.assert_close(
        text_logits(cut, rows), text_logits(decoder, rows, plan.skip), atol=1e-5, rtol=1e-5
    )
    cache = KVCache(cut.spec)
    cut.forward(Feed.causal_chain(toys.PROMPT, 0), cache)
    assert [store.kv.numel() > 0 for store in cache.layers] == [i != plan.attn[0] for i in LAYERS]
    assert not [op for op in pass_ops(cut.spec, PassShape(1, 9)) if op.layer == plan.attn[0]]


def test_a_word_that_names_no_block_is_refused(decoder: Decoder) -> None:
    with pytest.raises(ParamError, match=r"cut_layers.skip names 'a8': write a0 to a7"):
        CutLayers(skip=("a8",)).transform(decoder, TEXT)
