"""Layers that hold different numbers of entries: the same logits as under a mask, a record that says so, and its price."""

from __future__ import annotations

import copy
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import toys
from masked import Masked, hitters

from decodescope.engine import Session
from decodescope.engine.core.component import component
from decodescope.engine.cost.cost import ops_of
from decodescope.engine.decoding.draft import Draft
from decodescope.engine.decoding.lane import Lane
from decodescope.engine.methods.policies.h2o import H2O
from decodescope.engine.model.cache import LayerStore
from decodescope.engine.model.feed import Feed
from decodescope.engine.trace import check, frame, open_trace
from decodescope.engine.trace.events import Pass
from decodescope.lab.cache.lives import Lives
from decodescope.lab.cost.passes import Passes

HEAVY = (9, 4, 1)  # entries that layers 0, 1 and 2 keep by their attention, beside the newest RECENT
RECENT = 3


@component
class Pyramid(H2O):
    """Heavy hitters, fewer of them from layer to layer."""

    name = "h2o"  # by which a reader of the trace finds its zones and knobs

    def surplus(self, store: LayerStore) -> int:
        return store.n - HEAVY[store.layer] - RECENT


def policy() -> Pyramid:
    return Pyramid(heavy=max(HEAVY), recent=RECENT)


def masked() -> Masked:
    return Masked(toys.pair()[0].decoder, [[hitters(heavy, RECENT)] * 2 for heavy in HEAVY])


def held(lane: Lane) -> list[list[list[int]]]:
    return [store.positions()[0].expand(2, -1).sort(1).values.tolist() for store in lane.cache.layers]


@pytest.fixture(scope="module")
def session() -> Session:
    """A run whose drafts are refused now and then."""
    method = toys.method(drafter=("token_recycling", {"nodes": "16"}))
    method.policy = policy()
    return toys.decode(method, count=40, level="fields")


@torch.inference_mode()
def test_layers_of_different_lengths_equal_an_explicit_mask() -> None:
    """Token by token and in blocks with refused nodes."""
    lane, reference = Lane("target", toys.pair()[0].decoder, policy()), masked()
    text = toys.prompts(1, 60, seed=4)[0]
    assert torch.allclose(lane.read(text[:20]), reference.read(text[:20])[-1], atol=1e-10)
    at = 20
    while at < 50:
        block = text[at : at + 1 + at % 3]
        rows = [2 * i for i in range(len(block))]
        logits = lane.forward(tree(block, at))
        lane.commit(rows)
        assert torch.allclose(logits[0, rows], reference.read(block), atol=1e-10)
        assert held(lane) == reference.kept
        at += len(block)
    assert lane.cache.lengths() == [12, 7, 4] and lane.cache.held == 12


def tree(block: list[int], at: int) -> Feed:
    """The block as a chain from its first token, beside each further one a node that is refused."""
    tokens = [t for token in block[1:] for t in ((token + 5) % 13, token)]
    return Draft(tokens, [2 * (i // 2) - 1 for i in range(len(tokens))]).feed(block[0], at)


def test_the_record_says_what_each_layer_holds(session: Session, tmp_path: Path) -> None:
    trace = open_trace(session.sink.save(tmp_path / "run.dstrace"), verify=True)
    report = check(trace)
    assert report.ok and report.counts["cache changes"] == 1 + len(trace.steps), report
    assert sum(step.drafted - step.accepted for step in trace.steps) > 20, "the test needs refused nodes"
    lives, length = Lives.of(trace), len(session.tokens) - 1
    due = held(session.target)
    rows = [np.flatnonzero(row).tolist() for row in lives.kept(lives.count - 1)]
    assert rows == [heads for layer in due for heads in layer]
    last = trace.steps[-1].cache[0]
    assert last.by_head.tolist() == [[12] * 2, [7] * 2, [4] * 2] and last.held == 12
    assert last.kept_bytes(length) == lives.kept_bytes(lives.count - 1) == last.full_bytes * 46 // (6 * length)
    assert [one.held for one in trace.steps[-1].passes] == [[12, 7, 4]]
    assert frame(trace, "passes")["held"].max() == 14, "of the fullest layer: the prompt, before the first cut"
    for before, step in pairwise(trace.steps):
        assert step.fields.attention.shape[-1] == 12 + len(step.emitted)
        padded = (step.fields.positions < 0).sum((1, 2)).tolist()
        assert padded == [0, 10, 16] or before.step == 0


def test_a_pass_costs_what_each_layer_holds(session: Session) -> None:
    spec, trace = toys.SPEC, session.sink
    passes = Passes(trace.header)
    step = trace.steps[-1]
    each = [12, 7, 4]
    one = Pass("target", "verify", 1, each, 1.0)
    read = [op.kv_read_bytes for op in ops_of(spec, one, bits=64) if op.name == "attention"]
    assert read == [2 * (n + 1) * 2 * 8 * 8 for n in each]
    assert passes.cost(one).kv_read_bytes == sum(read)
    assert passes.cost(Pass("target", "verify", 1, 12, 1.0)).kv_read_bytes == 3 * read[0]
    by_head = Pass("target", "verify", 2, [[12, 3], [7, 7], [4, 1]], 1.0)
    ops = [op for op in ops_of(spec, by_head, bits=64) if op.name == "attention"]
    assert [op.kv_read_bytes for op in ops] == [2 * (a + b + 4) * 8 * 8 for a, b in by_head.held]
    assert [op.flops for op in ops] == [(4 * 8 + 5) * 2 * sum(2 * n + 3 for n in heads) for heads in by_head.held]
    assert by_head.entries == 34 / 6 and by_head.fullest == 12
    assert passes.cost(step.passes[0], step.draft).kv_read_bytes == sum(2 * (n + step.passes[0].tokens) * 128 for n in each)


@pytest.mark.parametrize("lie", ["one more", "another head", "no such layer"])
def test_a_lie_about_a_layer_is_found(session: Session, lie: str) -> None:
    trace = copy.deepcopy(session.sink)
    change = trace.steps[5].cache[0]
    if lie == "one more":
        change.by_head[1, 0] += 1
    elif lie == "another head":
        change.evicted[0, 1] ^= 1
    else:
        change.by_head = change.by_head[:2]
    assert any("holds" in str(x) or "hold other" in str(x) for x in check(trace).problems)
