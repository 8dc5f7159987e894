"""D2O: H2O if nothing is merged, budgets that share one sum, and merged values as a replay gives them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import toys
from masked import Masked, hitters
from voted import maps, sharp

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.column import MERGED, TOKEN
from decodescope.engine.trace import check
from decodescope.engine.trace.checks.notes import declared_notes

TEXT = toys.prompts(1, 90, seed=8)[0]
N = 40


def lane(decoder: Any = None, **settings: Any) -> Lane:
    made = Lane(
        "target", decoder or sharp(n_layers=3), build("policy", "d2o", dict(sink_tokens=0, **settings))
    )
    made.policy.begin(made.decoder.spec, N)
    return made


def held(made: Lane) -> list[list[list[int]]]:
    return [store.positions()[0].expand(2, -1).sort(1).values.tolist() for store in made.cache.layers]


@torch.inference_mode()
def test_layers_share_the_budget_by_how_evenly_their_heads_attend() -> None:
    made, spread = lane(heavy=6, recent=4), []
    made.read(TEXT[:N])
    for rows in maps(sharp(n_layers=3), TEXT[:N]):
        sums = rows.double().sum(2).flatten(0, 1)  # [H, n]
        variance = [float(((x - x.mean()) ** 2).mean()) for x in sums]
        least, most = min(variance), max(variance)
        spread.append(sum((x - least) / (most - least + 1e-6) for x in variance) / len(variance))
    assert made.policy._spread == pytest.approx(spread, abs=1e-4)
    due = [3 * 10 * math.exp(-x) / sum(math.exp(-y) for y in spread) for x in spread]
    budgets = [sum(x) for x in made.policy._kept]
    assert all(0 <= x - y < 2 for x, y in zip(due, budgets, strict=True)) and 30 - 6 < sum(budgets) <= 30
    assert [store.n for store in made.cache.layers] == budgets and len(set(budgets)) > 1
    policy = build("policy", "d2o", dict(heavy=300, recent=100))
    assert policy.plan([0.5] * 4, 1000) == [(300, 100)] * 4
    assert [sum(x) for x in policy.plan([0.0, 9.0, 9.0], 900)] == [1198, 8, 8], (
        "a hundredth at least, rounded down"
    )


@torch.inference_mode()
def test_without_mergers_it_is_h2o_with_these_budgets() -> None:
    """A floor above every cosine: the threshold is infinite."""
    decoder = sharp(n_layers=3)
    made = lane(decoder, heavy=6, recent=4, min_similarity=1.5)
    made.read(TEXT[:N])
    reference = Masked(decoder, [[hitters(heavy, recent)] * 2 for heavy, recent in made.policy._kept])
    reference.read(TEXT[:N])
    for at in range(N, 80, 2):
        assert held(made) == reference.kept
        logits = made.forward(Feed.causal_chain(TEXT[at : at + 2], at))
        made.commit([0, 1])
        assert torch.allclose(logits[0], reference.read(TEXT[at : at + 2]), atol=1e-10)
    assert all((store.column("kind") == TOKEN).all() for store in made.cache.layers)


@pytest.mark.parametrize("norm", ["paper", "code"])
@torch.inference_mode()
def test_what_leaves_goes_on_in_the_entry_most_like_it(norm: str) -> None:
    """Keys and values after the first cut, computed number by number from those of the full cache."""
    decoder = sharp(n_layers=3)
    made, full = (
        lane(decoder, heavy=8, recent=4, merge_weights=norm),
        Lane("full", decoder, build("policy", "keep_all")),
    )
    for x in (made, full):
        x.read(TEXT[:N])
    several = shrunk = 0
    for i, (store, whole) in enumerate(zip(made.cache.layers, full.cache.layers, strict=True)):
        kept, u, target = held(made)[i], [], []
        for h in range(2):
            k = whole.k[0, h]
            victims = [p for p in range(N) if p not in kept[h]]
            cosines = [{q: float(k[p] @ k[q] / k[p].norm() / k[q].norm()) for q in kept[h]} for p in victims]
            target.append([max(c, key=lambda q: c[q]) for c in cosines])
            u.append([max(c.values()) for c in cosines])
        threshold = sum(map(sum, u)) / sum(map(len, u))
        for h in range(2):
            victims = [p for p in range(N) if p not in kept[h]]
            judged = u[h] if norm == "paper" else [(a + b) / 2 for a, b in zip(*u, strict=True)]
            came = [
                (p, t, x)
                for p, t, x, y in zip(victims, target[h], u[h], judged, strict=True)
                if y >= threshold
            ]
            for slot, q in enumerate(store.positions()[0].expand(2, -1)[h].tolist()):
                into = [(p, x) for p, t, x in came if t == q]
                if norm == "paper":
                    weights = [math.e, *(math.exp(x) for _, x in into)]
                    weights = [w / sum(weights) for w in weights]
                else:
                    weights = [1 / (1 + len(into)), *(x / (1 + len(into)) for _, x in into)]
                assert norm == "code" or sum(weights) == pytest.approx(1)
                for which in range(2):
                    rows = [whole.kv[which, 0, h, p] for p in (q, *(p for p, _ in into))]
                    due = sum(w * row for w, row in zip(weights, rows, strict=True))
                    assert torch.allclose(store.kv[which, 0, h, slot], due, atol=1e-5)
                assert store.column("weight")[0, h, slot] == 1 + len(into)
                assert store.column("kind")[0, h, slot] == (MERGED if into else TOKEN)
                several += len(into) > 1
                shrunk += sum(weights) < 0.999
    assert several > 3 and (shrunk > 3) is (norm == "code")


def test_thresholds_and_mergers_can_be_replayed_from_the_trace() -> None:
    settings = dict(heavy=4, recent=4, sink_tokens=1, alpha=0.3, beta=0.7)
    drafter = ("token_recycling", {"nodes": "16"})
    trace = toys.decode(toys.method(policy=("d2o", settings), drafter=drafter), TEXT[:N], count=40).sink
    assert check(trace).ok
    threshold: list[float | None] = [None] * 3
    merged = dropped = 0
    for step in trace.steps:
        change, notes = step.cache[0], declared_notes(trace.header, step)["policy"]
        if step.step == 0:
            assert change.by_head[:, 0].tolist() == notes["budget"] and len(notes["spread"]) == 3
        if change.merged is None:
            continue
        everywhere = 0 if change.evicted_all is None else 6 * len(change.evicted_all)
        assert len(change.merged) == everywhere + (0 if change.evicted is None else len(change.evicted))
        for layer in range(3):
            of_layer = change.merged[:, 0] == layer
            rows = list(
                zip(change.merged[of_layer].tolist(), change.merged_by[of_layer].tolist(), strict=True)
            )
            if not rows:
                continue
            mean = sum(u for _, (u, _) in rows) / len(rows)
            before = threshold[layer]
            threshold[layer] = mean if before is None else 0.3 * before + 0.7 * mean
            assert notes["threshold"][layer] == pytest.approx(threshold[layer], abs=1e-5)
            for (_, _, _, target), (u, weight) in rows:
                if abs(u - threshold[layer]) > 1e-5:
                    assert (target >= 0) is (u > threshold[layer]) and (weight > 0) is (target >= 0)
                merged, dropped = merged + (target >= 0), dropped + (target < 0)
    assert merged > 30 and dropped > 30
