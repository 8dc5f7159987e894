"""Window and StreamingLLM: which entries are kept, at which positions, against an explicit mask and a full re-rotation."""

from __future__ import annotations

import pytest
import torch
import toys
from masked import Keep, Masked, rotated
from toys import feed_tokens

from decodescope.engine.core.component import build
from decodescope.engine.core.probe import Needs
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.rope import rotate_
from decodescope.engine.session.method import MethodError

DECODER = toys.pair()[0].decoder
WINDOWED = toys.decoder(toys.toy_spec(windows=(9, None, 4)), toys.LIVELY, torch.float64)


def lane(name: str, decoder: Decoder = DECODER, **settings: int) -> Lane:
    return Lane("target", decoder, build("policy", name, settings))


def streaming(sinks: int, recent: int) -> Keep:
    return lambda kept, _, n: [p for p in kept if p < sinks or p >= n - recent]


def read(reference: Masked, tokens: list[int]) -> torch.Tensor:
    """Logits [T, V] of tokens; each sees what would be held if they came one by one."""
    return torch.cat([reference.read([token]) for token in tokens])


@pytest.mark.parametrize("size", [1, 5, 12, 100])
@pytest.mark.parametrize("decoder", [DECODER, WINDOWED], ids=["plain", "windowed"])
@torch.inference_mode()
def test_window_equals_an_explicit_mask_at_original_positions(size: int, decoder: Decoder) -> None:
    made = lane("window", decoder, window=size)
    reference = Masked(decoder, lambda kept, _, n: [p for p in kept if p >= n - size])
    assert torch.allclose(made.read(toys.PROMPT), read(reference, toys.PROMPT)[-1], atol=1e-10)
    for block in ([3], [1, 4], [5], [9, 2, 6], [8]) * 3:
        assert torch.allclose(feed_tokens(made, *block), read(reference, block), atol=1e-10)
        assert sorted(made.cache.layers[0].positions()[0, 0].tolist()) == reference.kept[0][0]


@pytest.mark.parametrize(("sinks", "recent"), [(0, 1), (0, 6), (1, 1), (2, 6), (4, 12), (4, 200)])
@pytest.mark.parametrize("decoder", [DECODER, WINDOWED], ids=["plain", "windowed"])
@torch.inference_mode()
def test_streaming_equals_raw_keys_that_are_all_rotated_anew(
    sinks: int, recent: int, decoder: Decoder
) -> None:
    """A layer's own window counts positions in the cache too: a window as wide as the cache always includes the sinks."""
    made = lane("streaming_llm", decoder, sink_tokens=sinks, recent=recent)
    reference = Masked(decoder, streaming(sinks, recent), in_cache=True)
    assert torch.allclose(made.read(toys.PROMPT), read(reference, toys.PROMPT)[-1], atol=1e-10)
    for block in ([3], [1, 4], [5], [9, 2, 6], [8]) * 4:
        assert torch.allclose(feed_tokens(made, *block), read(reference, block), atol=1e-10)
        assert sorted(made.cache.layers[0].positions()[0, 0].tolist()) == reference.kept[0][0]
    assert made.cache.fullest_length == min(sinks + recent, 47)


@torch.inference_mode()
def test_streaming_in_float32_is_within_its_rounding() -> None:
    decoder = toys.decoder(toys.SPEC, toys.LIVELY, torch.float32)
    made, reference = (
        lane("streaming_llm", decoder, sink_tokens=2, recent=8),
        Masked(decoder, streaming(2, 8), in_cache=True),
    )
    # logits up to 11
    assert torch.allclose(made.read(toys.PROMPT), read(reference, toys.PROMPT)[-1], atol=1e-5 * 11)
    for block in ([3], [1, 4], [5, 9, 2]):
        assert torch.allclose(feed_tokens(made, *block), read(reference, block), atol=1e-5 * 11)


@pytest.mark.parametrize("needs", [Needs(), Needs("rows")], ids=["fused", "explicit"])
@pytest.mark.parametrize("decoder", [DECODER, WINDOWED], ids=["plain", "windowed"])
@torch.inference_mode()
def test_in_a_tree_each_path_is_read_as_a_chain(decoder: Decoder, needs: Needs) -> None:
    """In one pass, and in several passes with rows that wait for a verdict."""
    made = Lane(
        "target", decoder, build("policy", "streaming_llm", dict(sink_tokens=2, recent=8)), needs=needs
    )
    made.read(toys.PROMPT)
    tree = Draft([3, 1, 4, 6, 5], [ROOT, ROOT, 0, 0, 2])
    logits = made.forward(tree.build_feed(8, len(made.tokens)))[0]
    made.rollback()
    for path in ([1], [0, 3], [0, 2, 4]):
        chain = [8, *(tree.tokens[node] for node in path)]
        alone = made.forward(Feed.causal_chain(chain, len(made.tokens)))[0]
        made.rollback()
        assert torch.allclose(logits[[0, *(node + 1 for node in path)]], alone, atol=1e-10)
    begin, pieces = len(made.tokens), ((0, [8]), (1, [3, 4]), (3, [5]))
    parts = [made.forward(Feed.causal_chain(tokens, begin + at))[0] for at, tokens in pieces]
    assert torch.allclose(torch.cat(parts), alone, atol=1e-10)


@torch.inference_mode()
def test_far_beyond_the_context_a_distance_is_still_a_distance() -> None:
    """Float32 angles leave an error of 7e-3 in logits up to 11 at position 100,000; float64 angles leave only rounding."""
    text, logits = toys.PROMPT * 2, []
    for context, start in ((32, 0), (32, 100_000), (200_000, 100_000)):
        decoder = toys.decoder(toys.toy_spec(max_positions=context), toys.LIVELY, torch.float32)
        logits.append(decoder.forward(Feed.causal_chain(text, start), None))
    assert torch.allclose(logits[1], logits[0], atol=1e-4)
    assert (logits[2] - logits[0]).abs().max() > 1e-3, "the guard: what a table of float32 angles leaves"


@pytest.mark.parametrize("needs", [Needs(), Needs("columns")], ids=["fused", "explicit"])
@torch.inference_mode()
def test_a_prompt_beyond_the_context_is_read_in_constant_memory(
    needs: Needs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks do not change the logits; positions and memory stay below those of a cache and a chunk."""
    monkeypatch.setattr("decodescope.engine.decoding.bases.lane.CHUNK", 64)
    decoder = toys.decoder(toys.toy_spec(max_positions=32), toys.LIVELY, torch.float64)
    made = Lane(
        "target", decoder, build("policy", "streaming_llm", dict(sink_tokens=2, recent=20)), needs=needs
    )
    prompt, widest, columns = toys.prompts(1, 300, seed=2)[0], set(), []

    def watch(lane: Lane, rows: list[int], before: list[int]) -> None:
        widest.add(lane.cache.layers[0].capacity)
        columns.append((len(rows), {} if lane.probe is None else lane.probe.columns))

    made.watch = watch
    logits = made.read(prompt)
    assert torch.allclose(
        logits, read(Masked(decoder, streaming(2, 20), in_cache=True), prompt)[-1], atol=1e-10
    )
    assert widest <= {64, 96} and made.cache.layers[0].capacity <= 96 and made.cache.fullest_length == 22
    assert len(decoder.rope._table) == 32 and [count for count, _ in columns] == [64] * 4 + [44]
    for count, seen in columns:  # each query head gives one unit
        assert all(torch.allclose(x.sum(2), torch.full((1, 2), 2.0 * count)) for x in seen.values())


def test_rotation_is_a_group_action() -> None:
    """A key rotated to 3 and then by 4 is the key rotated to 7: re-rotating by the difference is the same.

    The decoder's own rotation is that of the reference.
    """
    key = torch.randn(1, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def turned(x: torch.Tensor, at: int) -> torch.Tensor:
        made = x.clone()[:, None]  # [1, heads, D]
        rotate_(made, *DECODER.rope_of(0).at(torch.tensor([at]), at))
        return made[:, 0]

    assert torch.allclose(turned(turned(key, 3), 4), turned(key, 7), atol=1e-6)
    assert torch.allclose(turned(key, 7), rotated(key, torch.tensor([7]), DECODER), atol=1e-12)


@pytest.mark.parametrize(
    ("name", "settings"), [("window", {"window": 30}), ("streaming_llm", {"sink_tokens": 4, "recent": 26})]
)
@torch.inference_mode()
def test_bytes_follow_the_formula_and_do_not_grow(name: str, settings: dict[str, int]) -> None:
    """2 L H_kv S D b for keys and values; after evictions also 4 L H_kv S for positions. S is the capacity in whole pages."""
    made, spec = lane(name, **settings), toys.SPEC
    made.read(toys.PROMPT)
    for token in toys.prompts(1, 150, seed=1)[0]:
        feed_tokens(made, token)
        store = made.cache.layers[0]
        entry = 2 * spec.head_dim * 8 + (0 if store.in_order else 4)
        assert (
            made.cache.nbytes == spec.n_layers * spec.n_kv_heads * store.capacity * entry
            and store.capacity <= 48
        )
    assert made.cache.fullest_length == 30 and not made.cache.layers[0].in_order


def test_streaming_runs_beyond_the_trained_context_in_constant_memory() -> None:
    small = toys.model(toys.decoder(toys.toy_spec(max_positions=32), toys.LIVELY, torch.float64))
    policy = ("streaming_llm", {"sink_tokens": 2, "recent": 10})
    session = toys.decode(toys.method(policy=policy), count=150, pair=(small, small))
    assert session.end.reason == "max_new_tokens" and len(session.tokens) == 165
    assert len({step.cache[0].held_bytes for step in session.sink.steps}) == 1
    assert {step.cache[0].held for step in session.sink.steps} == {12}
    kept = sorted(session.target.cache.layers[0].positions()[0, 0].tolist())
    assert kept == [0, 1, *range(154, 164)]
    plain = toys.decode(toys.method(policy=("window", {"window": 12})), count=150, pair=(small, small))
    assert plain.end.reason == "context_full" and len(plain.tokens) == 32


def test_what_is_wider_than_the_context_is_limited_by_it() -> None:
    """Sinks and window must fit into the positions that the model knows; otherwise a text ends at the context."""
    small = toys.model(toys.decoder(toys.toy_spec(max_positions=32), toys.LIVELY, torch.float64))
    for recent, share, reason in (
        (30, 0.0, "context_full"),
        (29, 0.0, "max_new_tokens"),
        (29, 1.0, "max_new_tokens"),
    ):
        policy = ("streaming_llm", {"sink_tokens": 2, "recent": recent, "budget_share": share})
        session = toys.decode(toys.method(policy=policy), count=40, pair=(small, small))
        assert session.end.reason == reason and len(session.tokens) == (
            32 if reason == "context_full" else 55
        )
    for more, reason in (
        ({}, "max_new_tokens"),
        ({"middle_distance": 32}, "context_full"),
        ({"window": 30}, "context_full"),
    ):
        policy = (
            "lm_infinite",
            {"sink_tokens": 2, "window": 16, "middle_top_k": 2, "first_middle_layer": 0, **more},
        )
        assert toys.decode(toys.method(policy=policy), count=40, pair=(small, small)).end.reason == reason
    sentence = r"toy reads at most 32 .* or use the policy streaming_llm with recent = 14, which keeps 16 entries: .*\.$"
    with pytest.raises(MethodError, match=sentence):
        toys.decode(
            toys.method(policy=("streaming_llm", {"sink_tokens": 2, "recent": 40})),
            toys.PROMPT * 3,
            pair=(small, small),
        )


def test_streaming_with_speculation_evicts_at_commits_only() -> None:
    """Each row of a draft sees what it would see one by one, with its sinks at the positions that they would have."""
    parts = dict(policy=("streaming_llm", {"sink_tokens": 2, "recent": 8}))
    session = toys.decode(toys.method(**parts, drafter=("draft_model", {"max_draft_tokens": 4})), count=60)
    for step in session.sink.steps:
        assert step.cache[0].appended == len(step.emitted) and step.cache[0].held == 10
        assert step.cache[0].evicted_count == len(step.emitted)
    reference = Masked(DECODER, streaming(2, 8), in_cache=True)
    read(reference, toys.PROMPT[:-1])
    text, at = session.tokens, len(toys.PROMPT) - 1
    with torch.inference_mode():
        for step in session.sink.steps:
            logits = read(reference, text[at : at + len(step.emitted)])
            assert logits.argmax(-1).tolist() == step.emitted
            at += len(step.emitted)
    assert sum(step.accepted for step in session.sink.steps) > 5
