"""The trigram table: a hit equals the computed value, the table is bounded, and the layers below do not run."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import torch
import toys
from leaving import DEEP

from decodescope.engine.core.component import build
from decodescope.engine.cost.cost import ops_of
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.policy import CachePolicy
from decodescope.engine.methods.adaptive_depth.shared.state_table import StateTable
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check

WIDE = toys.toy_spec(n_layers=4, causal=False, heads=("trigrams",), mask_token=12)


def ruled(decoder: Decoder, **settings: object) -> tuple[Lane, object]:
    """A lane and a rule that is attached to it."""
    lane, rule = Lane("target", decoder, CachePolicy()), build("adaptive_depth", "trigrams", settings)
    rule.attach_lane(lane)
    rule.begin(decoder.spec)
    return lane, rule


@torch.inference_mode()
def said(lane: Lane, rule: object, ids: list[int]) -> torch.Tensor:
    """Logits [T, V] of a text read under the rule."""
    feed = Feed.causal_chain(ids, 0)
    logits = lane.forward(feed, "canvas", skip=rule.plan(0, feed), depth=rule)[0]
    lane.rollback()
    return logits


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("heads", ["none", "trigrams"])
def test_what_is_found_is_what_would_have_been_worked_out_bit_for_bit(dtype: torch.dtype, heads: str) -> None:
    """Whatever else is missing: in one run a table is filled text by text, in the other nothing is ever kept."""
    decoder = toys.decoder(WIDE, dtype=dtype).pack_weights()
    kept, afresh = ruled(decoder, heads=heads), ruled(decoder, heads=heads, table_size=0)
    hits = misses = 0
    for ids in toys.prompts(20, 21, seed=2):
        assert torch.equal(said(*kept, ids), said(*afresh, ids))
        hits, misses = hits + sum(kept[1].take_exit().known), misses + kept[1].take_exit().known.count(False)
        assert not any(afresh[1].take_exit().known) and afresh[1].take_exit().table == 0
    assert hits > 20 and misses > 20, "the test needs both"


def test_a_state_is_that_of_three_tokens_alone_wherever_they_stand() -> None:
    decoder = toys.decoder(WIDE, dtype=torch.float64)
    (lane, rule), read = ruled(decoder, layers=2), decoder.states_before
    ids = [7, 3, 1, 4, 9, 3, 1, 4, 2]
    feed = Feed.causal_chain(ids, 0)
    rule.plan(0, feed)
    for row in range(len(ids)):
        alone = [ids[max(row - 1, 0)], ids[row], ids[min(row + 1, len(ids) - 1)]]
        for start in (0, 100):  # rotation depends only on distances
            due = read(Feed.causal_chain(alone, start), None, 2)[0, 1]
            assert torch.allclose(feed.states[0, row], due, atol=1e-12)
    assert torch.equal(feed.states[0, 2], feed.states[0, 6]) and not torch.equal(
        feed.states[0, 1], feed.states[0, 5]
    )
    assert not any(rule.take_exit().known), (
        "the second of a text was not in the table, and not worked out either"
    )
    assert (
        sum(x.batch for x in lane.take_passes()) == 8 == len({*zip(ids, ids[1:], ids[2:], strict=False)}) + 2
    )


def test_layers_that_were_looked_up_do_not_run_and_are_priced_by_what_was_missing() -> None:
    lane, rule = ruled(toys.decoder(WIDE), layers=2)
    text = toys.prompts(1, 12, seed=5)[0]
    for found in (False, True):
        said(lane, rule, text)
        *lookups, one = lane.take_passes()
        assert (
            all(rule.take_exit().known) is found and one.attn == one.ffn == [2, 3] and one.gap == "monotone"
        )
        assert {op.layer for op in ops_of(WIDE, one)} == {2, 3, None}
        assert [(x.phase, x.tokens, x.batch) for x in lookups] == ([] if found else [("lookup", 3, 8)] * 2)
        for x in lookups:
            ops = ops_of(WIDE, x)
            assert {op.layer for op in ops} == {0, 1}, "no head"
            assert (
                sum(op.flops for op in ops if op.name == "up_proj") == 2 * 24 * 2 * WIDE.d_model * WIDE.d_ff
            )


def test_the_table_is_bounded_in_bytes_and_who_was_asked_for_longest_ago_leaves() -> None:
    table, r, kept, worked = (
        StateTable[int](5 * 3 * 8 + 7, torch.zeros(3, dtype=torch.float64)),
        Random(0),
        list[int](),
        0,
    )
    for _ in range(300):
        keys = [r.randrange(12) for _ in range(r.choice((1, 2, 4, 9)))]
        asked: list[int] = []

        def work(missing: list[int], asked: list[int] = asked) -> torch.Tensor:
            asked += missing
            return torch.tensor([[x, -x, 2.0 * x] for x in missing], dtype=torch.float64)

        states, there = table.states(keys, work)
        assert states[:, 0].tolist() == keys and there == [key in kept for key in keys]
        assert asked == list(dict.fromkeys(key for key in keys if key not in kept))
        for key in [
            *(key for key in keys if key in kept),
            *asked,
        ]:  # brute force: a list from the oldest to the newest
            kept = [*(x for x in kept if x != key), key]
        kept, worked = kept[-5:], worked + len(asked)
        assert len(table) == len(kept) and table.nbytes <= 5 * 3 * 8
    assert 300 < worked < 1200, "the test needs keys that are found and keys that left"


def test_a_decoder_looks_up_its_last_three_tokens_and_the_check_derives_what_ran() -> None:
    session = toys.decode(
        toys.method(adaptive_depth=("trigrams", dict(layers=2))), count=60, pair=(DEEP, DEEP)
    )
    text, seen, hits = session.tokens, set[tuple[int, ...]](), 0
    for n, step in enumerate(session.sink.steps, len(toys.PROMPT)):
        key = tuple(text[n - 3 : n])
        assert step.exits[0].known == [key in seen] and step.exits[0].depth == 4
        assert [x.phase for x in step.passes] == (["verify"] if key in seen else ["lookup", "verify"])
        hits += key in seen
        seen.add(key)
    assert hits > 5 and check(session.sink).ok
    assert [len(toys.PROMPT) - 1, *[len(text) - 1] * 4] == [x.n for x in session.target.cache.layers][1:]


@pytest.mark.parametrize("drafter", ["prompt_lookup", "trie"])
def test_rows_of_a_draft_look_up_what_stands_before_them_on_their_path(drafter: str) -> None:
    plain, drafted = (
        toys.decode(
            toys.method(adaptive_depth=("trigrams", dict(layers=2)), drafter=x), count=50, pair=(DEEP, DEEP)
        )
        for x in ("none", drafter)
    )
    assert drafted.end.tokens == plain.end.tokens != toys.greedy_text(DEEP.decoder, toys.PROMPT, 50)
    assert max(len(step.exits[0].known) for step in drafted.sink.steps) > 3


def test_as_a_criterion_it_drafts_and_the_text_is_the_whole_models() -> None:
    parts = dict(drafter=("early_exit", dict(criterion="trigrams layers=2", max_draft_tokens=4)))
    session = toys.decode(toys.method(**parts), count=40, pair=(DEEP, DEEP))
    assert session.header.lossless and session.end.tokens == toys.greedy_text(DEEP.decoder, toys.PROMPT, 40)
    assert (
        any(any(x.known) for step in session.sink.steps for x in step.exits or ()) and check(session.sink).ok
    )


def test_heads_that_learnt_nothing_are_the_layers_as_they_are() -> None:
    decoder = toys.decoder(replace(WIDE, heads=("trigrams",)), dtype=torch.float64)
    head = decoder.heads["trigrams"]
    ids = toys.prompts(1, 9)[0]
    told = said(*ruled(decoder, heads="trigrams"), ids)
    for name, x in head.named_parameters():
        x.data.mul_(0.0 if name.endswith("_up") else 1.0)
    assert torch.allclose(
        said(*ruled(decoder, heads="trigrams"), ids), said(*ruled(decoder), ids), atol=1e-12
    )
    assert not torch.allclose(told, said(*ruled(decoder), ids), atol=1e-3)
