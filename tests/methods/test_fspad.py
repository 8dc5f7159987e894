"""FSPAD: with gates of 1 it is EAGLE bit for bit; gates use what a feature cannot; each loss reaches only its own weights."""

from __future__ import annotations

import pytest
import torch
import toys
from cyclic import D, V, cyclic
from drafting import drafts, feature_of, path_of, read_alone

from decodescope.engine.model.heads.drafting.fspad import FspadLayer
from decodescope.engine.training import guesses
from decodescope.training import heads as training

LATE = ("factor.weight", "shift.weight", "words_only.weight")
TREE = dict(nodes=12, depth=4, width=3)


def like_eagle(late: float = 0.0) -> FspadLayer:
    """The toy's layer with its EAGLE's weights inside, and `late` times its own weights in the parts that start at zero."""
    heads = toys.pair()[0].decoder.heads
    tensors = {name: x * late if name in LATE else x for name, x in heads["fspad"].tensors().items()}
    tensors |= {f"layer.{name}": x for name, x in heads["eagle"].tensors().items()}
    return FspadLayer.from_tensors(heads["fspad"].shape, tensors)


def test_with_gates_of_one_it_drafts_what_eagle_2_does_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = toys.pair()[0].decoder
    due = [(text, draft) for text, draft, _ in drafts("eagle2", TREE, 6, "temperature")]
    for late, head in [(late, like_eagle(late)) for late in (0.0, 1.0)]:
        monkeypatch.setitem(decoder.heads, "fspad", head)
        rounds = [(text, draft) for text, draft, _ in drafts("fspad", TREE, 6, "temperature")]
        same = [
            a == b and (x.tokens, x.parents) == (y.tokens, y.parents)
            for (a, x), (b, y) in zip(rounds, due, strict=True)
        ]
        assert all(same) if late == 0 else not all(same), "with gates of its own it drafts something else"
        for (_, draft), (_, theirs) in zip(rounds, due, strict=True):
            assert len(draft.notes["gate"]) == len(draft) + 1
            if late == 0:
                assert {x: draft.notes[x] for x in theirs.notes} == theirs.notes and set(
                    draft.notes["gate"]
                ) == {1.0}
    text = due[-1][0]
    with torch.inference_mode():
        features, embedded = feature_of(text[:-1])[None], decoder.embed[torch.tensor(text[1:])][None]
        assert torch.equal(like_eagle()(features, embedded), decoder.heads["eagle"](features, embedded))
        assert torch.equal(like_eagle().unembedding_input(features), features)


def test_a_fresh_net_is_eagle() -> None:
    torch.manual_seed(0)
    net = FspadLayer(D, 2, 1, 16, 32, 8)
    f, e = torch.randn(2, 5, D), torch.randn(2, 5, D)
    assert torch.equal(net.gate(e), torch.ones_like(e)) and torch.equal(net(f, e), net.layer(f, e))


def test_the_tree_is_what_unrolling_every_path_alone_gives() -> None:
    for text, draft, drafter in drafts("fspad", TREE, 4):
        assert max(draft.depth) > 2
        for node, parent in enumerate(draft.parents):
            logits, _ = read_alone("fspad", text, path_of(draft, parent))
            assert draft.tokens[node] == int(logits.argsort(descending=True)[draft.notes["ranks"][node]])
            above = draft.notes["scores"][parent] if parent >= 0 else 0.0
            due = above + float(logits.log_softmax(-1)[draft.tokens[node]])
            assert draft.notes["scores"][node] == pytest.approx(due, abs=2e-4)
        layer, decoder = drafter._walk.layer, toys.pair()[0].decoder
        for token, gate in zip([text[-1], *draft.tokens], draft.notes["gate"], strict=True):
            e = decoder.embed[token] / (decoder.embed[token].square().mean() + 1e-5).sqrt()
            factors = 2 / (
                1 + (-(e @ layer.tensors()["came.weight"].T @ layer.tensors()["factor.weight"].T)).exp()
            )
            assert gate == pytest.approx(float(factors.mean()), abs=1e-3)
            assert 0 < float(factors.min()) < 1 < float(factors.max())


def test_each_loss_reaches_its_own_weights() -> None:
    """The feature-distance loss moves the gates and the layer, not the map to words; the token loss moves that map."""
    head = toys.heads("fspad", D, n_heads=2, n_kv_heads=1, head_dim=16).requires_grad_(True)
    r = training.read_states(cyclic(), torch.randint(V, (3, 9), generator=torch.Generator().manual_seed(0)))
    ((s, x),) = guesses.head_guesses(head, r)
    torch.nn.functional.smooth_l1_loss(x, s.align_target(r.feature)).backward(retain_graph=True)
    assert head.apart.weight.grad is None and head.words_only.weight.grad is None
    assert (
        min(
            float(w.grad.abs().sum()) for w in (head.factor.weight, head.shift.weight, head.layer.fuse.weight)
        )
        > 0
    )
    law = cyclic().unembed(s.align_target(r.feature)).softmax(-1)
    torch.nn.functional.cross_entropy(
        guesses.head_logits(cyclic(), head, x).flatten(0, 1), law.flatten(0, 1)
    ).backward()
    assert (
        float(head.words_only.weight.grad.abs().sum()) > 0 and float(head.apart.weight.grad.abs().sum()) > 0
    )
