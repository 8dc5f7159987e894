"""DFlash: one pass fills a block that sees both ways, over keys of the text that are made once and from the target alone."""

from __future__ import annotations

import pytest
import torch
import toys
from drafting import drafts, feature_of
from methods.test_draft_heads import LAWS, V5, alone, method

from decodescope.engine import MethodError, Session
from decodescope.engine.methods.drafters.shared.block_drafter import BlockWalk
from decodescope.engine.model.heads.drafting.attention import LeadingStore
from decodescope.engine.model.heads.drafting.dflash import CAUSAL, DFlashNet, InjectedAttention
from decodescope.engine.session.replay.exact_distribution import exact_distribution
from decodescope.engine.trace import check

PLACES = (0, 1, 2)


def net() -> DFlashNet:
    return toys.pair()[0].decoder.heads["dflash"]


@torch.inference_mode()
def block_anew(layer: DFlashNet, text: list[int]) -> torch.Tensor:
    """The outputs [K, d] of the block behind text, whose last token is the root: everything in one pass, without a store."""
    decoder = toys.pair()[0].decoder
    block = layer.fill_block(decoder.embed[text[-1]], layer.mask_vector(decoder.embed))
    features = layer.enter(feature_of(text[:-1], PLACES))
    return layer(features[None], block[None, None], torch.tensor([len(text) - 1]))[0, 0]


# ---- the seam: keys of several layers, made from the target's states


def watched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, BlockWalk, torch.Tensor]]:
    """(root, walk, outputs) of every pass over a block from now on."""
    seen, whole = [], BlockWalk.read_block

    def read(self: BlockWalk, root: int) -> torch.Tensor:
        seen.append((root, self, whole(self, root)))
        return seen[-1][2]

    monkeypatch.setattr(BlockWalk, "read_block", read)
    return seen


@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("causal", CAUSAL)
def test_a_pass_over_the_store_is_a_pass_over_everything_anew(
    window: int, causal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in net().modules():
        if isinstance(part, InjectedAttention):
            monkeypatch.setattr(part, "window", window)
            monkeypatch.setattr(part, "causal", causal)
    seen = watched(monkeypatch)
    for text, draft, _ in drafts("dflash", {}, 4):
        due = block_anew(net(), text)
        assert torch.allclose(seen[-1][2], due, atol=1e-12, rtol=0)
        logits = net().logits(due[1:], toys.pair()[0].decoder)
        assert draft.tokens == logits.argmax(-1).tolist() and len(draft) == 3


def test_keys_of_accepted_text_are_made_once_and_rejected_places_leave_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the store holds after each draft is what a new one made of the text alone would hold, to the bit of its slots."""
    made = list[int]()
    whole = DFlashNet.add_text
    monkeypatch.setattr(
        DFlashNet, "add_text", lambda self, f, store: made.append(len(f)) or whole(self, f, store)
    )
    seen, rejected, kept = watched(monkeypatch), 0, []
    session = Session(toys.pair()[0], toys.method(drafter="dflash"), toys.PROMPT, max_new_tokens=40)
    session.start()
    while not session.is_done:
        before = len(session.tokens)
        session.step()
        walk = seen[-1][1]
        stores = [walk.store, *walk.store.further]
        assert isinstance(walk.store, LeadingStore) and len(stores) == 2
        assert all((store.n, store.m) == (before - 1, 0) for store in stores)
        assert sum(made) == before - 1, "each accepted token once, and no other"
        old = [(store.k.clone(), store.v.clone()) for store in stores]
        for now, then in zip(old, kept, strict=False):
            assert all(torch.equal(x[:, :, : y.shape[2]], y) for x, y in zip(now, then, strict=True))
        kept, rejected = old, rejected + 3 - (len(session.tokens) - before - 1)
    fresh = net().store()
    with torch.inference_mode():
        whole(net(), net().enter(feature_of(session.tokens[: walk.store.n], PLACES)), fresh)
    for (k, v), store in zip(kept, [fresh, *fresh.further], strict=True):
        assert torch.allclose(k, store.k, atol=1e-12) and torch.allclose(v, store.v, atol=1e-12)
    assert rejected > 20, "the test needs rejections"


# ---- the property: one pass, both ways


def test_a_draft_takes_one_pass_of_the_net(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watched(monkeypatch)
    for steps, (text, draft, _) in enumerate(drafts("dflash", {}, 5), 1):
        assert len(seen) == steps and seen[-1][0] == text[-1]
        assert len(draft) == 3 and draft.notes["places"] == 4
    for length in (1, 2):
        for _, draft, _ in drafts("dflash", dict(max_draft_tokens=length), 3):
            assert len(draft) == length and draft.notes["places"] == 4, "the block is read whole"


@pytest.mark.parametrize("causal", CAUSAL[::2])
def test_places_of_a_block_attend_both_ways(causal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another input at the last mask changes the logits of the first place; in a causal net it does not."""
    for part in net().modules():
        if isinstance(part, InjectedAttention):
            monkeypatch.setattr(part, "causal", causal)
    decoder, store = toys.pair()[0].decoder, net().store()
    with torch.inference_mode():
        net().add_text(net().enter(feature_of(toys.PROMPT[:-1], PLACES)), store)
        block = net().fill_block(decoder.embed[4], net().mask_vector(decoder.embed))
        logits = []
        for last in (block[-1], block[-1] + 0.5):
            outputs = net().read_block(torch.cat([block[:-1], last[None]]), store)
            store.rollback()
            logits.append(net().logits(outputs, decoder)[:, net().ids])
    moved = (logits[0] - logits[1]).abs().amax(-1) > 1e-6
    assert moved.tolist() == ([True] * 4 if causal == "none" else [False, False, False, True])


@pytest.mark.parametrize("sampler, length", LAWS)
def test_the_law_is_the_targets_by_counting_every_outcome(sampler: str, length: int) -> None:
    made = exact_distribution(V5, method("dflash", sampler, max_draft_tokens=2), [1, 2, 1, 3], length)
    assert made == pytest.approx(alone(sampler, length), abs=1e-12)


def test_drawn_tokens_come_with_their_distributions() -> None:
    """Token i is recorded with q of place i alone, whatever was drawn before it; text and trace hold."""
    decoder = toys.pair()[0].decoder
    for text, draft, _ in drafts("dflash", {}, 4, "temperature"):
        logits = net().logits(block_anew(net(), text)[1:], decoder)
        assert draft.kind == "iid" and draft.q_row == [0, 1, 2] and draft.u is not None
        assert torch.allclose(draft.q, logits.softmax(-1), atol=1e-12)
        assert draft.notes["sure"] == pytest.approx(logits.softmax(-1).amax(-1).tolist(), abs=1e-4)
    trace = toys.decode(toys.method(drafter="dflash", sampler="temperature")).sink
    accepted = sum(step.accepted for step in trace.steps)
    assert check(trace).ok and 0 < accepted < sum(step.drafted for step in trace.steps)


def test_a_depth_rule_that_may_leave_early_is_refused() -> None:
    made = toys.method(drafter="dflash", adaptive_depth="confidence_exit")
    with pytest.raises(
        MethodError, match=r"^dflash reads states of all depths, .* choose adaptive_depth all_layers\.$"
    ):
        Session(toys.pair()[0], made, toys.PROMPT)


def test_a_prompt_of_one_token_is_drafted_for_without_any_keys() -> None:
    text, draft, _ = next(drafts("dflash", {}, 1, prompt=[4]))
    assert text == [4] and len(draft) == 3


# ---- training


def test_no_block_of_training_sees_its_own_answers_or_another_block() -> None:
    layer = toys.heads("dflash", 32).copy_to(dtype=torch.float64)
    g = torch.Generator().manual_seed(0)
    f = torch.randn(1, 6, 32, generator=g, dtype=torch.float64, requires_grad=True)
    blocks = torch.randn(1, 5, 4, 32, generator=g, dtype=torch.float64, requires_grad=True)
    outputs = layer(f, blocks, torch.arange(1, 6))
    for a in range(5):
        for k in range(4):
            grads = torch.autograd.grad(outputs[0, a, k].square().sum(), (f, blocks), retain_graph=True)
            text, places = (x[0].abs().sum(-1) > 0 for x in grads)
            assert text.tolist() == [t < a + 1 for t in range(6)], "the text before its anchor"
            assert places.any(-1).tolist() == [x == a for x in range(5)] and places[a].all()
