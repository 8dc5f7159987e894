"""SpecKV: with the target as its own draft the oracle's choice, without a lookahead SnapKV, and no trace of the lookahead."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
import toys
from voted import best, held, maps, sharp

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.trace import check
from decodescope.engine.trace.checks.notes import declared_notes

KNOBS = dict(prompt_budget=6, window=4, lookahead=7, pool_radius=1)
N = 36


def lane(decoder: Decoder, name: str = "speckv", **settings: Any) -> Lane:
    """A lane with its own decoder as the draft model."""
    made = Lane("target", decoder, build("policy", name, settings))
    made.open = lambda role, needs: Lane(role, decoder, build("policy", "keep_all"), needs=needs)
    made.policy.begin(decoder.spec, N)
    return made


@pytest.mark.parametrize(("layout", "reduce"), [(4, "max"), (2, "max"), (2, "mean"), (1, "max")])
@torch.inference_mode()
def test_with_the_target_as_its_own_draft_it_is_the_oracle(layout: int, reduce: str) -> None:
    """The maps are those of the text that greedy decoding writes with the full cache, and of the prompt's end."""
    decoder, text = sharp(2, n_kv_heads=layout), toys.prompts(1, N, 2)[0]
    made, written = lane(decoder, **KNOBS, reduce=reduce), toys.greedy_text(decoder, text, 7)
    made.read(text)
    kept, alone = [], []
    for full in maps(decoder, text + written):
        for rows, kept_of in ((full[:, :, N - 4 :], kept), (full[:, :, N - 4 : N], alone)):
            votes = rows[..., : N - 4].double().flatten(1, 2)  # [H_kv, g * rows, n - w]
            votes = (votes.amax(1) if reduce == "max" else votes.mean(1)).tolist()
            pooled = [[max(row[max(0, p - 1) : p + 2]) for p in range(N - 4)] for row in votes]
            kept_of.append([best(row, 6) + list(range(N - 4, N)) for row in pooled])
    assert held(made) == kept and kept != alone, "the lookahead decides"


@torch.inference_mode()
def test_without_a_lookahead_and_with_means_it_is_snapkv() -> None:
    for seed, reach in product(range(3), (0, 2)):
        decoder, text = sharp(seed), toys.prompts(1, N, seed)[0]
        knobs = dict(prompt_budget=6, window=5, pool_radius=reach, pool="mean")
        made, snap = lane(decoder, **knobs, lookahead=0, reduce="mean"), lane(decoder, "snapkv", **knobs)
        for x in (made, snap):
            x.read(text)
        assert held(made) == held(snap) and len(made.passes) == 1, "nobody is asked"


@torch.inference_mode()
def test_nothing_is_left_of_the_lookahead() -> None:
    decoder, text = sharp(1), toys.prompts(1, N, 1)[0]
    made, snap = lane(decoder, **KNOBS), lane(decoder, "snapkv", prompt_budget=6, window=4)
    assert torch.equal(made.read(text), snap.read(text)) and made.tokens == text and made.cache.length == N
    assert all(store.m == 0 and store.n == 10 for store in made.cache.layers)
    assert made.cache.nbytes == snap.cache.nbytes and not made.needs
    assert made.probe.queries[0].shape == snap.probe.queries[0].shape, "the last pass is that of the prompt"
    assert [(x.lane, x.tokens) for x in made.passes] == [
        ("target", N),
        ("draft", N),
        *[("draft", 1)] * 6,
        ("target", 7),
    ]


def test_a_run_with_a_draft_model_is_told_and_keeps_no_lane_of_it() -> None:
    prompt = toys.PROMPT * 3
    run = toys.decode(toys.method(policy=("speckv", KNOBS)), prompt, count=8)
    first, *later = run.sink.steps
    assert check(run.sink).ok and set(run.sink.header.lanes) == {"draft"} and not run.lanes
    assert [x.lane for x in first.passes] == ["target", *["draft"] * 7, "target"] and all(
        len(x.passes) == 1 for x in later
    )
    assert declared_notes(run.sink.header, first)["policy"][
        "lookahead"
    ] == 7 and "policy" not in declared_notes(run.sink.header, later[0])
    with_draft = toys.decode(
        toys.method(policy=("speckv", KNOBS), drafter=("draft_model", dict(max_draft_tokens=3))),
        prompt,
        count=8,
    )
    assert with_draft.tokens == run.tokens and set(with_draft.lanes) == {"draft"}
    short = toys.decode(toys.method(policy=("speckv", KNOBS)), prompt[:10], count=8)
    assert [x.lane for x in short.sink.steps[0].passes] == ["target"]
