"""DuoAttention: which heads stream, what they hold and see, which pages are returned, and that drafts do not change texts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toys
from masked import Keep, Masked

from decodescope.engine.core.component import build
from decodescope.engine.core.probe import Needs
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import PAGE
from decodescope.engine.session.method import Method, MethodError
from decodescope.engine.trace import check
from decodescope.engine.trace.checks.notes import declared_notes

DECODER = toys.pair()[0].decoder
WINDOWED = toys.decoder(toys.toy_spec(windows=(9, None, 4)), toys.LIVELY, torch.float64)


def lane(decoder: Any = DECODER, prompt: int = 45, needs: Needs | None = None, **settings: Any) -> Lane:
    made = Lane("target", decoder, build("policy", "duo_attention", settings), needs=needs)
    made.policy.attach_heads(decoder.heads)
    made.policy.begin(decoder.spec, prompt)
    return made


def streaming(made: Lane) -> list[list[bool]]:
    """By layer and KV head, from the gates: the heads with the lowest gates stream, as many as requested."""
    gates = made.decoder.heads["duo_attention"].alpha.flatten().tolist()
    lowest = sorted(range(6), key=lambda i: gates[i])[: round(6 * made.policy.streaming_share + 0.49)]
    return [[2 * i + h in lowest for h in range(2)] for i in range(3)]


@pytest.mark.parametrize("needs", [Needs(), Needs("rows")], ids=["fused", "explicit"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("decoder", [DECODER, WINDOWED], ids=["plain", "windowed"])
@torch.inference_mode()
def test_it_equals_a_mask_by_head_over_a_full_cache(
    decoder: Any, share: float, needs: Needs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Token by token, in chunks, and in drafts: all rows see the same entries."""
    monkeypatch.setattr("decodescope.engine.decoding.bases.lane.CHUNK", 7)
    made = lane(decoder, needs=needs, streaming_share=share, sink_tokens=2, recent=6)
    streams, prompt = streaming(made), toys.PROMPT * 3
    keeps: list[list[Keep]] = [
        [
            (lambda kept, _, n: [p for p in kept if p < 2 or p >= n - 6]) if x else (lambda kept, _, n: kept)
            for x in row
        ]
        for row in streams
    ]
    reference = Masked(decoder, keeps)
    expected = [reference.read([token])[0] for token in prompt][-1]
    assert torch.allclose(made.read(prompt), expected, atol=1e-10)
    for block in ([3], [1, 4], [5], [9, 2, 6], [8]) * 3:
        logits = made.forward(Feed.causal_chain(block, len(made.tokens)))[0]
        made.commit(list(range(len(block))))
        assert torch.allclose(logits, torch.cat([reference.read([token]) for token in block]), atol=1e-10)
        for store, rows in zip(made.cache.layers, reference.kept, strict=True):
            at = store.positions()[0].expand(2, -1).tolist()
            assert [sorted(p for p in row if p >= 0) for row in at] == rows
    assert {x for row in streams for x in row} == (
        {False} if share == 0 else {True} if share == 1 else {True, False}
    )


@torch.inference_mode()
def test_with_no_streaming_head_it_is_the_full_cache_bit_for_bit() -> None:
    text = toys.PROMPT * 3
    assert torch.equal(
        lane(streaming_share=0.0, recent=3).read(text),
        Lane("plain", DECODER, build("policy", "keep_all")).read(text),
    )


@torch.inference_mode()
def test_pages_of_streaming_heads_are_returned_while_the_prompt_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Streaming heads never hold more than their budget and a chunk, in pages."""
    monkeypatch.setattr("decodescope.engine.decoding.bases.lane.CHUNK", 32)
    made, most = lane(streaming_share=0.5, sink_tokens=4, recent=12), 0
    streams = streaming(made)
    page = 2 * PAGE * 8 * 8  # keys and values of 8 numbers of 8 bytes

    def watch(lane: Lane, rows: list[int], before: list[int]) -> None:
        nonlocal most
        for store, row in zip(lane.cache.layers, streams, strict=True):
            if store.heads is not None:
                most = max(most, *(x for x, yes in zip(store.heads.bytes_by_head(), row, strict=True) if yes))

    made.watch = watch
    made.read(toys.prompts(1, 400, seed=3)[0])
    mixed = [store for store, row in zip(made.cache.layers, streams, strict=True) if len(set(row)) == 2]
    assert mixed and most <= 4 * page, "16 entries, 32 of the chunk, and a page to grow"
    for token in toys.prompts(1, 8, seed=4)[0]:
        made.forward(Feed.causal_chain([token], len(made.tokens)))
        made.commit([0])
    for store, row in zip(made.cache.layers, streams, strict=True):
        assert store.lengths == [16 if x else 408 for x in row]
        if store in mixed:
            held = store.heads.bytes_by_head()
            assert all(x <= 3 * page if yes else x >= 26 * page for x, yes in zip(held, row, strict=True))


@pytest.mark.parametrize("share", [0.9, 0.5, 0.2, 0.05])
@torch.inference_mode()
def test_a_share_of_the_prompt_is_what_all_heads_together_hold(share: float) -> None:
    prompt = toys.prompts(1, 480, seed=5)[0]
    made = lane(prompt=480, budget_share=share)
    made.read(prompt)
    held = sum(n for store in made.cache.layers for n in store.lengths)
    assert 480 * 6 * share - 480 < held <= 480 * 6 * share, "to within a head"
    by_hand = lane(prompt=480, budget_share=0.5, retrieval_heads="0.1 2.0")
    by_hand.read(prompt)
    assert [store.lengths[h] == 480 for store in by_hand.cache.layers for h in range(2)] == [0, 1, 0, 0, 1, 0]
    assert 0.48 < sum(n for store in by_hand.cache.layers for n in store.lengths) / (480 * 6) <= 0.5


def test_the_trace_tells_gates_and_kinds_of_heads_once() -> None:
    method = toys.method(policy=("duo_attention", dict(sink_tokens=1, recent=5)))
    trace = toys.decode(method, toys.PROMPT * 2, count=12).sink
    first, *others = [declared_notes(trace.header, step).get("policy") for step in trace.steps]
    assert not any(others) and sorted(first["retrieval"].values()) == [0, 0, 0, 1, 1, 1]
    kept = {name for name, x in first["retrieval"].items() if x}
    assert min(first["alpha"][x] for x in kept) > max(
        x for name, x in first["alpha"].items() if name not in kept
    )
    assert check(trace).ok


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, r"toy has no heads/duo_attention: train them with .* or choose its retrieval heads by hand"),
        (
            {"retrieval_heads": "0.1 3.0"},
            r"retrieval_heads names '3\.0': .* layers 0 to 2 and KV heads 0 to 1\.",
        ),
        ({"retrieval_heads": "0.1 two"}, r"retrieval_heads names '0\.1 two': give heads as layer\.head"),
    ],
)
def test_what_cannot_be_is_one_sentence(settings: dict, sentence: str) -> None:
    method = Method.of({"policy": "duo_attention"} | {f"policy.{name}": x for name, x in settings.items()})
    with pytest.raises(MethodError, match=sentence):
        method.check(toys.toy_spec(heads=()))
    Method.of({"policy": "duo_attention", "policy.streaming_share": 0.0}).check(toys.toy_spec(heads=()))
