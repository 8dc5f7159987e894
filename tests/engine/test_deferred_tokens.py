"""Deferred tokens: they stop before a layer and go on together later, and they leave what a whole pass leaves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import toys
from torch import Tensor

from decodescope.engine.core.component import build
from decodescope.engine.cost.cost import ops_of
from decodescope.engine.decoding.bases.adaptive_depth import AdaptiveDepth
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import KVCache

LAYERS = 5
DEEP = toys.model(toys.decoder(toys.toy_spec(n_layers=LAYERS), 3, torch.float64))


class At(AdaptiveDepth):
    """Leaves before the layer `at`, which the test sets; its tokens wait there."""

    skipped_kv = "defer"
    at = LAYERS

    def leave(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> bool:
        return layer == self.at


def opened() -> Lane:
    """A lane that has read the prompt."""
    lane = Lane("target", DEEP.decoder, build("policy", "keep_all"))
    lane.read(toys.PROMPT)
    return lane


def due(tokens: list[int], depth: int) -> Tensor:
    """The logits [V] that the model gives after `tokens` before layer `depth`, from a pass over the whole text."""
    x = DEEP.decoder.states_before(Feed.causal_chain(tokens, 0), None, depth)[0, -1]
    return DEEP.decoder.unembed(DEEP.decoder.apply_norm(x))


def whole(lane: Lane) -> bool:
    """Whether every layer holds what a pass over the whole text leaves."""
    return toys.matches_fresh_reading(lane, 1e-12)


@pytest.mark.parametrize("seed", range(4))
@torch.inference_mode()
def test_every_token_answers_as_in_a_pass_over_the_whole_text(seed: int) -> None:
    """Tokens leave at any depth. Those that wait at higher layers come earlier in the text than those at lower layers."""
    lane, rule = opened(), At()
    g, wholes, groups = torch.Generator().manual_seed(seed), 0, 0
    for _ in range(24):
        token, depth = (
            int(torch.randint(13, (1,), generator=g)),
            int(torch.randint(1, LAYERS + 1, (1,), generator=g)),
        )
        rule.at, before = depth, lane.deferred_tokens
        logits = lane.forward(Feed.causal_chain([token], len(lane.tokens)), depth=rule)[0, 0]
        assert lane.deferred_tokens == before, "until the commit nothing has changed"
        lane.commit([0])
        assert torch.allclose(logits, due(lane.tokens, depth), atol=1e-12)
        waits = [(layer, int(x.positions[0, 0])) for layer, x in sorted(lane.cache.waiting.items())]
        assert [at for _, at in waits] == sorted((at for _, at in waits), reverse=True)
        assert [len(lane.tokens) - store.n for store in lane.cache.layers] == [
            sum(len(x) for layer, x in lane.cache.waiting.items() if layer <= i) for i in range(LAYERS)
        ]
        groups = max(groups, len(waits))
        if depth == LAYERS:
            wholes += 1
            assert not lane.deferred_tokens and whole(lane)
    assert wholes > 2 and groups > 1, "the test needs whole passes, and tokens that wait at several depths"
    lane.flush_deferred()
    assert not lane.deferred_tokens and whole(lane)
    assert not lane.cache.waiting and lane.cache.nbytes == sum(x.nbytes() for x in lane.cache.layers)


@torch.inference_mode()
def test_of_a_tree_the_accepted_rows_alone_go_on() -> None:
    lane, rule = opened(), At()
    visible = torch.tensor([[[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]], dtype=torch.bool)
    for depth in (2, 3, LAYERS, 2):
        rule.at, at = depth, len(lane.tokens)
        feed = Feed(torch.tensor([[7, 3, 5, 9]]), torch.tensor([[at, at + 1, at + 1, at + 2]]), visible)
        logits, text = lane.forward(feed, depth=rule)[0], list(lane.tokens)
        for row, path in ((0, [7]), (1, [7, 3]), (2, [7, 5]), (3, [7, 5, 9])):
            assert torch.allclose(logits[row], due([*text, *path], depth), atol=1e-12)
        lane.commit([0, 2, 3])
    assert lane.deferred_tokens == 3
    assert not lane.cache.layers[4].m and lane.cache.layers[4].in_order
    logits = lane.forward(Feed.causal_chain([4], len(lane.tokens)))[
        0, 0
    ]  # no rule: the waiting tokens go on first
    lane.commit([0])
    assert torch.allclose(logits, due(lane.tokens, LAYERS), atol=1e-12) and whole(lane)
    assert [one.phase for one in lane.take_passes()[-2:]] == ["flush", "verify"]


@torch.inference_mode()
def test_rolled_back_and_forgotten_tokens_do_not_go_on() -> None:
    lane, rule, n = opened(), At(), len(toys.PROMPT)
    for token, depth in ((3, 3), (5, 2), (9, 2), (1, 2)):
        rule.at = depth
        lane.forward(Feed.causal_chain([token], len(lane.tokens)), depth=rule)
        lane.commit([0])
    rule.at = LAYERS
    lane.forward(Feed.causal_chain([6], len(lane.tokens)), depth=rule)
    lane.rollback()
    assert lane.deferred_tokens == 4, "what was rolled back took nobody along"
    lane.truncate(n + 3)
    assert lane.deferred_tokens == 3 and lane.tokens[n:] == [3, 5, 9]
    twin = lane.cache.copy()
    lane.truncate(n + 1)
    assert lane.deferred_tokens == 1 and twin.deferred_tokens == 3
    rule.at = LAYERS
    lane.forward(Feed.causal_chain([6], n + 1), depth=rule)
    lane.commit([0])
    assert whole(lane)


@torch.inference_mode()
def test_who_moves_entries_finds_whole_layers() -> None:
    lane, rule = Lane("target", DEEP.decoder, build("policy", "h2o", {"heavy": 4, "recent": 4})), At()
    plain = Lane("target", DEEP.decoder, build("policy", "h2o", {"heavy": 4, "recent": 4}))
    lane.read(toys.PROMPT)
    plain.read(toys.PROMPT)
    for token in (3, 5, 9, 2, 2, 6):
        rule.at = 2
        lane.forward(Feed.causal_chain([token], len(lane.tokens)), depth=rule)
        plain.forward(Feed.causal_chain([token], len(plain.tokens)))
        lane.commit([0])
        plain.commit([0])
        for a, b in zip(lane.cache.layers, plain.cache.layers, strict=True):
            assert a.n == b.n == 8 and torch.equal(a.positions(), b.positions())
            assert torch.allclose(a.k, b.k, atol=1e-12) and torch.allclose(a.v, b.v, atol=1e-12)
            assert torch.allclose(a.column("mass"), b.column("mass"), atol=1e-6)


@torch.inference_mode()
def test_a_pass_says_who_went_along_and_is_priced_with_them() -> None:
    lane, rule = opened(), At()
    for token, depth in ((3, 3), (5, 2), (9, 2)):
        rule.at = depth
        lane.forward(Feed.causal_chain([token], len(lane.tokens)), depth=rule)
        lane.commit([0])
    rule.at = LAYERS
    lane.forward(Feed.causal_chain([1], len(lane.tokens)), depth=rule)
    lane.commit([0])
    one = lane.take_passes()[-1]
    n = len(toys.PROMPT)
    assert one.held == [n + 3, n + 3, n + 1, n, n] and one.joined == [[2, 2], [3, 1]] and one.gap == ""
    keys = {op.layer: op for op in ops_of(DEEP.spec, one) if op.name == "k_proj"}
    rows = [keys[i].flops // keys[0].flops for i in range(LAYERS)]
    assert rows == [1, 1, 3, 4, 4] and keys[4].weight_bytes == keys[0].weight_bytes, (
        "weights are read once for all"
    )


def test_a_beam_takes_along_what_waits() -> None:
    lane, rule = opened(), At()
    rule.at = 2
    with torch.inference_mode():
        lane.forward(Feed.causal_chain([1], len(lane.tokens)), depth=rule)
        lane.commit([0])
        lane.cache.reorder(torch.tensor([0, 0]))
        lane.flush_deferred()
    fresh = KVCache(DEEP.spec, dtype=torch.float64)
    with torch.inference_mode():
        DEEP.decoder.forward(Feed.causal_chain(lane.tokens, 0), fresh)
    for a, b in zip(lane.cache.layers, fresh.layers, strict=True):
        assert all(torch.allclose(a.k[i], b.k[0], atol=1e-12) for i in (0, 1))
