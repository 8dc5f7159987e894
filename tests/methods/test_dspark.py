"""DSpark: with rank 0 it is DFlash; a bias by the token before each place, and a confidence that ends a draft."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toys
from drafting import drafts, feature_of
from methods.test_draft_heads import LAWS, V5, alone, method

from decodescope.engine.model.heads.drafting.dspark import BlockChain, DSparkNet
from decodescope.engine.session.replay.exact_distribution import exact_distribution
from decodescope.engine.trace import check


def net() -> DSparkNet:
    return toys.pair()[0].decoder.heads["dspark"]


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
def test_with_rank_0_it_drafts_what_dflash_does_to_the_bit(
    sampler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = toys.pair()[0].decoder.heads
    due = [(text, draft) for text, draft, _ in drafts("dflash", {}, 5, sampler)]
    bare = DSparkNet.from_tensors(heads["dflash"].shape, heads["dflash"].tensors())
    monkeypatch.setitem(heads, "dspark", bare)
    made = [(text, draft) for text, draft, _ in drafts("dspark", {}, 5, sampler)]
    for (a, x), (b, y) in zip(made, due, strict=True):
        assert a == b and (x.tokens, x.u, x.notes) == (y.tokens, y.u, y.notes)
        assert x.q is None or torch.equal(x.q, y.q)
    monkeypatch.setitem(heads, "dspark", net_with(bare, rank=5))
    other = [draft.tokens for _, draft, _ in drafts("dspark", {}, 5, sampler)]
    assert other != [draft.tokens for _, draft in due], "a bias changes drafts"


def net_with(bare: DSparkNet, **sizes: int) -> DSparkNet:
    """The same block with random further heads."""
    whole = toys.heads("dspark", **{**bare.shape, **sizes}).copy_to(dtype=torch.float64)
    whole.load_state_dict(bare.state_dict(), strict=False)
    return whole


def outputs_of(text: list[int]) -> torch.Tensor:
    """The outputs [K, d] of the block behind text, whose last token is the root."""
    decoder, store = toys.pair()[0].decoder, net().store()
    with torch.inference_mode():
        net().add_text(net().enter(feature_of(text[:-1], (0, 1, 2))), store)
        return net().read_block(
            net().fill_block(decoder.embed[text[-1]], net().mask_vector(decoder.embed)), store
        )


def test_each_place_is_biased_by_the_token_before_it_alone() -> None:
    """Other tokens further back leave a place as it is; the one before it, and that one only, moves it."""
    outputs, decoder = outputs_of(toys.PROMPT), toys.pair()[0].decoder

    def third(*before: int) -> torch.Tensor:
        chain = BlockChain(net(), outputs, before[0], decoder)
        return [chain.next_logits(token) for token in before][-1]

    with torch.inference_mode():
        assert torch.equal(third(3, 4, 5), third(6, 2, 5)) and not torch.allclose(
            third(3, 4, 5), third(3, 4, 6)
        )
        logits = net().logits(net().with_bias(outputs, torch.tensor([3, 4, 5])), decoder)
        assert torch.allclose(logits[2], third(3, 4, 5), atol=1e-12), "training sees what drafting sees"


@pytest.mark.parametrize("anchor", [0, 1])
@pytest.mark.parametrize("markov", [0, 1, 2])
def test_training_sees_the_chain_that_drafting_makes(markov: int, anchor: int) -> None:
    shape = toys.SHAPES["dspark"] | dict(markov=markov, anchor=anchor)
    layer: Any = toys.heads("dspark", 32, **shape).copy_to(dtype=torch.float64)
    decoder, outputs, tokens = toys.pair()[0].decoder, torch.randn(3, 32, dtype=torch.float64), [3, 7, 1]
    told = tokens if anchor else [3, 3, 7]
    with torch.no_grad():
        whole = layer.guessing(layer.with_bias(outputs, torch.tensor(told)))
        chain = BlockChain(layer, outputs, 3, decoder)
        rows = torch.stack([chain.next_logits(token) for token in tokens[: layer.guesses]])
        assert torch.allclose(layer.logits(whole, decoder), rows, atol=1e-12)
        words = decoder.unembed(torch.eye(32, dtype=torch.float64)).T[layer.ids]
        assert torch.allclose(layer.choices(whole, words), rows[:, layer.ids], atol=1e-9)


@pytest.mark.parametrize("sampler, length", LAWS)
def test_the_law_is_the_targets_by_counting_every_outcome(sampler: str, length: int) -> None:
    """Also where the confidence ends drafts early."""
    made = method("dspark", sampler, max_draft_tokens=2, min_confidence=0.5)
    assert exact_distribution(V5, made, [1, 2, 1, 3], length) == pytest.approx(
        alone(sampler, length), abs=1e-12
    )


@pytest.mark.parametrize("threshold", [0.0, 0.4, 0.6, 1.0])
def test_a_draft_ends_before_the_first_place_below_the_threshold(threshold: float) -> None:
    lengths = set[int]()
    for sampler in ("greedy", "temperature"):
        for text, draft, _ in drafts("dspark", dict(min_confidence=threshold), 4, sampler):
            outputs, cut = outputs_of(text), draft.notes.get("withheld")
            before = torch.tensor([text[-1], *draft.tokens])
            due = net().acceptance(outputs[: len(before)], before[: len(outputs)]).sigmoid().tolist()
            assert draft.notes["confidence"] == pytest.approx(due[: len(draft)], abs=1e-4)
            assert min(draft.notes["confidence"], default=1) >= threshold - 1e-4
            assert cut == (pytest.approx(due[len(draft)], abs=1e-4) if len(draft) < 3 else None)
            assert cut is None or cut < threshold + 1e-4
            lengths.add(len(draft))
    assert lengths == {0.0: {3}, 1.0: {0}}.get(threshold, lengths)


def test_the_trace_records_the_confidence_and_checks() -> None:
    trace = toys.decode(toys.method(drafter=("dspark", dict(min_confidence=0.4)), sampler="temperature")).sink
    steps = [step for step in trace.steps if step.draft is not None and step.draft.tokens]
    assert check(trace).ok and len(steps) > 5
    assert all(len(step.draft.notes["confidence"]) == len(step.draft.tokens) for step in steps)
