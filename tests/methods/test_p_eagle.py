"""P-EAGLE: one pass of the head a draft, EAGLE-3's first guess, and guesses that know the distance but not each other."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import toys
from drafting import drafts, feature_of, path_of

from decodescope.engine import MethodError, Session
from decodescope.engine.model.heads.drafting.eagle3 import Eagle3Layer
from decodescope.engine.model.heads.drafting.p_eagle import PEagleLayer
from decodescope.engine.training.guesses import LEVELS
from decodescope.training import heads as training
from decodescope.training.net import Net, NetShape


def net() -> PEagleLayer:
    return toys.pair()[0].decoder.heads["p_eagle"]


def without_masks() -> Eagle3Layer:
    """EAGLE-3's net with the same weights."""
    tensors = {name: x for name, x in net().tensors().items() if not name.startswith("mask_")}
    return Eagle3Layer.from_tensors({k: x for k, x in net().shape.items() if k != "mask_row"}, tensors)


@torch.inference_mode()
def guesses_alone(text: list[int], k: int) -> torch.Tensor:
    """Logits [k, V] after a text, slot by slot through EAGLE-3's net alone: the pairs, then masks as pairs of their own."""
    decoder, layer = toys.pair()[0].decoder, without_masks()
    store, made = layer.store(), []
    features = layer.enter(feature_of(text[:-1], layer.places(decoder.spec.n_layers)))
    mask = layer.enter(net().mask_hidden), net().mask_embed
    slots = [*zip(features, decoder.embed[text[1:]], strict=True), *[mask] * (k - 1)]
    for slot, (f, e) in enumerate(slots):
        made.append(layer(f[None, None], e[None, None], slot, store)[0, 0])
        store.commit([0])
    return layer.logits(torch.stack(made[-k:]), decoder)


@pytest.mark.parametrize("settings", [dict(depth=1), dict(depth=5), dict(depth=16), dict(depth=4, width=3)])
def test_a_draft_of_any_length_takes_one_pass(
    settings: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, forward, known = [], PEagleLayer.forward, 1
    monkeypatch.setattr(PEagleLayer, "forward", lambda *args: rows.append(args[1].shape[1]) or forward(*args))
    for text, draft, drafter in drafts("p_eagle", settings, 5):
        assert max(draft.depth) == settings["depth"]
        assert rows == [len(text) - known + settings["depth"] - 1], (
            "new pairs, and masks for the further levels"
        )
        store = drafter._walk.store
        assert (store.n, store.m) == (len(text) - 1, 0), "pairs stay in the cache, masks do not"
        known = len(text)
        rows.clear()


def test_every_guess_is_that_of_its_distance_alone() -> None:
    """A node is the guess of its rank in the one list of its level, whatever lies above it; with one level it is EAGLE-3's."""
    several = 0
    for text, draft, _ in drafts("p_eagle", dict(depth=4, width=3, nodes=14), 4):
        q = guesses_alone(text, 4).log_softmax(-1)
        lists = q.argsort(-1, descending=True)
        for node, level in enumerate(draft.depth):
            assert draft.tokens[node] == int(lists[level - 1, draft.notes["ranks"][node]])
            due = sum(float(q[i, token]) for i, token in enumerate(path_of(draft, node)))
            assert draft.notes["scores"][node] == pytest.approx(due, abs=2e-4)
            assert draft.notes["mask"][node] == level - 1
        several += len({x for x, level in zip(draft.parents, draft.depth, strict=True) if level == 2}) > 1
    assert several > 0, "the test needs a second level below several nodes"


def test_the_first_guess_is_eagle_3s_with_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(toys.pair()[0].decoder.heads, "eagle3", without_masks())

    def first(kind: str, depth: int) -> list[tuple[int, float]]:
        """Tokens and scores of the first level of the first draft."""
        ((_, draft, _),) = drafts(kind, dict(depth=depth, width=3, nodes=40), 1, "temperature")
        level = [x for x in range(len(draft)) if draft.depth[x] == 1]
        return [(draft.tokens[x], draft.notes["scores"][x]) for x in level]

    assert first("p_eagle", 1) == first("p_eagle", 3) == first("eagle3", 1) and len(first("eagle3", 1)) == 3


def reached(out: torch.Tensor, x: torch.Tensor) -> list[int]:
    """The slots of x [1, T, d] that influence out [d]."""
    (grad,) = torch.autograd.grad(out.square().sum(), x, retain_graph=True)
    return (grad[0].abs().sum(-1) > 0).nonzero()[:, 0].tolist()


def test_training_sees_the_groups_that_drafting_makes() -> None:
    """At every slot, without the tokens that a group must guess."""
    head = toys.heads("p_eagle", 32).copy_to(dtype=torch.float64).requires_grad_(True)
    g = torch.Generator().manual_seed(1)
    f, e = (torch.randn(1, 8, 32, generator=g, dtype=torch.float64, requires_grad=True) for _ in range(2))
    outputs = head.unroll_groups(f, e, [8, 7, 6])
    assert [x.shape[1] for x in outputs] == [8, 7, 6]
    for t in range(6):
        alone = head.group(f[0, : t + 1], e[0, : t + 1], head.mask_pair(), head.store(), 3)
        assert torch.allclose(alone, torch.stack([x[0, t] for x in outputs]), atol=1e-10)
        for out in outputs:
            assert reached(out[0, t], f) == reached(out[0, t], e) == list(range(t + 1))
    assert F.mse_loss(outputs[1][0], outputs[0][0, :7]) > 0.01, "masks say something of their own"
    grads = torch.autograd.grad(outputs[2][0, 0].square().sum(), [head.mask_hidden, head.mask_embed])
    assert all(x.abs().sum() > 0 for x in grads), "both of what a mask is are learnt"


def test_the_loss_weighs_a_level_by_the_share_of_places_that_the_original_reads() -> None:
    torch.manual_seed(0)
    model = Net(NetShape(4, 32, 2, 1, 16, 64, 13, 64)).requires_grad_(False)
    sizes = dict(kept=6, n_heads=2, n_kv_heads=1, head_dim=16, d_ff=16, rank=0)
    head = training.new_head("p_eagle", model, **sizes).requires_grad_(False)
    head.set_draft_vocabulary([0, 3, 5, 7, 8, 12])
    r, due = training.read_states(model, torch.randint(0, 13, (2, 10))), 0.0
    made = head.unroll_groups(head.enter(r.fused[:, :8]), r.embedded[:, 1:9], [8, 7, 6, 5, 4])
    assert len(made) == LEVELS["p_eagle"] and torch.equal(head.last, model.final_norm)
    for k, x in enumerate(
        made
    ):  # the group behind slot t guesses token t + 2 + k, whose distribution is at t + 1 + k
        p = model.unembed(r.feature[:, 1 + k : 9])
        q = F.linear(
            F.rms_norm(x, (32,), head.last, 1e-5), model.model.embed_tokens.weight[head.ids]
        ).log_softmax(-1)
        known = torch.isin(p.argmax(-1), head.ids)
        due += 0.7**k * float((-(p[..., head.ids].softmax(-1) * q).sum(-1) * known).mean())
    assert float(training.loss_of(model, head, r)) == pytest.approx(due, rel=1e-5)


def test_a_mask_may_be_a_row_of_the_embedding() -> None:
    decoder = toys.pair()[0].decoder
    tensors = {name: x for name, x in net().tensors().items() if name != "mask_embed"}
    layer = PEagleLayer.from_tensors(net().shape | {"mask_row": 10}, tensors)
    assert torch.equal(layer.mask_pair(layer.embedding(decoder))[1], decoder.embed[9])


def test_a_depth_rule_that_may_leave_early_is_refused() -> None:
    made = toys.method(drafter="p_eagle", adaptive_depth="confidence_exit")
    with pytest.raises(
        MethodError, match=r"^p_eagle reads states of all depths, confidence_exit .*all_layers\.$"
    ):
        Session(toys.pair()[0], made, toys.PROMPT)
