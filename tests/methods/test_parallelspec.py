"""ParallelSpec: k = 1 is EAGLE-2, k levels take one pass, and no training group sees the tokens that it must guess."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
import toys
from drafting import drafts, feature_of, path_of

from decodescope.engine.methods.drafters.shared.group_walk import GroupWalk
from decodescope.engine.model.heads.drafting.parallelspec import ParallelSpecLayer

ALL = dict(nodes=128, width=2)  # every node that was seen is kept, so no pass is omitted


def net() -> ParallelSpecLayer:
    return toys.pair()[0].decoder.heads["parallelspec"]


@torch.inference_mode()
def groups_alone(text: list[int], path: list[int], k: int) -> torch.Tensor:
    """Logits [V] after text and the drafted `path`: computed slot by slot, with the masks of each group dropped again."""
    decoder, layer, store = toys.pair()[0].decoder, net().layer, net().attention.store()
    embed = lambda token: decoder.embed[token][None, None]  # noqa: E731

    def group(first: torch.Tensor) -> list[torch.Tensor]:
        said = [first]
        for mask in net().masks[: k - 1]:
            said.append(layer.next_features(mask[None, None], store.n + len(said) - 1, store))
        store.rollback()
        return said

    for f, token in zip(feature_of(text[:-1])[:, None, None], text[1:], strict=True):
        last = layer(f, embed(token), store.n, store)
        store.commit([0])
    said = group(last)
    for begin in range(0, len(path) - len(path) % k, k):
        for f, token in zip(said, path[begin : begin + k], strict=True):
            last = layer(f, embed(token), store.n, store)
            store.commit([0])
        said = group(last)
    return decoder.unembed(said[len(path) % k][0, 0])


@pytest.mark.parametrize(("k", "depth"), [(2, 5), (3, 5), (4, 4)])
def test_every_node_is_what_its_path_alone_gives(k: int, depth: int) -> None:
    for text, draft, _ in drafts("parallelspec", dict(nodes=14, width=3, tokens_per_pass=k, depth=depth), 2):
        assert max(draft.depth) > k or k == depth
        assert draft.notes["pass"] == [(level - 1) // k for level in draft.depth]
        laws = {node: groups_alone(text, path_of(draft, node), k) for node in {*draft.parents}}
        for node, parent in enumerate(draft.parents):
            logits, above = laws[parent], draft.notes["scores"][parent] if parent >= 0 else 0.0
            assert draft.tokens[node] == int(logits.argsort(descending=True)[draft.notes["ranks"][node]])
            due = above + float(logits.log_softmax(-1)[draft.tokens[node]])
            assert draft.notes["scores"][node] == pytest.approx(due, abs=2e-4)


def test_within_a_group_guesses_hang_on_the_distance_and_across_groups_on_the_way() -> None:
    across = 0
    for _, draft, _ in drafts("parallelspec", dict(ALL, tokens_per_pass=2, depth=4), 3):
        below: dict[int, set[tuple[int, ...]]] = {
            1: set(),
            2: set(),
        }  # level of a node -> lists of its children
        for node in {*draft.parents} - {-1}:
            below.get(draft.depth[node], set()).add(tuple(draft.tokens[x] for x in draft.children(node)))
        assert len(below[1]) == 1, "level 2 is of the same pass as level 1: one list for all"
        across += len(below[2]) > 1
    assert across > 0, "level 3 is of the next pass, which read the way"


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("depth", [1, 3, 6])
def test_a_draft_takes_a_pass_for_k_levels(k: int, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    for name in ("group", "extend_leaves"):
        whole = getattr(ParallelSpecLayer, name)
        monkeypatch.setattr(
            ParallelSpecLayer, name, lambda *args, whole=whole: calls.append(1) or whole(*args)
        )
    for _, draft, drafter in drafts("parallelspec", dict(ALL, tokens_per_pass=k, depth=depth), 2):
        assert max(draft.depth) == depth
        assert len(calls) == math.ceil(depth / k) == 1 + draft.notes["passes"]
        assert isinstance(drafter._walk, GroupWalk) and drafter._walk.store.m == 0, (
            "nothing of a look ahead is kept"
        )
        calls.clear()


def test_with_k_of_one_it_drafts_what_eagle_2_does_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    heads, settings = toys.pair()[0].decoder.heads, dict(nodes=12, depth=4, width=3)
    due = [(text, draft) for text, draft, _ in drafts("eagle2", settings, 5, "temperature")]
    tensors = {f"layer.{name}": x for name, x in heads["eagle"].tensors().items()} | {"masks": net().masks}
    monkeypatch.setitem(heads, "parallelspec", ParallelSpecLayer.from_tensors(net().shape, tensors))
    for k in (1, 3):
        rounds = [
            (text, draft)
            for text, draft, _ in drafts("parallelspec", settings | dict(tokens_per_pass=k), 5, "temperature")
        ]
        same = [
            a == b and (x.tokens, x.parents) == (y.tokens, y.parents)
            for (a, x), (b, y) in zip(rounds, due, strict=True)
        ]
        assert all(same) if k == 1 else not any(same)
        if k == 1:
            assert all(
                x.notes[name] == y.notes[name]
                for (_, x), (_, y) in zip(rounds, due, strict=True)
                for name in y.notes
            )


def reached(out: torch.Tensor, x: torch.Tensor) -> list[int]:
    """The slots of x [1, T, d] that influence out [d]."""
    (grad,) = torch.autograd.grad(out.square().sum(), x, retain_graph=True)
    return (grad[0].abs().sum(-1) > 0).nonzero()[:, 0].tolist()


def test_no_group_of_training_sees_its_own_answers() -> None:
    """Place j after slot t guesses the feature of t + 1 + j; slot i holds the feature of i and the embedding of i + 1.

    So it may depend on the slots up to t only, and depends on every one of them.
    """
    head = toys.heads("parallelspec", 32).copy_to(dtype=torch.float64).requires_grad_(True)
    rows = [7, 6, 5, 4]
    g = torch.Generator().manual_seed(0)
    f, e = (torch.randn(1, 7, 32, generator=g, dtype=torch.float64, requires_grad=True) for _ in range(2))
    outputs = head.unroll_groups(f, e, rows)
    assert [x.shape[1] for x in outputs] == rows
    for j, out in enumerate(outputs):
        for t in range(rows[j]):
            assert reached(out[0, t], f) == reached(out[0, t], e) == list(range(t + 1)), (j, t)
            (grad,) = torch.autograd.grad(out[0, t].square().sum(), head.masks, retain_graph=True)
            assert (grad.abs().sum(-1) > 0).tolist() == [i < j for i in range(3)], (
                "its own mask and those before it"
            )


def test_training_sees_the_groups_that_drafting_makes() -> None:
    head = toys.heads("parallelspec", 32).copy_to(dtype=torch.float64)
    g = torch.Generator().manual_seed(1)
    f, e = torch.randn(2, 8, 32, generator=g, dtype=torch.float64)
    with torch.no_grad():
        outputs = head.unroll_groups(f[None], e[None], [8, 7, 6])
        for t in range(6):
            alone = head.group(f[: t + 1], e[: t + 1], head.attention.store(), 3)
            assert torch.allclose(alone, torch.stack([x[0, t] for x in outputs]), atol=1e-10)
        assert F.mse_loss(outputs[1][0], outputs[0][0, :7]) > 0.01, "masks say something of their own"
