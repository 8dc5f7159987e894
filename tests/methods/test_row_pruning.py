"""Rows that leave: those with the least attention, gathered as a mask would have it, nested, recorded and priced."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
import toys
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from decodescope.engine.core.component import build
from decodescope.engine.cost.cost import PassShape, ops_of, pass_cost
from decodescope.engine.decoding.bases.adaptive_depth import AdaptiveDepth
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.policy import CachePolicy
from decodescope.engine.model.forward.attention_block import AttentionBlock
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check

LAYERS = 5
WIDE = toys.decoder(toys.toy_spec(n_layers=LAYERS, causal=False, heads=(), mask_token=12), 3, torch.float64)
DEEP = toys.model(toys.decoder(toys.toy_spec(n_layers=LAYERS), 3, torch.float64))
RULES = [("row_pruning", {}), ("magic_pyramid", dict(threshold=0.0, min_layers=1))]


def masked(
    decoder: Decoder, ids: list[int], keep: float, at: tuple[int, ...], asked: list[int]
) -> tuple[Tensor, list[list[int]]]:
    """Logits [T, V] of rows that all run every product, with the rows that left masked away; and the rows of each layer.

    Written out: scores, sums and choices of its own.
    """
    s, feed, T = decoder.spec, Feed.causal_chain(ids, 0), len(ids)
    job, x, left, told = (
        AttentionBlock(decoder.stack, feed, None, None),
        decoder.embed[torch.tensor(ids)],
        [*range(T)],
        [],
    )
    sees = torch.ones(T, T, dtype=torch.bool).tril() if s.causal else torch.ones(T, T, dtype=torch.bool)
    drawn = torch.zeros(T, dtype=torch.float64)
    for i, w in enumerate(decoder.layers):
        if i in at:
            worth = {
                row: float(drawn[row]) / (len(left) - k if s.causal else 1) for k, row in enumerate(left)
            }
            best = sorted(left, key=lambda row: (row not in asked, -worth[row]))  # called at once
            left = sorted(best[: max(math.ceil(keep * len(left)), len(asked))])
        here = torch.zeros(T, dtype=torch.bool).index_fill(0, torch.tensor(left), True)
        qkv = job.project(i, x[None])[0]
        q, (k, v) = qkv[:, : s.n_heads], qkv[:, s.n_heads :].view(T, 2, s.n_kv_heads, s.head_dim).unbind(1)
        wide = [z.repeat_interleave(s.group, 1) for z in (k, v)]
        scores = torch.einsum("thd,shd->hts", q, wide[0]) * s.score_scale
        given = scores.masked_fill(~(sees & here), -torch.inf).softmax(-1).nan_to_num()
        drawn = given[:, here].sum((0, 1))
        y = torch.einsum("hts,shd->thd", given, wide[1]).reshape(T, -1) @ w.out.T
        x = torch.where(here[:, None], x + y, x)
        x = torch.where(here[:, None], decoder.stack.ffn(i, x[None])[0], x)
        told.append(left)
    return decoder.unembed(decoder.apply_norm(x)), told


def ruled(decoder: Decoder, name: str, settings: dict) -> tuple[Lane, AdaptiveDepth]:
    """A lane and a rule for reading with it."""
    rule = build("adaptive_depth", name, settings)
    lane = Lane("target", decoder, CachePolicy(), needs=rule.needs)
    lane.set_depth_rule(rule)
    return lane, rule


@torch.inference_mode()
def read(lane: Lane, rule: AdaptiveDepth, ids: list[int], asked: list[int]) -> tuple[Tensor, list[list[int]]]:
    """Logits [R, V] of the requested places, and by layer the rows that ran it, of a text with bidirectional attention."""
    feed = Feed.causal_chain(ids, 0, logits=asked)
    logits = lane.forward(feed, "canvas", skip=rule.plan(0, feed), depth=rule)[0]
    lane.rollback()
    one = lane.passes[-1]
    assert one.routed is None or all(set(signs) <= {"r", "-"} for signs in one.routed)
    return logits, [one.running_rows(i, "attn") if one.routed else [*range(len(ids))] for i in range(LAYERS)]


@pytest.mark.parametrize("at", [(2,), (1, 3)], ids=["once", "twice"])
@pytest.mark.parametrize(("name", "more"), RULES, ids=[name for name, _ in RULES])
def test_a_gathered_pass_is_what_a_mask_leaves_and_the_least_attended_leave(
    name: str, more: dict, at: tuple[int, ...]
) -> None:
    lane, rule = ruled(WIDE, name, dict(keep_share=0.4, pruning_layers=at, **more))
    for seed, asked in enumerate(([13], [0, 7], [5, 6, 11])):
        ids = toys.prompts(1, 14, seed=seed)[0]
        due, rows = masked(WIDE, ids, 0.4, at, asked)
        logits, ran = read(lane, rule, ids, asked)
        assert ran == rows and torch.allclose(logits, due[asked], atol=1e-9, rtol=0)
        assert len(ran[-1]) < 8 and all(set(asked) <= set(some) for some in ran), (
            "places that are asked for never leave"
        )
        plain = WIDE.forward(Feed.causal_chain(ids, 0), None)[0, asked]
        assert not torch.allclose(logits, plain, atol=1e-3), "rows that left are missed"


def test_rows_stay_gone_and_a_larger_share_keeps_all_of_a_smaller_ones() -> None:
    shares = [x / 20 for x in range(1, 21)]
    for seed in range(6):
        ids, before = toys.prompts(1, 19, seed=seed)[0], set[int]()
        for keep in shares:
            _, ran = read(*ruled(WIDE, "row_pruning", dict(keep_share=keep, pruning_layers=(2,))), ids, [4])
            assert (
                before <= set(ran[2])
                and len(ran[2]) == math.ceil(keep * 19)
                and ran[0] == ran[1] == [*range(19)]
            )
            before = set(ran[2])
        _, ran = read(*ruled(WIDE, "row_pruning", dict(keep_share=0.6, pruning_layers=(1, 2, 4))), ids, [4])
        assert all(set(above) <= set(below) for below, above in pairwise(ran))
        assert [len(x) for x in ran] == [19, 12, 8, 8, 5]


@pytest.mark.parametrize(("name", "more"), RULES, ids=[name for name, _ in RULES])
def test_where_everything_goes_on_no_bit_changes(name: str, more: dict) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        decoder = toys.decoder(
            toys.toy_spec(n_layers=LAYERS, causal=False, heads=(), mask_token=12), 3, dtype
        ).pack_weights()
        lane, rule = ruled(decoder, name, dict(keep_share=1.0, pruning_layers=(1, 2), **more))
        ids = toys.prompts(1, 14, seed=3)[0]
        with torch.inference_mode():
            plain = decoder.forward(Feed.causal_chain(ids, 0, logits=[5]), None)[0]
        assert torch.equal(read(lane, rule, ids, [5])[0], plain) and lane.passes[-1].routed is None


def test_rows_and_operations_that_are_recorded_are_those_that_are_priced() -> None:
    ids, spec = toys.prompts(1, 16, seed=8)[0], WIDE.spec
    lane, rule = ruled(WIDE, "row_pruning", dict(keep_share=0.5, pruning_layers=(1, 3)))
    with FlopCounterMode(display=False) as counted:
        _, ran = read(lane, rule, ids, [3])
    one, rows = lane.passes[-1], [len(x) for x in ran]
    assert rows == [16, 8, 8, 4, 4] and one.gap == "absent"
    ops = ops_of(spec, one, bits=64)
    products = sum(
        n for op, n in counted.get_flop_counts()["Global"].items() if "mm" in str(op) and "bmm" not in str(op)
    )
    assert products == sum(x.flops for x in ops if x.name.endswith(("_proj", "_head")))
    scored = [x.flops // ((4 * spec.head_dim + 5) * spec.n_heads) for x in ops if x.name == "attention"]
    assert scored == [n * n for n in rows]
    assert sum(x.flops for x in ops) < 0.6 * pass_cost(spec, PassShape(16, 0, logits=1)).flops


def test_a_pyramid_ends_where_its_answer_is_sure_and_asks_the_rows_that_are_asked_for() -> None:
    ids, depths = toys.prompts(1, 14, seed=2)[0], []
    for threshold in [x / 20 for x in range(21)]:
        lane, rule = ruled(
            WIDE,
            "magic_pyramid",
            dict(keep_share=0.5, pruning_layers=(2,), threshold=threshold, min_layers=1),
        )
        feed = Feed.causal_chain(ids, 0, logits=[6])
        with torch.inference_mode():
            logits = lane.forward(feed, "canvas", skip=rule.plan(0, feed), depth=rule)[0, 0]
        left = rule.take_exit()
        depths.append(left.depth)
        assert [len(x) for x in ([*range(14)], [*range(14)], [*range(7)], [*range(7)], [*range(7)])][
            : left.depth
        ] == [
            len(lane.passes[-1].running_rows(i, "attn")) if lane.passes[-1].routed else 14
            for i in range(left.depth)
        ]
        if left.depth < LAYERS:
            law = logits.softmax(-1)
            assert left.tests[-1][1] == pytest.approx(
                float(-(law * law.log()).sum()) / math.log(13), abs=1e-6
            )
    assert depths == sorted(depths, reverse=True) and depths[0] == LAYERS and len(set(depths)) > 2


@torch.inference_mode()
def test_a_decoder_reads_its_prompt_so_and_holds_fewer_entries_above() -> None:
    lane, _ = ruled(DEEP.decoder, "row_pruning", dict(keep_share=0.5, pruning_layers=(2,)))
    due, rows = masked(DEEP.decoder, toys.PROMPT, 0.5, (2,), [len(toys.PROMPT) - 1])
    assert torch.allclose(lane.read(toys.PROMPT), due[-1], atol=1e-9, rtol=0)
    assert [x.n for x in lane.cache.layers] == [len(x) for x in rows] == [15, 15, 8, 8, 8]
    session = toys.decode(
        toys.method(adaptive_depth=("row_pruning", dict(keep_share=0.5, pruning_layers=(2,)))),
        count=30,
        pair=(DEEP, DEEP),
    )
    assert check(session.sink).ok and not session.header.lossless
    assert [x.n for x in session.target.cache.layers] == [44, 44, 37, 37, 37]
    assert session.end.tokens != toys.greedy_text(DEEP.decoder, toys.PROMPT, 30)
