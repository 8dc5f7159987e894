"""Policies by keys: kept sets, merged values and turned keys equal what the formulas give on the keys of a full cache."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
import torch
import toys

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.values.chance import Chance, keyed_uniforms
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.session.method import MethodError

N = 40


def read_text(name: str, text: list[int], decoder: Decoder | None = None, **knobs: Any) -> Lane:
    """A lane of the toy that has read `text` under a policy, its first 30 tokens as the prompt."""
    lane = Lane("target", decoder or toys.pair()[0].decoder, build("policy", name, knobs))
    lane.policy.begin(lane.decoder.spec, 30)
    with torch.inference_mode():
        lane.read(text[:30])
        for token in text[30:]:
            toys.feed_tokens(lane, token)
    return lane


def held(lane: Lane, layer: int = 0) -> list[list[int]]:
    """Per KV head the positions that a layer holds, ascending."""
    store = lane.cache.layers[layer]
    return store.positions().expand(1, 2, -1)[0].sort(1).values.tolist()


def full_rows(text: list[int]) -> tuple[list, list]:
    """First-layer keys and values of a full cache, as lists [H_kv][n][D]: no eviction changes them."""
    store = read_text("keep_all", text).cache.layers[0]
    return store.k[0].double().tolist(), store.v[0].double().tolist()


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def distinct(keys: list[list[float]], among: list[int], count: int, recent: int) -> list[int]:
    """The `count` positions of `among` whose keys are least like the mean direction, and the `recent` newest."""
    units = [[x / math.hypot(*keys[p]) for x in keys[p]] for p in among]
    anchor = [statistics.fmean(column) for column in zip(*units, strict=True)]
    old = [p for p in among if p < among[-1] + 1 - recent]
    return sorted(sorted(old, key=lambda p: cosine(keys[p], anchor))[:count] + among[len(old) :])


@pytest.mark.parametrize("recent", [0, 3])
def test_key_diff_keeps_the_keys_least_like_the_mean_of_what_it_holds(recent: int) -> None:
    text = toys.prompts(1, N, seed=3)[0]
    keys, _ = full_rows(text)
    lane = read_text("key_diff", text, distinct_entries=6, recent=recent)
    due = [list(range(30)) for _ in keys]
    for end in range(30, N + 1):
        due = [distinct(keys[h], row, 6, recent) for h, row in enumerate(due)]
        due = [[*row, end] for row in due] if end < N else due
    assert held(lane) == due and due[0] != due[1], "the test needs heads that differ"


def stand_out(rows: list[list[float]], reference: list[list[float]]) -> list[float]:
    """LagKV's score of each row against the ranges of the next partition."""
    least = [min(column) for column in zip(*reference, strict=True)]
    most = [max(column) for column in zip(*reference, strict=True)]
    spread = [
        statistics.stdev([(x - a) / (b - a) for x, a, b in zip(row, least, most, strict=True)])
        for row in rows
    ]
    sums = [math.exp(x - max(spread)) for x in spread]
    return [x / sum(sums) for x in sums]


def test_lag_kv_thins_out_each_partition_against_the_next() -> None:
    text = toys.prompts(1, N, seed=4)[0]
    rows, sinks, lag, kept = full_rows(text), 3, 6, 2
    lane = read_text("lag_kv", text, sink_tokens=sinks, lag=lag, kept_share=0.34)
    for h, positions in enumerate(held(lane)):
        due = list(range(sinks))
        for first in range(sinks, N - 2 * lag + 1, lag):
            here, after = range(first, first + lag), range(first + lag, first + 2 * lag)
            scores = [stand_out([of[h][p] for p in here], [of[h][p] for p in after]) for of in rows]
            worth = {p: scores[0][i] + scores[1][i] for i, p in enumerate(here)}
            due += sorted(sorted(here, key=lambda p: -worth[p])[:kept])
        assert positions == due + list(range(first + lag, N))


def test_what_an_interval_leaves_is_the_best_of_all_that_came_since_the_cut() -> None:
    text = toys.prompts(1, N, seed=5)[0]
    keys, _ = full_rows(text)
    knobs = dict(scorer="norm", target_entries=7, interval=4, sink_tokens=2)
    lane = read_text("interval_eviction", text, **knobs)
    late = read_text("interval_eviction", text[:33], compress_prompt=False, **knobs)
    assert held(late) == [list(range(33))] * 2
    for h, positions in enumerate(held(lane)):
        due = list(range(30))
        for end in (30, 34, 38):
            here = [p for p in due if p > 1] + [p for p in range(30, end) if p > due[-1]]
            due = [0, 1, *sorted(sorted(here, key=lambda p: math.hypot(*keys[h][p]))[:5])]
            due = sorted(due)
        assert positions == [*due, 38, 39]


def test_a_turned_key_is_that_of_a_text_without_what_left() -> None:
    """First-layer keys depend on token and position alone: so a second text, of the kept tokens, has the very same keys."""
    text = toys.prompts(1, 30, seed=6)[0]
    lane = read_text("key_rerotation", text, prompt_budget=7, sink_tokens=2)
    plain = read_text("key_rerotation", text, prompt_budget=7, sink_tokens=2, turn_keys=False)
    assert held(lane) == held(plain)
    store, same = lane.cache.layers[0], []
    for h, positions in enumerate(held(lane)):
        other = Lane("plain", lane.decoder, build("policy", "keep_all"))
        with torch.inference_mode():  # the positions 0 .. 20 hold anything
            other.read([0] * 21 + [text[p] for p in positions])
        order = store.positions().expand(1, 2, -1)[0, h].argsort()
        assert torch.allclose(store.k[0, h, order], other.cache.layers[0].k[0, h, 21:], atol=1e-5)
        assert torch.allclose(store.v[0, h, order], other.cache.layers[0].v[0, h, 21:], atol=1e-12)
        same.append(torch.allclose(store.k[0, h], plain.cache.layers[0].k[0, h], atol=1e-3))
    assert not any(same), "the test needs keys that were turned"


def test_an_expected_merge_spreads_p_times_the_value_over_the_next_entries() -> None:
    """One token behind the prompt: position 24, the oldest that is no sink, leaves, and 25 .. 27 share its value."""
    text = toys.prompts(1, 31, seed=7)[0]
    base = dict(target_entries=8, sink_tokens=2)
    lane = read_text("cam", text, merge_window=3, merge="expected", **base)
    plain = read_text("interval_eviction", text, scorer="place", interval=1, **base)
    store, bare = lane.cache.layers[0], plain.cache.layers[0]
    assert held(lane) == held(plain) == [[0, 1, 25, 26, 27, 28, 29, 30]] * 2
    _, values = full_rows(text)
    at = {p: i for i, p in enumerate(store.positions()[0, 0].tolist())}
    other = {p: i for i, p in enumerate(bare.positions()[0, 0].tolist())}
    shares = []
    for h in range(2):
        added = {p: store.v[0, h, at[p]].double() - bare.v[0, h, other[p]].double() for p in at}
        v = torch.tensor(values[h][24], dtype=torch.float64)
        shares.append(float(added[25] @ v / (v @ v)) * 3)
        for p, x in added.items():
            assert torch.allclose(x, v * shares[-1] / 3 if 25 <= p <= 27 else torch.zeros_like(v), atol=1e-6)
        assert torch.equal(store.k[0, h, at[25]], bare.k[0, h, other[25]])
    with torch.inference_mode():
        weights = watched_rows(text)  # [H_kv, 31]: attention of tokens 29 and 30 before the cut
    due = [min(1, float(row[24] / row[25:28].mean())) for row in weights]
    assert shares == pytest.approx(due, abs=1e-4)


def watched_rows(text: list[int]) -> torch.Tensor:
    """float64 [H_kv, n]: what the prompt's last token and the one after it gave in the first layer, each over its own cache."""
    lane = read_text("cam", text[:30], target_entries=8, sink_tokens=2)
    mass = torch.zeros(2, 31, dtype=torch.float64)
    store = lane.cache.layers[0]
    mass[:, store.positions()[0, 0]] = store.column("mass")[0].double()
    observe = type(lane.policy).observe

    def watch(layer: int, store: Any, rows: torch.Tensor) -> None:
        if layer == 0:
            mass[:, store.positions()[0, 0]] += rows[0].mean(1).sum(1).double()
        observe(lane.policy, layer, store, rows)

    lane.policy.observe = watch
    toys.feed_tokens(lane, text[30])
    return mass


def test_a_coin_merges_as_often_as_its_probability_says() -> None:
    u = keyed_uniforms(5, torch.tensor(1), torch.arange(4)[:, None], torch.arange(5000))
    assert float(u.min()) >= 0 and float(u.max()) < 1
    for p in (0.1, 0.5, 0.9):
        assert float((u < p).double().mean()) == pytest.approx(p, abs=0.015)
    assert torch.equal(u[2, 7], keyed_uniforms(5, torch.tensor(1), torch.tensor(2), torch.tensor(7)))
    assert not torch.equal(
        u, keyed_uniforms(6, torch.tensor(1), torch.arange(4)[:, None], torch.arange(5000))
    )
    assert Chance(5).uniform(7, "accept") not in u, "not the coins of a verdict"


def test_budgets_that_hold_nothing_are_refused() -> None:
    for policy, word in (
        (("interval_eviction", dict(target_entries=2, sink_tokens=4)), "raise target_entries"),
        (("lag_kv", dict(kept_share=1.0)), "share below 1"),
    ):
        with pytest.raises(MethodError, match=word):
            toys.decode(toys.method(policy=policy), count=1)
