"""FastGen: profiles from the full maps, the first candidate that recovers enough, and evictions as a replay gives them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import toys
from voted import maps, sharp

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.methods.policies.fastgen import CANDIDATES
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check
from decodescope.engine.trace.checks.notes import declared_notes

TEXT = toys.prompts(1, 90, seed=8)[0]
MARKS, POINTS = frozenset({5}), {2: " ,", 9: "...", 3: "a.", 4: " "}  # ids 2 and 9 are punctuation
SETTINGS: dict[str, Any] = dict(sink_tokens=1, heavy_share=0.2, recent_share=0.15)
N = 40


def lane(recover: float, decoder: Any = None, **more: Any) -> Lane:
    made = Lane(
        "target", decoder or sharp(), build("policy", "fastgen", dict(SETTINGS, min_recovery=recover, **more))
    )
    made.policy.begin(made.decoder.spec, N, lambda x: POINTS.get(x, "a"), MARKS)
    return made


def held(made: Lane) -> list[list[list[int]]]:
    """Positions by layer and KV head."""
    return [
        [sorted(p for p in row if p >= 0) for row in store.positions()[0].expand(2, -1).tolist()]
        for store in made.cache.layers
    ]


def kept(candidate: int, entries: list[int], scores: dict[int, float], n: int) -> set[int]:
    """The part of `entries` that a candidate keeps after n tokens."""
    stays = {p for p in entries if p < 1 or TEXT[p] in MARKS}
    if candidate >= 1:
        stays |= {p for p in entries if TEXT[p] in (2, 9)}
    if candidate >= 2:
        stays |= set(sorted(entries, key=lambda p: (-scores[p], p))[: math.ceil(0.2 * N)])
    if candidate >= 3:
        stays |= {p for p in entries if p >= n - math.ceil(0.15 * N)}
    return set(entries) if candidate == 4 else stays


@torch.inference_mode()
def test_profiles_and_kept_sets_are_those_of_the_full_maps() -> None:
    """Each head has the first candidate, in their order, that recovers the required share."""
    full, seen = maps(sharp(), TEXT[:N]), set()
    for recover in (0.2, 0.4, 0.6, 0.75, 0.9, 0.97, 1.0):
        made = lane(recover)
        made.read(TEXT[:N])
        for layer, rows in enumerate(full):
            for h in range(2):
                w = rows[h].mean(0).double()  # [n, n]
                scores = {p: float(w[:, p].sum()) / (N - p) for p in range(N)}
                shares = []
                for c in range(5):
                    near = math.ceil(0.15 * N) if c == 3 else 0
                    fixed = kept(min(c, 2), list(range(N)), scores, N) if c < 4 else set(range(N))
                    of_rows = [
                        sum(float(w[i, p]) for p in range(i + 1) if p in fixed or i - p < near)
                        for i in range(N)
                    ]
                    shares.append(sum(of_rows) / N)
                assert made.policy._profile[layer][:, 0, h].tolist() == pytest.approx(shares, abs=1e-5)
                due = 4 if recover == 1 else next(c for c in range(5) if shares[c] >= recover)
                assert made.policy._chosen[layer][0, h] == due
                assert held(made)[layer][h] == sorted(kept(due, list(range(N)), scores, N))
                seen.add(due)
    assert len(seen) > 3, "the test needs candidates that differ"


@torch.inference_mode()
def test_written_text_is_evicted_head_by_head_as_a_replay_says() -> None:
    made, mass = lane(0.7), {}
    for layer, rows in enumerate(maps(sharp(), TEXT[:N])):
        for h in range(2):
            mass[layer, h] = dict(enumerate(rows[h].mean(0).sum(0).tolist()))
    due = []

    def watch(lane: Lane, rows: list[int], before: list[int]) -> None:
        due.clear()
        n = lane.cache.length
        for layer, store in enumerate(lane.cache.layers):
            due.append([])
            weights = lane.attention(layer, rows, before)[0].mean(1).sum(1)  # [H_kv, n]
            for h, at in enumerate(store.positions()[0].expand(2, -1).tolist()):
                for p, w in zip(at, weights[h].tolist(), strict=True):
                    if p >= 0:
                        mass[layer, h][p] = mass[layer, h].get(p, 0.0) + w
                scores = {p: mass[layer, h][p] / (n - p) for p in at if p >= 0}
                candidate = int(lane.policy._chosen[layer][0, h])
                due[-1].append(sorted(kept(candidate, list(scores), scores, n)))

    made.read(TEXT[:N])
    made.watch, lengths = watch, set()
    for at in range(N, 84, 2):
        made.forward(Feed.causal_chain(TEXT[at : at + 2], at))
        made.commit([0, 1])
        assert held(made) == due
        lengths.add(tuple(len(x) for heads in due for x in heads))
    assert len(lengths) > 5 and any(len(set(x)) > 1 for x in lengths), (
        "the test needs heads of different lengths"
    )
    assert {int(x) for chosen in made.policy._chosen for x in chosen.flatten()} >= {2, 3}


@torch.inference_mode()
def test_all_of_the_attention_is_the_full_cache_and_less_never_takes_more() -> None:
    plain = Lane("plain", sharp(), build("policy", "keep_all"), needs=lane(1.0).needs)
    plain.read(TEXT[:N])
    sizes = []
    for recover in (1.0, 0.97, 0.9, 0.8, 0.7, 0.6, 0.4, 0.2, 0.0):
        made = lane(recover)
        made.read(TEXT[:N])
        for at in range(N, 60):
            logits = made.forward(Feed.causal_chain([TEXT[at]], at))
            made.commit([0])
            if recover == 1:
                assert torch.equal(logits, plain.forward(Feed.causal_chain([TEXT[at]], at)))
                plain.commit([0])
        sizes.append((sum(len(x) for heads in held(made) for x in heads), made.cache.nbytes))
    assert sizes == sorted(sizes, reverse=True) and sizes[0][0] == 60 * 4 and len(set(sizes)) > 4


def test_the_trace_says_why_each_head_has_its_candidate() -> None:
    session = toys.decode(
        toys.method(policy=("fastgen", dict(SETTINGS, min_recovery=0.8))), TEXT[:N], count=20
    )
    trace = session.sink
    assert check(trace).ok
    first, *others = [declared_notes(trace.header, step).get("policy") for step in trace.steps]
    assert not any(others), "it is told once"
    shares = [first[f"recovered.{x}"] for x in CANDIDATES[:-1]]
    for i, candidate in first["chosen"].items():
        assert candidate == next((c for c in range(4) if shares[c][i] >= 0.8), 4)
    assert list(first["chosen"]) == ["0.0", "0.1", "1.0", "1.1", "2.0", "2.1"]
