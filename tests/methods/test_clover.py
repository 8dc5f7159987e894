"""Clover: a node comes from the path to it, through a state that has read the whole text."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import toys
from drafting import drafts, feature_of, path_of

from decodescope.engine.model.heads.drafting.clover import AttentionDecoder, CloverHeads


def net() -> CloverHeads:
    return toys.pair()[0].decoder.heads["clover"]


@torch.inference_mode()
def guessed(text: list[int], path: list[int]) -> tuple[torch.Tensor, torch.Tensor, list[float]]:
    """Logits [V] after text and `path`, the norm ratio of their state to the one at the root, and the last token's cosines.

    The block reads the text without a cache, in one pass, and the formulas are those of the docstring.
    """
    decoder, weights = toys.pair()[0].decoder, net().tensors()
    unit = lambda x: x / (x.square().mean() + 1e-5).sqrt()  # noqa: E731
    embed = decoder.embed
    state = net()(feature_of(text[:-1])[None], embed[torch.tensor(text[1:])][None])[0, -1]
    first, cosines = state, []
    said = state + weights["first_up.weight"] @ weights["first_down.weight"] @ state
    for token in path:
        q = (weights["after.q.weight"] @ (unit(state) * weights["after.norm"])).view(2, 4)
        k, v = ((weights[f"after.{x}.weight"] @ unit(embed[token])).view(2, 4) for x in "kv")
        cos = [float(q[g] @ k[g] / (q[g].norm() * k[g].norm())) for g in range(2)]
        state = state + weights["after.out.weight"] @ torch.cat([cos[g] * v[g] for g in range(2)])
        said = state + weights["later_up.weight"] @ weights["later_down.weight"] @ torch.cat(
            [state, unit(embed[token])]
        )
        cosines = cos
    return decoder.unembed(said), state.norm() / first.norm(), cosines


def test_a_node_comes_from_the_way_to_it_and_from_the_whole_text() -> None:
    told = 0
    for text, draft, _ in drafts("clover", {"nodes": 20}, 5):
        assert max(draft.depth) == 3 == draft.notes["passes"]
        for node, rank in enumerate(draft.notes["ranks"]):
            logits, _, _ = guessed(text, path_of(draft, draft.parents[node]))
            assert draft.tokens[node] == int(logits.argsort(descending=True)[rank])
            if draft.children(node):
                _, size, cosines = guessed(text, path_of(draft, node))
                assert draft.notes["gates"][node] == pytest.approx(cosines, abs=1e-3)
                assert draft.notes["state"][node] == pytest.approx(float(size), abs=1e-3)
                told += 1
            else:
                assert draft.notes["gates"][node] is draft.notes["state"][node] is None
    assert told > 15


def test_children_hang_on_their_parents_and_medusas_do_not() -> None:
    """If the tokens of level 1 swap places, the lists under them change."""
    lists = {}
    for kind in ("clover", "medusa"):
        lists[kind] = 0
        for _, draft, _ in drafts(kind, {"nodes": 20}, 5):
            under = {
                tuple(draft.tokens[x] for x in draft.children(node))[:1] for node in draft.children(-1)
            } - {()}
            lists[kind] += len(under) > 1
    assert lists["clover"] > 2 and lists["medusa"] == 0


def test_a_gate_is_a_cosine_whatever_the_sizes_are() -> None:
    """d = 2, one head of 2, Q = K = V = O = 1: a state takes in an embedding at its value of unit mean square.

    The state (3, 0) takes in the embedding (0, 5) with cosine 0, the embedding (2, 0) with cosine 1, and (-1, 1) with -1 /
    sqrt(2).
    """
    decoder = AttentionDecoder(2, 1, 2)
    with torch.no_grad():
        for x in (decoder.q, decoder.k, decoder.v, decoder.out):
            x.weight.copy_(torch.eye(2))
        state = torch.tensor([3.0, 0.0])
        for e, due in (
            ([0.0, 5.0], [3.0, 0.0]),
            ([2.0, 0.0], [3 + 2**0.5, 0.0]),
            ([-1.0, 1.0], [3 + 0.5**0.5, -(0.5**0.5)]),
        ):
            assert decoder(state, torch.tensor(e)).tolist() == pytest.approx(due, abs=1e-4)
        large = decoder.parts(state * 50, torch.tensor([-7.0, 7.0]))[0]
        assert large.tolist() == pytest.approx([-(0.5**0.5)], abs=1e-4)


def test_untrained_heads_say_what_the_target_says_of_the_next_token() -> None:
    head = CloverHeads(32, heads=3, gates=2, gate_dim=4, n_heads=2, n_kv_heads=1, head_dim=8, d_ff=16, rank=4)
    f, e = torch.randn(2, 6, 32), [torch.randn(2, rows, 32) for rows in (6, 5, 4)]
    for k, x in enumerate(head.unroll(f, e)):
        assert torch.equal(x, f[:, : 6 - k])


def test_the_block_keeps_what_was_accepted_and_drafts_nothing_before_it() -> None:
    rounds = list(drafts("clover", {"nodes": 12}, 6))
    text, _, drafter = rounds[-1]
    assert drafter._walk.store.m == 0 and drafter._walk.store.n == len(text) - 1
    with torch.inference_mode():
        store = net().attention.store()
        net()(
            feature_of(text[:-1])[None],
            F.embedding(torch.tensor(text[1:]), toys.pair()[0].decoder.embed)[None],
            0,
            store,
        )
    assert torch.allclose(store.k, drafter._walk.store.k, atol=1e-9)
    assert [len(draft) for _, draft, _ in drafts("clover", {"nodes": 5}, 2, prompt=[4])] == [0, 5]
