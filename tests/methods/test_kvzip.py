"""KVzip: one cut over all heads by the attention of a repetition, no trace of the repetition, and the full cache if it fits."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
import toys
from torch import Tensor
from voted import held, sharp

from decodescope.engine.core.component import build
from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check
from decodescope.engine.trace.checks.notes import declared_notes

KNOBS = dict(sink_tokens=2, prompt_budget=6, window=3, chunk=9, prefix_tokens=2)
N = 40


def lane(decoder: Decoder, ask: bool = True, **settings: Any) -> Lane:
    made = Lane("target", decoder, build("policy", "kvzip", {**KNOBS, **settings}))
    made.encode = (lambda text: [7, 3] if "part" in text else [5]) if ask else None
    made.policy.begin(decoder.spec, N)
    return made


def repeated(decoder: Decoder, text: list[int], at: int, end: int, asked: list[int]) -> Tensor:
    """Per layer and KV head the largest softmax weight of each entry from `at` to `end`: [L, H_kv, end - at].

    Computed from a separate cache, with logits one layer at a time.
    """
    full, behind = Lane("full", decoder, build("policy", "keep_all")), [*asked, *text[at:end]]
    full.read(text)
    full.needs = type(full.needs)(queries=len(behind))
    full.forward(Feed.causal_chain(behind, N))
    worth, among = [], [*range(2), *range(at, end), *range(N, N + len(behind))]
    for i, store in enumerate(full.cache.layers):
        q, k = full.probe.queries[i][0], store.k[0]  # [H_kv, g, T, D], [H_kv, n + T, D]
        logits = torch.einsum("hgtd,hkd->hgtk", q, k[:, among]) * decoder.spec.head_dim**-0.5
        for t in range(len(behind)):
            logits[:, :, t, len(among) - len(behind) + t + 1 :] = -torch.inf
        worth.append(logits.softmax(-1)[..., 2 : 2 + end - at].amax((1, 2)))
    return torch.stack(worth)


@pytest.mark.parametrize(("layout", "ask"), [(4, True), (2, True), (2, False), (1, True)])
@torch.inference_mode()
def test_one_cut_over_all_layers_and_heads_by_what_repeating_looks_at(layout: int, ask: bool) -> None:
    decoder, text = sharp(3, n_kv_heads=layout), toys.prompts(1, N, 3)[0]
    made = lane(decoder, ask)
    made.read(text)
    asked = lambda at: [] if not ask else [5] if at == 2 else [7, 3]  # noqa: E731 # short
    pieces = [(2, 11), (11, 20), (20, 29), (29, 37)]
    worth = torch.cat(
        [repeated(decoder, text, a, b, asked(a) + (text[a - 2 : a] if a > 2 else [])) for a, b in pieces], -1
    )
    every = sorted(
        product(range(35), range(2), range(layout)), key=lambda x: (-float(worth[x[1], x[2], x[0]]), *x)
    )
    best = every[: 2 * layout * 6]
    chosen = [
        [sorted(p + 2 for p, i, h in best if (i, h) == (a, b)) for b in range(layout)] for a in range(2)
    ]
    due = [[[0, 1, *row, 37, 38, 39] for row in heads] for heads in chosen]
    assert held(made) == due
    assert layout == 1 or len({len(x) for heads in due for x in heads}) > 1, (
        "the test needs heads that keep different numbers"
    )


@torch.inference_mode()
def test_nothing_is_left_of_the_repetition() -> None:
    """No entry, token, position or byte is left; the record has the passes, and the next token follows the prompt."""
    decoder, text = sharp(4), toys.prompts(1, N, 4)[0]
    made, other = (lane(decoder, chunk=chunk) for chunk in (2000, 9))
    logits = [x.read(text) for x in (made, other)]
    assert torch.equal(*logits) and made.tokens == text and made.cache.length == N and made.probe is None
    assert [(x.phase, x.tokens, x.held) for x in made.passes] == [("catch_up", N, 0), ("score", 36, N)]
    assert [x.tokens for x in other.passes] == [N, 10, 13, 13, 12] and {x.held for x in other.passes[1:]} == {
        N
    }
    for x in (made, other):
        assert all(store.m == 0 and store.pending_positions() is None for store in x.cache.layers)
        assert max(p for heads in held(x) for row in heads for p in row) == N - 1
    assert made.cache.nbytes == other.cache.nbytes
    plain = lane(decoder, prompt_budget=100)
    plain.read(text)
    assert len(plain.passes) == 1 and plain.cache.fullest_length == N, "a prompt with room is not repeated"
    assert plain.cache.memory.peak < other.cache.memory.peak, "and no memory for it is held"


def test_with_room_for_all_the_text_is_plain_bit_for_bit() -> None:
    plain = toys.decode(prompt=toys.PROMPT * 3, count=12)
    roomy = toys.decode(
        toys.method(policy=("kvzip", {**KNOBS, "prompt_budget": 60})), toys.PROMPT * 3, count=12
    )
    assert roomy.tokens == plain.tokens
    assert all((a.tops.p == b.tops.p).all() for a, b in zip(roomy.sink.steps, plain.sink.steps, strict=True))


def test_the_trace_tells_passes_threshold_and_what_each_head_kept() -> None:
    run = toys.decode(toys.method(policy=("kvzip", KNOBS)), toys.PROMPT * 3, count=8)
    first, *later = run.sink.steps
    assert check(run.sink).ok
    assert [x.phase for x in first.passes] == ["verify", *["score"] * 5] and all(
        len(x.passes) == 1 for x in later
    )
    notes = declared_notes(run.sink.header, first)["policy"]
    assert sum(notes["kept"].values()) == 6 * 6 and 0 < notes["threshold"] < 1
    held = zip(product(range(3), range(2)), first.cache[0].by_head.ravel(), strict=True)
    assert {f"{i}.{h}": int(x) - 5 for (i, h), x in held} == notes["kept"]


def test_a_prompt_that_leaves_no_room_to_repeat_it_is_refused() -> None:
    policy = build("policy", "kvzip", KNOBS)
    policy.begin(toys.SPEC, toys.SPEC.max_positions - 64)
    with pytest.raises(ParamError, match="repeats the prompt behind itself"):
        policy.begin(toys.SPEC, toys.SPEC.max_positions - 63)
