"""EMS: its score from full maps, eviction alone if nothing is similar, a zero class without influence, convex mergers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import toys
from masked import Masked
from torch import Tensor
from voted import best, held, maps, sharp

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.column import MERGED, TOKEN
from decodescope.engine.session.load import load
from decodescope.engine.trace import check
from decodescope.engine.trace.checks.notes import declared_notes

Source = Callable[[], tuple[Decoder, list[int]]]
TEXT, N = toys.prompts(1, 90, seed=8)[0], 40
KNOBS = dict(centres=8, recent=4, window=5, pool_radius=1)
STORY = (
    "In Lisbon lived a busy baker named Rufus. Rufus wanted to learn to play the drum. The beginning was hard: the hens "
    'stopped laying. "Nobody can do that without a teacher. Ask Clara, who lives in the library," said Hugo. So Rufus '
    "went to Clara, and practised for twenty days, until the hens came back."
)


def drawn() -> tuple[Decoder, list[int]]:
    """A toy, and random tokens."""
    return sharp(), TEXT


def written() -> tuple[Decoder, list[int]]:
    """A shipped model, and a text in its language."""
    model = load("lab-draft", "float64")
    assert model.tokenizer is not None
    return model.decoder, model.tokenizer.encode(STORY)[:90]


def lane(decoder: Decoder, **settings: Any) -> Lane:
    made = Lane("target", decoder, build("policy", "ems", {**KNOBS, **settings}))
    made.policy.begin(decoder.spec, N)
    return made


def scores(full: Tensor) -> list[list[float]]:
    """For each KV head the worth of each prompt entry, computed number by number."""
    worth = []
    for rows in full.double().sum(1).tolist():  # [n, n]
        means = [sum(row[j] for row in rows) / (N - j) for j in range(N)]
        last = [sum(row[j] for row in rows[-5:]) / 5 for j in range(N)]
        local = [sum(last[p] for p in (j - 1, j, j + 1) if 0 <= p < N) / 3 for j in range(N)]
        worth.append([max(local[j], means[j] * sum(local) / sum(means)) for j in range(N)])
    return worth


@pytest.mark.parametrize("source", [drawn, written])
@torch.inference_mode()
def test_above_every_cosine_it_evicts_by_its_score_and_changes_nothing_else(source: Source) -> None:
    """The first cut is that of the full maps; then the logits are those of a mask over the held entries."""
    decoder, text = source()
    made, full = lane(decoder, min_similarity=1.5), maps(decoder, text[:N])
    made.read(text[:N])
    kept = [[best(x[: N - 4], 8) + list(range(N - 4, N)) for x in scores(layer)] for layer in full]
    assert held(made) == kept and len({tuple(x) for heads in kept for x in heads}) > 2
    s = decoder.spec
    reference = Masked(
        decoder,
        [
            [lambda there, mass, n, i=i, h=h: held(made)[i][h] for h in range(s.n_kv_heads)]
            for i in range(s.n_layers)
        ],
    )
    reference.read(text[:N])
    for at in range(N, 80, 2):
        logits = made.forward(Feed.causal_chain(text[at : at + 2], at))
        made.commit([0, 1])
        assert torch.allclose(logits[0], reference.read(text[at : at + 2]), atol=1e-10)
    assert all((store.column("kind") == TOKEN).all() and store.n == 12 for store in made.cache.layers)


@pytest.mark.parametrize("covered", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("source", [drawn, written])
@torch.inference_mode()
def test_what_is_alike_goes_into_a_centre_by_its_likeness_and_the_zero_class_nowhere(
    source: Source, covered: float
) -> None:
    """Keys and values after the first cut, from the full cache's. Entries that received nothing are bit for bit unchanged."""
    decoder, text = source()
    alike = 0.8 if source is written else 0.6  # keys of a trained model are similar to each other
    made = lane(decoder, merge_coverage=covered, min_similarity=alike)
    whole = Lane("full", decoder, build("policy", "keep_all"), needs=made.needs)
    for x in (made, whole):
        x.read(text[:N])
    merged = zero = tail = 0
    for i, (store, plain, worth) in enumerate(
        zip(made.cache.layers, whole.cache.layers, map(scores, maps(decoder, text[:N])), strict=True)
    ):
        for h in range(decoder.spec.n_kv_heads):
            kept, k = held(made)[i][h], plain.k[0, h]
            ranked, counting, total = sorted(worth[h], reverse=True), set(), 0.0
            for x in ranked:
                counting |= {x} if total < covered * sum(ranked) else set()
                total += x
            came: dict[int, list[int]] = {}
            for p in (p for p in range(N) if p not in kept):
                if worth[h][p] not in counting:
                    tail += 1
                    continue
                cosines = {q: float(k[p] @ k[q] / k[p].norm() / k[q].norm()) for q in kept[:-4]}
                centre = max(cosines, key=lambda q: cosines[q])
                if cosines[centre] >= alike:
                    came.setdefault(centre, []).append(p)
                zero += cosines[centre] < alike
            for slot, q in enumerate(store.positions()[0, h].tolist()):
                members = [q, *came.get(q, [])]
                assert store.column("weight")[0, h, slot] == len(members)
                assert store.column("kind")[0, h, slot] == (MERGED if q in came else TOKEN)
                merged += len(members) - 1
                for which in range(2):
                    rows = plain.kv[which, 0, h, members]
                    if len(members) == 1:
                        assert torch.equal(store.kv[which, 0, h, slot], rows[0])
                        continue
                    weights = torch.tensor(
                        [1, *(float(k[p] @ k[q] / k[p].norm() / k[q].norm()) for p in came[q])]
                    ).double()
                    due = (weights / weights.sum()) @ rows
                    assert torch.allclose(store.kv[which, 0, h, slot], due, atol=1e-5)
                    assert (store.kv[which, 0, h, slot] <= rows.amax(0) + 1e-6).all()
    assert merged + zero + tail == len(made.cache.layers) * decoder.spec.n_kv_heads * (N - 12)
    assert (tail > 9) is (covered < 1) and (merged > 5) is (covered > 0)
    assert zero > 9 or covered < (1 if source is written else 0.1), (
        "of a text only the tail is like nothing that is kept"
    )


def test_mergers_can_be_followed_in_the_trace() -> None:
    """At every commit equally many entries leave each head. Merged ones were similar; the rest are zero class or tail."""
    run = toys.decode(
        toys.method(policy=("ems", {**KNOBS, "min_similarity": 0.3, "merge_coverage": 0.9})),
        TEXT[:N],
        count=40,
    )
    trace, merged, dropped = run.sink, 0, 0
    assert check(trace).ok
    for step in trace.steps:
        change = step.cache[0]
        assert change.held == 12 and len(change.merged) == 6 * (28 if step.step == 0 else 1)
        for (_, _, source, target), (u, weight) in zip(
            change.merged.tolist(), change.merged_by.tolist(), strict=True
        ):
            assert (target >= 0) is (weight > 0) and (
                target < 0 or (u >= 0.3 and 0 < weight <= 1 and source != target)
            )
            merged, dropped = merged + (target >= 0), dropped + (target < 0)
        covering = declared_notes(trace.header, step)["policy"]["covering"]
        assert len(covering) == 6 and all(0 < x <= 40 for x in covering.values())
    assert merged > 30 and dropped > 30
