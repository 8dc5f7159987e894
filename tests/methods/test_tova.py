"""TOVA: one set for a layer, which follows from the previous set and the newest row, and from nothing else."""

from __future__ import annotations

import pytest
import torch
import toys
from masked import Masked
from voted import best, held, sharp

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed

SIZE = 6


def tova(decoder: Decoder) -> Lane:
    return Lane("target", decoder, build("policy", "tova", dict(cache_size=SIZE)))


def cut(reference: Masked) -> int:
    """Let the reference keep in each layer the entries with most of the last row's attention; count how often its own left."""
    newest = 0
    for i, heads in enumerate(reference.kept):
        given = (reference.mass[i].sum(0) / reference.spec.n_heads).tolist()
        kept = (
            [heads[0][k] for k in best([given[p] for p in heads[0]], SIZE)]
            if len(heads[0]) > SIZE
            else heads[0]
        )
        reference.kept[i] = [kept for _ in heads]
        newest += reference.n - 1 not in kept
    return newest


@pytest.mark.parametrize("layout", [4, 2, 1])
@torch.inference_mode()
def test_equals_an_explicit_mask_and_the_newest_may_go(layout: int) -> None:
    """Token by token after a prompt: the same sets and logits; sometimes a token's own entry leaves at once."""
    decoder = sharp(n_kv_heads=layout)
    for store in decoder.layers:
        store.qkv *= 2
    lane, reference = tova(decoder), Masked(decoder, lambda held, mass, n: held)
    text = toys.prompts(1, 50)[0]
    lane.read(text[:19], compress=False)
    reference.read(text[:19])
    newest, sets = 0, set()
    for at in range(19, 50):
        reference.mass.zero_()
        logits = lane.forward(Feed.causal_chain([text[at]], at))
        lane.commit([0])
        assert torch.allclose(logits[0], reference.read([text[at]]), atol=1e-10)
        newest += cut(reference)
        assert held(lane) == reference.kept
        sets |= {tuple(heads[0]) for heads in reference.kept}
    assert newest > 3 and len(sets) > 20, "the test needs newest entries that leave, and sets that change"


@torch.inference_mode()
def test_nothing_is_remembered() -> None:
    """Two lanes that hold and read the same keep the same, whatever attention their entries received before."""
    lanes = [tova(sharp()) for _ in range(2)]
    for lane in lanes:
        lane.read(toys.PROMPT)
    for store in lanes[1].cache.layers:
        store.column("given").uniform_()
    for token in (3, 1, 4, 1, 5):
        for lane in lanes:
            lane.forward(Feed.causal_chain([token], len(lane.tokens)))
            lane.commit([0])
        assert held(lanes[0]) == held(lanes[1])


@torch.inference_mode()
def test_a_block_is_cut_by_the_row_of_its_last_accepted_token() -> None:
    """Rejected nodes count for nothing, nor do the rows of the tokens before the last."""
    lane, due = tova(sharp()), []

    def watch(lane: Lane, rows: list[int], before: list[int]) -> None:
        for i, store in enumerate(lane.cache.layers):
            given = lane.attention(i, rows, before)[0, :, :, -1].mean((0, 1)).tolist()
            positions = store.positions()[0, 0].tolist()
            order = sorted(range(len(given)), key=lambda k: (-given[k], positions[k]))
            due.append(sorted(positions[k] for k in order[:SIZE]))

    lane.read(toys.PROMPT)
    lane.watch, start = watch, len(toys.PROMPT)
    lane.forward(Draft([7, 2, 8, 9], [-1, 0, 0, 2]).build_feed(4, start))
    lane.commit([0, 1, 3])  # the root, 7 and 8; 2 and 9 were rejected
    assert held(lane) == [[x, x] for x in due]
    other = tova(sharp())
    other.read(toys.PROMPT)
    other.forward(Feed.causal_chain([4, 7, 8], start))
    other.commit([0, 1, 2])
    assert held(other) == held(lane) and any(start + 2 in x for x in due)


def test_the_prompt_is_read_by_fused_passes_and_only_its_last_row_counts() -> None:
    session = toys.decode(toys.method(policy=("tova", dict(cache_size=SIZE))), toys.PROMPT * 3, count=6)
    assert session.sink.prefill.cache[0].held == 44 and session.sink.steps[0].cache[0].held == SIZE
    assert session.target.needs.attention == "decode" and session.target.needs.queries == 0
    lane = Lane("plain", toys.pair()[0].decoder, build("policy", "tova", dict(cache_size=SIZE)))
    with torch.inference_mode():
        lane.forward(Feed.causal_chain(toys.PROMPT, 0, logits="last"))
    assert lane.probe is not None and not lane.probe.rows and not lane.probe.columns
