"""TidalDecode: the reads that its formula counts, the sets that its layers share, and drafts that do not change the text."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import toys
from masked import rotated
from toys import feed_tokens

from decodescope.engine import MethodError
from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed

DEEP = toys.toy_spec(n_layers=6)
SETTINGS: dict[str, Any] = dict(top_k=9, selection_layer=1, reselection_layer=3)
TEXT = toys.prompts(1, 60, seed=5)[0]


def decoder(group: int = 2) -> Decoder:
    return toys.decoder(toys.toy_spec(n_layers=6, n_heads=2 * group), toys.LIVELY, torch.float64)


def lane(settings: dict[str, Any] = SETTINGS, group: int = 2, text: list[int] = TEXT) -> Lane:
    """A lane that has read a prompt, and selects entries from the next token on."""
    made = Lane("target", decoder(group), build("policy", "tidal_decode", settings))
    made.policy.begin(made.decoder.spec, len(text))
    made.read(text[:-1], compress=False)
    feed_tokens(made, text[-1])
    return made


@torch.inference_mode()
def by_hand(made: Lane, token: int) -> tuple[torch.Tensor, list[list[set[int]]], list[float | None]]:
    """Logits [V] of a token, the selected entries by layer and query head, and their share of the attention by layer.

    The share is a mean over the heads; None: a layer without a note.
    """
    decoder, s, at, policy = made.decoder, made.decoder.spec, torch.tensor([len(made.tokens)]), made.policy
    x, noted, sets, covered = decoder.embed[token], [], [], []
    for i, w in enumerate(decoder.layers):
        qkv = (w.qkv @ F.rms_norm(x, (s.d_model,), w.attn_norm, s.norm_eps)).view(-1, s.head_dim)
        queries, new, values = qkv.split([s.n_heads, s.n_kv_heads, s.n_kv_heads])
        store, outputs, scores = made.cache.layers[i], [], []
        for h in range(s.n_heads):
            k = torch.cat([store.k[0, h // s.group], rotated(new[h // s.group, None], at, decoder)])
            scores.append(k @ rotated(queries[h, None], at, decoder)[0] * s.score_scale)
        if i in (policy.selection_layer, policy.reselection_layer):
            noted = [sorted(range(len(x)), key=lambda p: (-float(x[p]), p))[: policy.top_k] for x in scores]
        shares = [float(x.softmax(0)[some].sum()) for x, some in zip(scores, noted, strict=bool(noted))]
        covered.append(
            sum(shares) / len(shares) if i in (policy.selection_layer, policy.reselection_layer) else None
        )
        for h, row in enumerate(scores):
            v = torch.cat([store.v[0, h // s.group], values[h // s.group, None]])
            read = (
                list(range(len(row)))
                if i <= policy.selection_layer or i == policy.reselection_layer
                else noted[h]
            )
            outputs.append(row[read].softmax(0) @ v[read])
        sets.append([set(x) for x in noted])
        x = x + w.out @ torch.cat(outputs)
        gate, up = (w.gate_up @ F.rms_norm(x, (s.d_model,), w.mlp_norm, s.norm_eps)).chunk(2)
        x = x + w.down @ (F.silu(gate) * up)
    return decoder.unembed(decoder.apply_norm(x[None]))[0], sets, covered


def test_the_layers_behind_read_what_the_last_choosing_layer_has_noted() -> None:
    made = lane()
    for token in (7, 2, 11):
        due, sets, _ = by_hand(made, token)
        assert torch.allclose(feed_tokens(made, token)[0], due, atol=1e-9)
        assert made.board is not None and set(made.board.chosen) == {2, 4, 5}
        for layer, (some, _) in made.board.chosen.items():
            for h in range(2):
                both = sets[layer][2 * h] | sets[layer][2 * h + 1]
                assert set(some[0, h].nonzero().flatten().tolist()) == both - {len(made.tokens) - 1}


def test_what_is_covered_is_the_attention_that_falls_on_what_is_noted() -> None:
    """Noted for the first row of a pass, in the two layers that read everything; it is recorded once."""
    made = lane()
    made.policy.notes()
    covered = by_hand(made, 7)[2]
    assert [i for i, x in enumerate(covered) if x is not None] == [1, 3] and all(
        0.1 < x < 0.99 for x in covered if x
    )
    for rows in ([7], [7, 2, 11]):
        feed_tokens(made, *rows)
        notes = made.policy.notes()
        made.truncate(len(TEXT))
        assert notes is not None and [x is None for x in notes["covered"]] == [x is None for x in covered]
        assert [x for x in notes["covered"] if x is not None] == pytest.approx(
            [x for x in covered if x is not None], abs=1e-9
        )
        assert made.policy.notes() is None


def test_reads_are_those_of_the_formula() -> None:
    """With one query head per KV head: n reads in start + 2 layers, k in the others, one of which may be the token itself."""
    made = lane(group=1)
    feed_tokens(made, 7)
    n, (k, start, layers) = len(TEXT), (SETTINGS["top_k"], SETTINGS["selection_layer"], 6)
    read = made.passes[-1].read
    assert read is not None and made.board is not None
    own = sum(k - x for i in made.board.chosen for x in read[i])  # the token itself, if it is in the set
    assert sum(map(sum, read)) + own == 2 * ((start + 2) * n + (layers - start - 2) * k) and own <= 2 * 3
    assert all(k - 1 <= x <= k for i in made.board.chosen for x in read[i])
    shared = lane(group=2)
    feed_tokens(shared, 7)
    assert shared.passes[-1].read is not None and shared.board is not None
    assert {x for i in shared.board.chosen for x in shared.passes[-1].read[i]} <= set(range(k - 1, 2 * k + 1))


@torch.inference_mode()
def test_what_was_not_noted_is_not_read() -> None:
    made = lane()
    logits = made.forward(Feed.causal_chain([7], len(TEXT)))[0]
    made.rollback()
    assert made.board is not None
    for layer, (some, _) in made.board.chosen.items():
        made.cache.layers[layer].kv[:, 0, :, : len(TEXT)].masked_fill_(~some[0][None, ..., None], torch.nan)
    assert torch.equal(made.forward(Feed.causal_chain([7], len(TEXT)))[0], logits)


def test_with_k_for_everything_it_is_the_full_cache() -> None:
    made, plain = lane(dict(SETTINGS, top_k=61)), Lane("plain", decoder(), build("policy", "keep_all"))
    plain.read(TEXT[:-1])
    feed_tokens(plain, TEXT[-1])
    assert torch.equal(feed_tokens(made, 7), feed_tokens(plain, 7)) and made.passes[-1].read is None
    assert not torch.allclose(feed_tokens(made, 7), feed_tokens(plain, 7), atol=1e-6), (
        "with one more entry it is not"
    )


@torch.inference_mode()
def test_each_row_of_a_draft_reads_what_it_would_one_by_one() -> None:
    tokens, branches = [3, 1, 4, 1, 5, 9, 2], [[0, 1, 2, 3], [0, 4, 5, 6]]
    visible, depth = torch.zeros(1, 7, 7, dtype=torch.bool), [0, 1, 2, 3, 1, 2, 3]
    for branch in branches:
        for at, row in enumerate(branch):
            visible[0, row, branch[: at + 1]] = True
    tree = lane().forward(Feed(torch.tensor([tokens]), torch.tensor([depth]) + len(TEXT), visible))[0]
    for logits, paths in ((tree, branches), (feed_tokens(lane(), *tokens), [list(range(7))])):
        for path in paths:
            one = lane()
            for row in path:
                assert torch.allclose(feed_tokens(one, tokens[row])[0], logits[row], atol=1e-9)


@pytest.mark.parametrize(
    "drafter", [("draft_model", {"max_draft_tokens": 4}), ("token_recycling", {"nodes": "16"})]
)
def test_drafts_change_no_text(drafter: tuple[str, dict[str, Any]]) -> None:
    policy = ("tidal_decode", dict(top_k=4, selection_layer=0, reselection_layer=2))
    fast = toys.decode(toys.method(policy=policy, drafter=drafter), TEXT, count=40)
    plain = toys.decode(toys.method(policy=policy), TEXT, count=40)
    assert fast.tokens == plain.tokens and sum(step.accepted for step in fast.sink.steps) > 5
    assert plain.tokens != toys.decode(prompt=TEXT, count=40).tokens, "the test needs reading that shows"


def test_a_pass_that_begins_behind_the_choosing_layer_is_refused() -> None:
    with pytest.raises(MethodError, match="early_exit lets a pass begin behind"):
        toys.decode(toys.method(policy="tidal_decode", drafter="early_exit"))


@torch.inference_mode()
def test_a_batch_of_two_texts_is_each_of_them_alone() -> None:
    texts = toys.prompts(2, 50, seed=11)
    both = Lane("both", decoder(), build("policy", "tidal_decode", SETTINGS), batch=2)
    both.policy.begin(both.decoder.spec, 50)
    both.forward(Feed(torch.tensor(texts), torch.arange(50).expand(2, -1), logits="last"))
    both.commit(list(range(50)))
    logits = both.forward(Feed(torch.tensor([[3], [4]]), torch.full((2, 1), 50)))
    for i, text in enumerate(texts):
        assert torch.allclose(feed_tokens(lane(text=text), 3 + i), logits[i], atol=1e-9)


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        (dict(selection_layer=3), "choose at most 1"),
        (dict(selection_layer=1, reselection_layer=3), "has the layers 0 to 2"),
    ],
)
def test_a_layer_that_the_model_has_not_is_refused(knobs: dict[str, int], said: str) -> None:
    with pytest.raises(MethodError, match=said):
        toys.decode(toys.method(policy=("tidal_decode", knobs)), count=1)


def test_defaults_give_way_in_a_small_model() -> None:
    run = toys.decode(toys.method(policy=("tidal_decode", dict(top_k=3))), count=3)
    told, read = run.header.method["policy"], run.sink.steps[-1].passes[-1].read
    assert (told["selection_layer"], told["reselection_layer"]) == (1, 0)
    assert max(read[2]) < min(read[0]) == min(read[1]), "the last of three layers reads what the second noted"
