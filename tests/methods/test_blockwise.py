"""Blockwise parallel decoding: one chain of the heads' likeliest tokens, kept as far as the target agrees."""

from __future__ import annotations

import pytest
import torch
import toys
from drafting import drafts, feature_of

from decodescope.engine.model.heads.drafting.blockwise import BlockwiseHeads
from decodescope.engine.session.replay.exact_distribution import exact_distribution

V5 = toys.model(toys.decoder(toys.toy_spec(vocab=5), 3, torch.float64, sharp=2.0))


def test_chain_is_every_heads_likeliest_token() -> None:
    decoder = toys.pair()[0].decoder
    heads = decoder.heads["blockwise"]
    for text, draft, _ in drafts("blockwise", {}):
        with (
            torch.inference_mode()
        ):  # the state of the token before the root: the target has not read the root yet
            logits = decoder.unembed(heads(feature_of(text[:-1])[-1]))
        assert draft.tokens == logits.argmax(-1).tolist() and draft.is_chain and draft.kind == "onehot"
        assert draft.notes == {"sure": [round(float(row.max()), 4) for row in logits.softmax(-1)]}


def test_a_shorter_chain_leaves_the_last_heads_out() -> None:
    whole = [draft.tokens for _, draft, _ in drafts("blockwise", {}, steps=1)]
    short = [draft.tokens for _, draft, _ in drafts("blockwise", {"max_draft_tokens": 2}, steps=1)]
    assert [x[:2] for x in whole] == short and len(whole[0]) == 3


def test_heads_worked_by_hand() -> None:
    """d = 2, one hidden unit, two heads: hidden = relu(3 - 1 + 0.5) = 2.5, so the steps are 2.5 u + c."""
    head = BlockwiseHeads(2, heads=2, hidden=1)
    with torch.no_grad():
        head.shared.weight.copy_(torch.tensor([[1.0, -1.0]]))
        head.shared.bias.fill_(0.5)
        head.steps.weight.copy_(torch.tensor([[1.0], [0.0], [-2.0], [4.0]]))
        head.steps.bias.copy_(torch.tensor([0.0, 1.0, 0.0, 0.0]))
        assert torch.allclose(head(torch.tensor([3.0, 1.0])), torch.tensor([[5.5, 2.0], [-2.0, 11.0]]))
        assert torch.allclose(
            head(torch.tensor([[1.0, 3.0]]))[:, 0], torch.tensor([[1.0, 4.0], [1.0, 3.0]])
        ), "relu(-1.5) = 0"


def test_untrained_heads_say_what_the_target_says_of_the_next_token() -> None:
    h = torch.randn(5, 32)
    assert torch.equal(BlockwiseHeads(32, 3, 8)(h), h.expand(3, 5, 32))


def test_step_keeps_the_longest_prefix_that_the_target_says_and_one_token_more() -> None:
    """Section 3 of the paper, on the greedy text: the block is compared with what follows the root there."""
    session = toys.decode(toys.method(drafter="blockwise"), count=150)
    text = toys.PROMPT + toys.greedy_text(toys.pair()[0].decoder, toys.PROMPT, 150)
    at, kept = len(toys.PROMPT), 0
    for step in session.sink.steps:
        tokens = step.draft.tokens if step.draft else []
        agree = next(
            (i for i, (x, y) in enumerate(zip(tokens, text[at:], strict=False)) if x != y), len(tokens)
        )
        assert at + agree + 1 >= len(text) or (step.accepted, len(step.emitted)) == (agree, agree + 1)
        at, kept = at + len(step.emitted), kept + agree
    assert kept > 8, "the test needs blocks that were partly right"


def test_blockwise_drafts_nothing_before_the_target_has_read_anything() -> None:
    assert [len(draft) for _, draft, _ in drafts("blockwise", {}, 2, prompt=[4])] == [0, 3]


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("k", [2, 3])
def test_law_is_the_targets_by_counting_every_outcome(length: int, k: int) -> None:
    def method(**drafter) -> toys.Method:
        knobs = {"temperature": {"temperature": 1.0}, "top_k": {"k": k}}
        return toys.Method.from_names(
            {"sampler": ["temperature", "top_k"], **drafter},
            {**knobs, "drafter": {"max_draft_tokens": length}} if drafter else knobs,
        )

    found, due = (
        exact_distribution(V5, method(drafter="blockwise"), [1, 2, 1, 3], 3),
        exact_distribution(V5, method(), [1, 2, 1, 3], 3),
    )
    assert len(due) >= 8 and found == pytest.approx(due, abs=1e-12)
