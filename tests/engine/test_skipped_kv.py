"""Skipped KV: what layers that a pass did not run hold of its tokens, compared with a model written out entry by entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest
import torch
import toys
from torch import Tensor

from decodescope.engine import Method, MethodError
from decodescope.engine.core.component import build
from decodescope.engine.cost.cost import ops_of
from decodescope.engine.decoding.bases.adaptive_depth import AdaptiveDepth
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.policy import CachePolicy
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.model.forward.attention_block import AttentionBlock
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.column import COMPUTED, COPIED, ORIGIN, PROPAGATED, EntryColumn
from decodescope.engine.model.layers.partial_pass import Skip
from decodescope.engine.trace import check
from decodescope.engine.trace.checks.skipped_layers import check_gaps

LAYERS = 5
DEEP = toys.model(toys.decoder(toys.toy_spec(n_layers=LAYERS), 3, torch.float64))
DEPTHS = [2, 5, 1, 4, 4, 3, 5, 1, 2, 5]  # number of layers that each token after the prompt runs
EXITS = ("propagate", "copy", "absent")


class At(AdaptiveDepth):
    """Leaves before the layer `at`, which the test sets."""

    def __init__(self, gap: str):
        self.skipped_kv, self.at = gap, LAYERS

    def leave(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> bool:
        return layer == self.at


class Written:
    """The model written out: for each layer, a list of (key, value) of the tokens that have entries there."""

    def __init__(self) -> None:
        self.decoder = DEEP.decoder
        self.held: list[list[Tensor]] = [[] for _ in range(LAYERS)]

    def project(self, layer: int, x: Tensor, at: int) -> tuple[Tensor, Tensor]:
        s, job = self.decoder.spec, AttentionBlock(self.decoder.stack, Feed.causal_chain([0], at), None, None)
        qkv = job.project(layer, x[None, None])[0, 0]
        return qkv[: s.n_heads], qkv[s.n_heads :].view(2, s.n_kv_heads, s.head_dim)

    def attend(self, layer: int, x: Tensor, at: int) -> Tensor:
        s, w = self.decoder.spec, self.decoder.layers[layer]
        q, kv = self.project(layer, x, at)
        self.held[layer].append(kv)
        k, v = torch.stack(self.held[layer], 1)  # [n, H_kv, D]
        rows = []
        for head in range(s.n_heads):
            mine = head // s.group
            rows.append((k[:, mine] @ q[head] * s.score_scale).softmax(0) @ v[:, mine])
        return x + w.out @ torch.cat(rows)

    def read(self, token: int, at: int, runs: list[int], gap: str) -> Tensor:
        """Logits [V] of a token that runs the layers `runs`; the others are left out together with their feed-forward block."""
        x = self.decoder.embed[token]
        for layer in range(LAYERS):
            if layer in runs:
                x = self.decoder.stack.ffn(layer, self.attend(layer, x, at)[None, None])[0, 0]
            elif gap == "propagate":
                self.held[layer].append(self.project(layer, x, at)[1])
            elif gap == "copy":
                self.held[layer].append(self.held[layer - 1][-1])
        return self.decoder.unembed(self.decoder.apply_norm(x))


def opened(policy: CachePolicy | None = None) -> tuple[Lane, Written]:
    """A lane and the written-out model, both after reading the prompt."""
    lane, written = Lane("target", DEEP.decoder, policy or KeepAll()), Written()
    lane.read(toys.PROMPT)
    for at, token in enumerate(toys.PROMPT):
        written.read(token, at, [*range(LAYERS)], "")
    return lane, written


def same(lane: Lane, written: Written) -> None:
    """Check that the lane holds the entries of the written-out model, by layer, in text order."""
    for store, held in zip(lane.cache.layers, written.held, strict=True):
        assert store.m == 0 and store.n == len(held)
        order = store.positions()[0, 0].argsort()
        k, v = torch.stack(held, 2)
        assert torch.allclose(store.k[0][:, order], k, atol=1e-12) and torch.allclose(
            store.v[0][:, order], v, atol=1e-12
        )


@pytest.mark.parametrize("gap", EXITS)
@torch.inference_mode()
def test_what_an_exit_leaves_is_what_the_gap_says(gap: str) -> None:
    (lane, written), rule = opened(), At(gap)
    for token, depth in enumerate(DEPTHS):
        at, rule.at = len(lane.tokens), depth
        logits = lane.forward(Feed.causal_chain([token], at), depth=rule)[0, 0]
        assert torch.allclose(logits, written.read(token, at, [*range(depth)], gap), atol=1e-12)
        lane.commit([0])
    same(lane, written)
    lacks = [sum(depth <= layer for depth in DEPTHS) if gap == "absent" else 0 for layer in range(LAYERS)]
    assert [len(lane.tokens) - store.n for store in lane.cache.layers] == lacks
    assert (lane.lacks or [0] * LAYERS) == lacks


@pytest.mark.parametrize("gap", EXITS)
@torch.inference_mode()
def test_a_plan_that_leaves_layers_out_in_the_middle(gap: str) -> None:
    lane, written = opened()
    for token, out in enumerate([{1, 3}, set(), {2}, {1, 2, 4}, {3}]):
        at, skip = len(lane.tokens), Skip(frozenset(out), frozenset(out), gap)
        logits = lane.forward(Feed.causal_chain([token], at), skip=skip)[0, 0]
        runs = [i for i in range(LAYERS) if i not in out]
        assert torch.allclose(logits, written.read(token, at, runs, gap), atol=1e-12)
        lane.commit([0])
    same(lane, written)


@pytest.mark.parametrize("gap", EXITS)
@torch.inference_mode()
def test_of_a_tree_the_accepted_rows_alone_leave_entries(gap: str) -> None:
    """Root 7 with the children 3 and 5, and 9 below 5: the path 7, 5, 9 is kept, and all rows stop before layer 3."""
    (lane, written), rule, at = opened(), At(gap), len(toys.PROMPT)
    rule.at = 3
    visible = torch.tensor([[[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]], dtype=torch.bool)
    feed = Feed(torch.tensor([[7, 3, 5, 9]]), torch.tensor([[at, at + 1, at + 1, at + 2]]), visible)
    logits = lane.forward(feed, depth=rule)[0]
    lane.commit([0, 2, 3])
    for row, (token, place) in {0: (7, at), 2: (5, at + 1), 3: (9, at + 2)}.items():
        assert torch.allclose(logits[row], written.read(token, place, [0, 1, 2], gap), atol=1e-12)
    same(lane, written)
    logits = lane.forward(Feed.causal_chain([4], at + 3))[0, 0]
    assert torch.allclose(logits, written.read(4, at + 3, [*range(LAYERS)], ""), atol=1e-12)


@torch.inference_mode()
def test_under_monotone_layers_shrink_hold_all_they_need_and_none_comes_back() -> None:
    lane, written = opened()
    for token, out in enumerate([set(), {1}, {1}, {1, 2}, {1, 2, 3}]):
        at, skip = len(lane.tokens), Skip(frozenset(out), frozenset(out), "monotone")
        logits = lane.forward(Feed.causal_chain([token], at), skip=skip)[0, 0]
        runs = [i for i in range(LAYERS) if i not in out]
        assert torch.allclose(logits, written.read(token, at, runs, "monotone"), atol=1e-12)
        lane.commit([0])
        assert all(lane.cache.layers[i].n == at + 1 for i in runs), "a layer that runs has seen every token"
    same(lane, written)
    grown = Skip(frozenset({1, 2}), gap="monotone")
    with pytest.raises(ValueError, match=r"layer 3 got no entry at position .* and would run again"):
        lane.forward(Feed.causal_chain([1], len(lane.tokens)), skip=grown)
    lane.truncate(len(toys.PROMPT) + 4)  # forget what layer 3 lacked
    lane.forward(Feed.causal_chain([1], len(lane.tokens)), skip=grown)


@torch.inference_mode()
def test_layers_that_lack_entries_hold_less_memory_and_price_less() -> None:
    sizes, reads = {}, {}
    for gap in EXITS:
        (lane, _), rule = opened(), At(gap)
        rule.at = 1
        for token in range(12):
            lane.forward(Feed.causal_chain([token], len(lane.tokens)), depth=rule)
            lane.commit([0])
            for _ in range(6):  # with more than fits into the slack of pages
                lane.forward(Feed.causal_chain([token], len(lane.tokens)), depth=rule)
                lane.commit([0])
        one = lane.take_passes()[-1]
        sizes[gap] = lane.cache.nbytes
        assert (one.gap, one.attn, one.ffn) == (gap, 1, 1)
        assert (one.propagated, one.copied) == {
            "propagate": (4, None),
            "copy": (None, 4),
            "absent": (None, None),
        }[gap]
        names = [op.name for op in ops_of(DEEP.spec, one)]
        assert names.count("k_proj") == (5 if gap == "propagate" else 1)
        assert names.count("kv_copy") == (4 if gap == "copy" else 0)
        reads[gap] = sum(op.flops for op in ops_of(DEEP.spec, one))
    assert sizes["absent"] < 0.6 * sizes["propagate"] == 0.6 * sizes["copy"]
    assert reads["absent"] == reads["copy"] < reads["propagate"]


class Tagged(KeepAll):
    """Keeps everything and requests the origin of each entry."""

    columns: ClassVar[dict[str, EntryColumn]] = {"origin": ORIGIN}


@torch.inference_mode()
def test_a_policy_reads_how_each_entry_was_made() -> None:
    for gap, code in (("propagate", PROPAGATED), ("copy", COPIED)):
        (lane, _), rule = opened(Tagged()), At(gap)
        for token, depth in enumerate(DEPTHS):
            rule.at = depth
            lane.forward(Feed.causal_chain([token, 4], len(lane.tokens)), depth=rule)
            lane.commit([0])
        for layer, store in enumerate(lane.cache.layers):
            due = [COMPUTED] * len(toys.PROMPT) + [code if depth <= layer else COMPUTED for depth in DEPTHS]
            assert store.column("origin")[0, 0].tolist() == due
        keep = torch.ones(1, 2, lane.cache.layers[4].n, dtype=torch.bool)
        keep[0, 0, :9] = False  # from here on the heads differ
        lane.cache.layers[4].keep_where(keep)
        rule.at = 2
        lane.forward(Feed.causal_chain([1], len(lane.tokens)), depth=rule)
        lane.commit([0])
        heads = lane.cache.layers[4].column("origin")[0]
        assert [int(heads[h, n - 1]) for h, n in enumerate(lane.cache.layers[4].lengths)] == [code, code]


@pytest.mark.parametrize("gap", EXITS)
@pytest.mark.parametrize(
    "policy", ["keep_all", "h2o", "streaming_llm", "tova", "window", "snapkv", "key_norm"]
)
def test_runs_under_each_gap_agree_with_their_trace(gap: str, policy: str) -> None:
    settings = {
        "h2o": dict(heavy=6, recent=6),
        "tova": dict(cache_size=12),
        "key_norm": dict(low_norm_entries=6, recent=6),
    }
    depth = ("confidence_exit", dict(threshold=0.3, min_layers=1, skipped_kv=gap))
    made = toys.method(
        adaptive_depth=depth, drafter="prompt_lookup", policy=(policy, settings.get(policy, {}))
    )
    session = toys.decode(made, pair=(DEEP, DEEP), count=30)
    assert check(session.sink).ok and any(
        one.gap == gap for step in session.sink.steps for one in step.passes
    )
    lacking = [change.lacks for step in session.sink.steps for change in step.cache if change.lacks]
    assert bool(lacking) == (gap == "absent")
    if gap == "absent" and policy == "keep_all":
        assert [len(session.tokens) - 1 - store.n for store in session.target.cache.layers] == [
            sum(x) for x in zip(*lacking, strict=True)
        ]
        step = next(step for step in session.sink.steps if step.cache[0].lacks)
        step.cache[0].lacks[1] += 1
        assert list(check_gaps(step.passes, step.cache, LAYERS)) and not check(session.sink).ok


def test_what_does_not_go_together_is_said_in_a_sentence() -> None:
    def refused(gap: str, **parts: str) -> str:
        with pytest.raises(MethodError) as error:
            toys.decode(
                toys.method(adaptive_depth=("saturation", dict(skipped_kv=gap)), **parts), pair=(DEEP, DEEP)
            )
        return str(error.value)

    assert "choose kv_compression unpacked, or saturation with skipped_kv = propagate" in refused(
        "absent", kv_compression="kivi"
    )
    assert "choose the policy keep_all, or saturation with skipped_kv = propagate" in refused(
        "absent", policy="quest"
    )
    assert isinstance(
        build("adaptive_depth", "saturation", {"skipped_kv": "copy"}).refuse(Method(), DEEP.spec), type(None)
    )
    lane, _ = opened()
    with pytest.raises(ValueError, match="below layer 0"):
        lane.forward(Feed.causal_chain([1], len(lane.tokens)), skip=Skip(frozenset({0}), gap="copy"))
