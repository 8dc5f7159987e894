"""Masked diffusion: what is committed when, in which order it is emitted, what the passes read, and an exact case."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import toys
from brute import brute
from filling import alter, filled, fills

from decodescope.engine import Method, MethodError, Session
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.cost.cost import ops_of
from decodescope.engine.decoding.bases.unmasking import CanvasView
from decodescope.engine.decoding.shared.ordered_emission import OrderedEmission
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.methods.unmasking.local_leap import LocalLeap
from decodescope.engine.methods.unmasking.threshold import Threshold
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import Model
from decodescope.engine.session.replay.exact_distribution import exact_distribution
from decodescope.engine.session.replay.fork import Fork
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.details.canvas_fill import factor_count

CACHES = ("none", "prefix", "dual")
START = len(toys.PROMPT)
MASK = toys.SPEC.vocab - 1


def masked(
    selector: str, knobs: dict[str, Any] | None = None, sampler: Any = "greedy", **strategy: Any
) -> Method:
    return toys.method(strategy=("masked", strategy), unmasking=(selector, knobs or {}), sampler=sampler)


def decoded(method: Method, model: Model | None = None, count: int = 22, **more: Any) -> Session:
    return filled(
        Session(
            model or toys.bidirectional_target(),
            method,
            more.pop("prompt", toys.PROMPT),
            max_new_tokens=count,
            **more,
        )
    )


def shaped(layers: int) -> Model:
    spec = toys.toy_spec(n_layers=layers, causal=False, heads=(), mask_token=MASK)
    return toys.model(toys.decoder(spec, toys.LIVELY, torch.float64))


# ---- schedule, order, end


@pytest.mark.parametrize("selector", ["low_confidence", "random"])
@pytest.mark.parametrize(("block", "steps", "due"), [
    (8, 3, [3, 3, 2, 3, 3, 2, 2, 2, 2]), (22, 5, [5, 5, 4, 4, 4]), (8, 99, [1] * 22), (99, 22, [1] * 22), (7, 1, [7, 7, 7, 1]),
])  # fmt: skip
def test_commits_follow_the_schedule_and_never_change(
    selector: str, block: int, steps: int, due: list[int]
) -> None:
    session = decoded(masked(selector, {"steps": steps}, block=block))
    assert [len(fill.places) for fill in fills(session)] == due and {
        x for f in fills(session) for x in f.rules
    } == {"scheduled"}
    text: dict[int, int] = {}
    for fill in fills(session):
        assert not text.keys() & set(fill.places), "a place is committed once"
        text |= dict(zip(fill.places, fill.tokens, strict=True))
    assert [text[START + i] for i in range(22)] == session.end.tokens and MASK not in session.end.tokens


def test_the_most_confident_are_committed_and_an_order_by_chance_is_another() -> None:
    by_confidence, drawn = (decoded(masked(x, {"steps": 8}, block=22)) for x in ("low_confidence", "random"))
    for fill in fills(by_confidence):
        rest = [c for p, c in zip(fill.open, fill.confidence, strict=True) if p not in fill.places]
        taken = [c for p, c in zip(fill.open, fill.confidence, strict=True) if p in fill.places]
        assert not rest or min(taken) >= max(rest)
    orders = [fill.places for fill in fills(drawn)]
    assert orders != [fill.places for fill in fills(by_confidence)]
    assert orders != [
        fill.places for fill in fills(decoded(masked("random", {"steps": 8}, block=22), seed=1))
    ]


@pytest.mark.parametrize("selector", ["low_confidence", "random", "threshold", "local_leap"])
def test_a_block_of_one_place_is_left_to_right(selector: str) -> None:
    session = decoded(masked(selector, block=1))
    assert [fill.places for fill in fills(session)] == [[START + i] for i in range(22)]
    assert session.end.tokens == toys.greedy_text(toys.bidirectional_target().decoder, toys.PROMPT, 22)


def test_what_is_settled_ahead_is_emitted_once_all_before_it_stand() -> None:
    session = decoded(masked("low_confidence", {"steps": 11}, block=11))
    text: dict[int, int] = {}
    ahead = 0
    for step in session.sink.steps:
        text |= dict(zip(step.detail_of("canvas").places, step.detail_of("canvas").tokens, strict=True))
        whole = next(i for i in range(23) if START + i not in text)
        assert step.n + len(step.emitted) == START + whole
        ahead = max(ahead, len(text) - whole)
    assert ahead > 2, "the test needs places that are settled ahead"


@pytest.mark.parametrize("cache", CACHES)
def test_the_text_ends_at_its_first_stop_token_and_blocks_behind_it_stay_open(cache: str) -> None:
    method = masked("low_confidence", {"steps": 6}, block=6, cache=cache)
    whole = decoded(method, stop_tokens=[]).end.tokens
    stop = next(x for x in whole[6:] if x not in whole[:6])
    at = whole.index(stop)
    session = decoded(method, stop_tokens=[stop])
    assert session.end.tokens == whole[: at + 1] and session.end.reason == "stop_token"
    last = fills(session)[-1]
    assert last.block[1] < START + 22, "the test needs a block that is left out"
    assert last.block[0] <= START + at < last.block[1]
    assert len(session.sink.steps) < len(decoded(method, stop_tokens=[]).sink.steps)


def test_a_place_is_settled_once_and_where_there_is_one() -> None:
    text = OrderedEmission(10, [-1, -1, -1])
    text.settle(11, 4)
    assert text.open_positions(10, 13) == [10, 12]
    for position, said in (
        (11, "a token is settled there and stays"),
        (13, "the places are 10 to 12"),
        (9, "the places are"),
    ):
        with pytest.raises(ValueError, match=rf"^position {position}: {said}"):
            text.settle(position, 5)


def test_draws_of_a_pass_are_those_one_by_one() -> None:
    laws = (
        torch.rand(40, 13, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        .log()
        .mul(3)
        .softmax(1)
    )
    laws[:, 5] = 0
    at = [x // 2 for x in range(40)]
    one, all_of_them = Chance(3), Chance(3)
    assert all_of_them.draw_rows(laws, at) == [
        one.draw(law, place) for law, place in zip(laws, at, strict=True)
    ]


# ---- what passes read


@pytest.mark.parametrize(("cache", "due"), [
    ("none", [37] * 9), ("prefix", [37, 22, 22, 37, 14, 14, 37, 6, 6]), ("dual", [37, 8, 8, 37, 8, 8, 37, 6, 6]),
])  # fmt: skip
def test_rows_fed_and_entries_held_are_those_of_the_cache(cache: str, due: list[int]) -> None:
    session = decoded(masked("low_confidence", {"steps": 3}, block=8, cache=cache))
    assert session.prefilled.passes == [] and session.prefilled.n == 0, "the prompt is read with the canvas"
    passes = [one for step in session.sink.steps for one in step.passes]
    assert [one.tokens for one in passes] == due and {one.phase for one in passes} == {"canvas"}
    assert all(one.tokens + one.held == 37 or one.tokens == 37 for one in passes), (
        "a row that is not fed is held"
    )
    assert [fill.stale for fill in fills(session)] == ([0] * 9 if cache == "none" else [0, 1, 2] * 3)
    assert not [change for step in session.sink.steps for change in step.cache if change.evicted_count]


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("selector", ["low_confidence", "mask_predict"])
def test_only_open_places_of_the_block_are_unembedded(
    cache: str, selector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The passes compute and price only the rows that a selector chooses from; computing all rows would change nothing."""
    method, rows = masked(selector, {"steps": 3}, block=8, cache=cache), list[int]()
    unembed, asked, forward = Decoder.unembed, Feed.rows, Decoder.forward
    monkeypatch.setattr(Decoder, "unembed", lambda self, x: (rows.append(x.shape[1]), unembed(self, x))[1])
    session = decoded(method)
    passes = [one for step in session.sink.steps for one in step.passes]
    assert rows == [one.logits for one in passes] == [len(fill.confidence) for fill in fills(session)]
    heads = [
        op for one in passes for op in ops_of(toys.bidirectional_target().spec, one) if op.name == "lm_head"
    ]
    assert [op.flops for op in heads] == [
        2 * toys.bidirectional_target().spec.d_model * toys.bidirectional_target().spec.vocab * n
        for n in rows
    ]
    monkeypatch.setattr(Feed, "rows", slice(None))
    monkeypatch.setattr(
        Decoder, "forward", lambda self, feed, *rest: forward(self, feed, *rest)[:, asked.__get__(feed)]
    )
    every = decoded(method)
    assert every.end.tokens == session.end.tokens and rows[len(passes) :] == [one.tokens for one in passes]
    for one, other in zip(fills(session), fills(every), strict=True):
        assert (
            (one.candidate == other.candidate).all()
            and one.tokens == other.tokens
            and one.rules == other.rules
        )
        np.testing.assert_allclose(one.confidence, other.confidence, rtol=1e-6, atol=0)


@pytest.mark.parametrize("cache", ["prefix", "dual"])
@torch.inference_mode()
def test_a_pass_reads_what_the_first_of_its_block_has_left(cache: str) -> None:
    """Brute force over the rows of the block's first pass, followed by those of the present pass."""
    start, count = 4, 8
    method = masked("low_confidence", {"steps": 2}, block=3, cache=cache)
    session = Session(toys.bidirectional_target(), method, toys.PROMPT[:start], max_new_tokens=count)
    decoder, seen = toys.bidirectional_target().decoder, dict[str, torch.Tensor]()
    forward = session.target.forward

    def watched(feed: Feed, *rest: Any) -> torch.Tensor:
        logits = forward(feed, *rest)
        seen.update(logits=logits[0].clone(), tokens=feed.tokens[0], positions=feed.positions[0])
        seen["asked"] = torch.tensor(feed.rows)
        return logits

    session.target.forward = watched  # type: ignore[method-assign]
    compared = 0
    for step in session.stream():
        fill = step.detail_of("canvas")
        if fill.stale == 0:
            first = seen["tokens"].tolist()
            continue
        end = start + count if cache == "prefix" else fill.block[1]
        fed = range(fill.block[0], end)
        assert seen["positions"].tolist() == [*fed]
        prefix = len(first)
        wanted = brute(
            decoder,
            first + seen["tokens"].tolist(),
            [*range(len(first)), *fed],
            lambda layer, head, t, s, n=prefix, fed=fed: (s < n and (t < n or s not in fed)) or (t >= n <= s),
        )
        torch.testing.assert_close(seen["logits"], wanted[len(first) :][seen["asked"]], atol=1e-9, rtol=0)
        compared += 1
        if compared == 3:
            return
    raise AssertionError("the test needs passes beside kept entries")


SAME = [  # settings in which kept entries are never read, or are those of the tokens alone
    (3, {"block": 1}, ("low_confidence", {})),
    (3, {"block": 6}, ("low_confidence", {"steps": 1})),
    (3, {"block": 6}, ("threshold", {"tau": 0.0})),
    (1, {"block": 8}, ("low_confidence", {"steps": 4})),
    (1, {"block": 8}, ("random", {"steps": 3})),
]


@pytest.mark.parametrize(("layers", "strategy", "unmasking"), SAME)
def test_caches_that_are_exact(layers: int, strategy: dict, unmasking: tuple) -> None:
    texts = {
        cache: decoded(masked(*unmasking, **strategy, cache=cache), shaped(layers)).end.tokens
        for cache in CACHES
    }
    assert texts["none"] == texts["prefix"] == texts["dual"]


def test_caches_that_are_not() -> None:
    """The guard of the test above: several passes a block over several layers read entries that are stale."""
    for cache in CACHES[1:]:
        texts = [decoded(masked("low_confidence", {"steps": 8}, block=8, cache=x), prompt=p).end.tokens
                 for p in toys.prompts(2) for x in ("none", cache)]  # fmt: skip
        assert texts[::2] != texts[1::2]


# ---- distributions


class Exact(Decoder):
    """A substitute with exact logits: at a masked place the conditionals of a joint over V^L, given the other places.

    It writes tokens and positions into the cache as keys and values, and reads there what its rows may see.
    """

    def __init__(self, joint: torch.Tensor, start: int):
        vocab, self.joint, self.start = joint.shape[0], joint, start
        one = torch.ones(1, dtype=torch.float64)
        spec = ModelSpec(
            "exact", 1, 1, 1, 1, 1, 1, vocab + 1, max_positions=64, causal=False, mask_token=vocab
        )
        super().__init__(spec, one.expand(vocab + 1, 1), [], one, one.expand(vocab + 1, 1))

    def forward(self, feed: Feed, cache: Any, probe=None, skip=None, depth=None, ran=None) -> torch.Tensor:
        store = cache.layers[0]
        store.append(
            torch.stack([feed.tokens, feed.positions]).double().view(2, 1, 1, feed.length, 1), feed.positions
        )
        tokens, places = store.kv[:, 0, 0, : store.n + store.m, 0].long().tolist()
        canvas = dict(zip(places, tokens, strict=True))
        assert sorted(canvas) == list(range(self.start + self.joint.ndim)) and len(places) == len(canvas), (
            "each place is seen once"
        )
        rows = []
        for place in feed.positions[0, feed.rows].tolist():
            row = torch.full((self.spec.vocab,), -torch.inf, dtype=torch.float64)
            row[:-1] = self.conditional(place - self.start, canvas).log() if place >= self.start else 0.0
            rows.append(row)
        return torch.stack(rows)[None]

    def conditional(self, i: int, canvas: dict[int, int]) -> torch.Tensor:
        mask, left = self.spec.mask_token, self.joint
        for j in reversed(range(self.joint.ndim)):
            token = canvas[self.start + j]
            if j != i:
                left = left.sum(j) if token == mask else left.select(j, token)
        return left / left.sum()


def oracle(vocab: int, length: int, seed: int, sharp: float = 1.0) -> tuple[Model, torch.Tensor]:
    p = np.random.default_rng(seed).dirichlet([0.6] * vocab**length) ** sharp
    joint = torch.from_numpy(p / p.sum()).view(*[vocab] * length)
    made = Exact(joint, len(PROMPT))
    return Model("exact", None, made.spec, made, None, "0" * 16, []), joint


PROMPT = [1, 0]


def joint_of(joint: torch.Tensor) -> dict[tuple[int, ...], float]:
    return {text: float(joint[text]) for text in product(range(joint.shape[0]), repeat=joint.ndim)}


def apart(a: dict, b: dict) -> float:
    return max(abs(a.get(x, 0.0) - b.get(x, 0.0)) for x in {*a, *b})


@pytest.mark.parametrize(("vocab", "length", "cache"), [(2, 3, "none"), *((3, 2, cache) for cache in CACHES)])
def test_one_place_a_pass_in_an_order_by_chance_writes_the_joint(vocab: int, length: int, cache: str) -> None:
    model, joint = oracle(vocab, length, seed=vocab)
    warm = ("temperature", {"temperature": 1.0})
    one, both = (
        exact_distribution(
            model, masked("random", {"steps": steps}, warm, block=length, cache=cache), PROMPT, length
        )
        for steps in (length, 1)
    )
    assert apart(one, joint_of(joint)) < 1e-12
    marginals = [joint.sum([j for j in range(length) if j != i]) for i in range(length)]
    apiece = {
        text: float(np.prod([float(m[x]) for m, x in zip(marginals, text, strict=True)]))
        for text in joint_of(joint)
    }
    assert apart(both, apiece) < 1e-12, "all in one pass: as if they were independent"
    assert apart(both, joint_of(joint)) > 1e-2, "the guard: they are not"


def test_block_by_block_from_left_to_right_writes_the_joint_too() -> None:
    model, joint = oracle(2, 3, seed=5)
    for selector in ("low_confidence", "threshold"):
        found = exact_distribution(
            model, masked(selector, {}, ("temperature", {"temperature": 1.0}), block=1), PROMPT, 3
        )
        assert apart(found, joint_of(joint)) < 1e-12


def test_an_order_by_confidence_is_another_law() -> None:
    """The drawn tokens decide which place is next, so the distribution is not the model's joint."""
    model, joint = oracle(2, 3, seed=2)
    assert (
        apart(
            exact_distribution(model, masked("low_confidence", {}, "temperature"), PROMPT, 3), joint_of(joint)
        )
        > 1e-3
    )


# ---- thresholds


def views(count: int, seed: int = 0) -> list[CanvasView]:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        places = np.sort(rng.choice(np.arange(20, 36), rng.integers(1, 16), replace=False)).astype(np.int32)
        made.append(
            CanvasView(
                (20, 36),
                0,
                places,
                np.zeros(len(places), np.int32),
                rng.random(len(places)).astype(np.float32),
            )
        )
    return made


def test_a_bar_that_nothing_reaches_is_one_place_a_pass_by_confidence() -> None:
    for cache in CACHES:
        bars, steps = (
            decoded(masked(*x, block=8, cache=cache))
            for x in (("threshold", {"tau": 1.01}), ("low_confidence", {}))
        )
        assert [f.places for f in fills(bars)] == [
            f.places for f in fills(steps)
        ] and bars.end.tokens == steps.end.tokens
        assert {x for f in fills(bars) for x in f.rules} == {"best"}


def test_all_that_reach_the_bar_are_committed_and_the_best_in_any_case() -> None:
    rules = set()
    for view in views(200):
        choice = Threshold(tau=0.8).select(view, Chance(0))
        taken = choice.committed_indices(view)
        due = {i for i, c in enumerate(view.confidence) if c >= np.float32(0.8)} | {
            int(view.confidence.argmax())
        }
        assert set(taken) == due
        assert all((choice.rules[i] == "sure") == (view.confidence[i] >= np.float32(0.8)) for i in taken)
        rules |= {choice.rules[i] for i in taken}
    assert rules == {"sure", "best"}
    passes = [
        len(decoded(masked("threshold", {"tau": tau}, block=22)).sink.steps) for tau in (0.0, 0.4, 0.8, 1.01)
    ]
    assert passes == sorted(passes) and passes[0] == 1 and passes[-1] == 22


def test_the_factor_rule_takes_the_largest_number_that_fits() -> None:
    several = 0
    for view in views(300):
        c = sorted(view.confidence.astype(float), reverse=True)
        due = max([n for n in range(1, len(c) + 1) if (n + 1) * (1 - c[n - 1]) < 1.0] or [1])
        assert factor_count(view.confidence, 1.0) == due
        choice = Threshold(factor=1.0).select(view, Chance(0))
        assert sorted(view.confidence[choice.committed_indices(view)].astype(float), reverse=True) == c[:due]
        several += due > 1
    assert several > 20, "the test needs views in which several fit"
    session = decoded(masked("threshold", {"factor": 2.0}, block=22))
    assert any("factor" in fill.rules for fill in fills(session)) and not any(
        "bars" in fill.columns for fill in fills(session)
    )


def test_sure_enough_candidates_are_the_likeliest_text() -> None:
    """Fast-dLLM's theorem: n marginals above 1 - e with (n + 1) e <= 1 put the joint's mode where each of them has its own."""
    rng, held, broken = np.random.default_rng(0), 0, 0
    for turn in range(4000):
        vocab, length = 2 + turn % 3, 2 + turn % 2
        joint = rng.dirichlet([0.25] * vocab**length).reshape([vocab] * length)
        marginals = [joint.sum(tuple(j for j in range(length) if j != i)) for i in range(length)]
        apiece, least = tuple(int(m.argmax()) for m in marginals), min(float(m.max()) for m in marginals)
        mode = tuple(int(x) for x in np.unravel_index(joint.argmax(), joint.shape))
        if (length + 1) * (1 - least) < 1:
            assert apiece == mode
            held += 1
        else:
            broken += apiece != mode
    assert held > 500 and broken > 100, (
        "the test needs both: joints that it holds for, and others where it would fail"
    )


def test_local_leap_lies_between_its_two_thresholds() -> None:
    more = less = 0
    for view in views(300, seed=1):
        leap, high, low = (
            set(x.select(view, Chance(0)).committed_indices(view))
            for x in (
                LocalLeap(tau=0.9, relaxed_tau=0.5, anchor_radius=2),
                Threshold(tau=0.9),
                Threshold(tau=0.5),
            )
        )
        assert high <= leap <= low
        more, less = more + (leap > high), less + (leap < low)
        for same in (
            LocalLeap(tau=0.9, relaxed_tau=0.9, anchor_radius=4),
            LocalLeap(tau=0.9, relaxed_tau=0.5, anchor_radius=0),
        ):
            assert set(same.select(view, Chance(0)).committed_indices(view)) == high
    assert more > 50 and less > 50, "the test needs views in which it differs from both"


def test_an_anchor_lowers_the_bars_near_it_and_a_committed_place_is_none() -> None:
    places, confidence = (
        np.array([20, 22, 23, 26, 27], np.int32),
        np.array([0.6, 0.95, 0.6, 0.6, 0.5], np.float32),
    )
    choice = LocalLeap(tau=0.9, relaxed_tau=0.55, anchor_radius=2).select(
        CanvasView((20, 28), 3, places, places, confidence), Chance(0)
    )
    assert choice.anchors == [22] and choice.bars is not None
    assert np.array_equal(choice.bars, np.array([0.55, 0.55, 0.55, 0.9, 0.9], np.float32))
    assert choice.rules[:3] == ["near", "sure", "near"]
    later = CanvasView((20, 28), 4, places[3:], places[3:], confidence[3:])
    assert LocalLeap(tau=0.9, relaxed_tau=0.55, anchor_radius=2).select(later, Chance(0)).committed_indices(
        later
    ) == [0]


# ---- places that are masked again


@pytest.mark.parametrize(("block", "steps"), [(22, 9), (22, 1), (8, 3), (6, 99)])
def test_mask_predict_masks_so_many_of_the_least_sure_again(block: int, steps: int) -> None:
    session = decoded(masked("mask_predict", {"steps": steps}, block=block))
    stored: dict[int, tuple[int, float]] = {}
    changed = passes = 0
    for step in session.sink.steps:
        fill, m = (
            step.detail_of("canvas"),
            step.detail_of("canvas").block[1] - step.detail_of("canvas").block[0],
        )
        T = min(steps, m)
        assert (
            len(fill.open) == (m if passes == 0 else max(1, m * (T - passes) // T))
            and fill.places == fill.open.tolist()
        )
        fresh = dict(zip(fill.places, zip(fill.tokens, fill.confidence.tolist(), strict=True), strict=True))
        stored |= fresh
        passes += 1
        again = sorted(stored, key=lambda p: (stored[p][1], p))[
            : max(1, m * (T - passes) // T) if passes < T else 0
        ]
        assert fill.reopened == sorted(again) and bool(step.emitted) is (passes == T), (
            "what may change is not emitted"
        )
        if passes == T:
            assert step.emitted == [stored[p][0] for p in sorted(stored)]
            stored, passes = {}, 0
        changed += any(p not in fresh for p in again)
    assert changed or steps in (1, 99), (
        "the test needs a place that is masked again a pass or more behind its own"
    )


def test_mask_predict_in_one_pass_is_one_shot() -> None:
    one, bare = (
        decoded(masked(*x, block=22))
        for x in (("mask_predict", {"steps": 1}), ("low_confidence", {"steps": 1}))
    )
    assert one.end.tokens == bare.end.tokens and len(one.sink.steps) == 1


def test_masking_other_places_again_than_the_least_sure_is_told() -> None:
    session = decoded(masked("mask_predict", {"steps": 4}, block=22))
    fill = fills(session)[0]
    fill.reopened = [next(p for p in range(15, 37) if p not in fill.reopened), *fill.reopened[1:]]
    assert any("step 0: it masks" in x and "by its selector" in x for x in check(session.sink).problems)


# ---- forks, branches


WARM = ("temperature", {"temperature": 0.9})
LEAP = {"tau": 0.9, "relaxed_tau": 0.6, "anchor_radius": 2}


@pytest.mark.parametrize(("change", "same"), [
    ({}, True),
    ({"method": masked("local_leap", LEAP, WARM, block=11)}, False),
    ({"method": masked("mask_predict", {"steps": 4}, WARM, block=11)}, False),
    ({"method": masked("low_confidence", {"steps": 6}, WARM, block=6, cache="dual")}, False),
    ({"seed": 5}, False),
    ({"max_new_tokens": 30}, False),
])  # fmt: skip
def test_a_fork_goes_on_with_the_canvas_as_it_stands(change: dict[str, Any], same: bool) -> None:
    run, at = decoded(masked("low_confidence", {"steps": 6}, WARM, block=11), seed=3), 4
    made = Fork(toys.bidirectional_target(), run.header, list(run.sink.steps), at, **change)
    made.sink = Trace()
    for _ in made.stream():
        pass
    assert [f.tokens for f in fills(made)[:at]] == [f.tokens for f in fills(run)[:at]]
    assert (made.end.tokens == run.end.tokens) is same and len(made.end.tokens) == change.get(
        "max_new_tokens", 22
    )
    report = check(made.sink)
    assert report.ok and report.counts["fills"] == len(made.sink.steps), str(report)


def test_a_branch_in_the_midst_of_a_canvas_has_the_same_future() -> None:
    method = masked("random", {"steps": 6}, WARM, block=11, cache="dual")
    session = Session(toys.bidirectional_target(), method, toys.PROMPT, max_new_tokens=22)
    for _ in range(4):
        session.step()
    twin = session.branch()
    twin.sink = Trace()
    for one in (session, twin):
        for _ in one.stream():
            pass
    assert twin.tokens == session.tokens
    report = check(twin.sink)
    assert report.ok and report.notes, "count and bars of a branch are not derived, and that is said"


# ---- records that are wrong, and what is refused


def changed(**changes: Any) -> list[str]:
    """The problems that check finds in a run with changed values in its second fill."""
    session = decoded(masked("local_leap", {"tau": 0.95, "relaxed_tau": 0.9, "anchor_radius": 2}, block=22))
    fill = fills(session)[1]
    assert len(fill.open) > 5 and fill.anchors, "the test needs a fill in which something is decided"
    for name, value in changes.items():
        alter(fill, name, value)
    report = check(session.sink)
    return [x for x in report.problems if x.startswith("step 1:") or "record after" in x]


@pytest.mark.parametrize(("changes", "said"), [
    ({"count": 2}, r"the 2 best, and by its selector 1 are due"),
    ({"bars": lambda bars: bars * np.float32(0.5)}, r"its bars are not those that its selector gives"),
    ({"anchors": [3]}, r"its anchors are \[3\]"),
    ({"confidence": lambda c: c[::-1].copy()}, r"commits .* but count, bars and confidences give"),
    ({"tokens": lambda tokens: [(x + 1) % 12 for x in tokens]}, r"but the candidates are"),
    ({"stale": 2}, r"says that 2 passes were made"),
    ({"cache": "dual", "stale": 1}, r"its passes fed \[37\] rows, and with the cache 'dual' 22 are due"),
    ({"block": [16, 37]}, r"fills the block \[16, 37\], and \[15, 37\] is due|does not rise within the block"),
    ({"open": lambda open: open + 1}, r"are open, and the fills before it leave|does not rise within the block"),
    ({"length": 23}, r"its canvas has 23 places from 15 on"),
    ({"rules": []}, r"not one token and one rule for each place"),
    ({"candidate": lambda c: c + 13}, r"outside the vocabulary"),
])  # fmt: skip
def test_a_fill_that_does_not_follow_is_told(changes: dict, said: str) -> None:
    problems = changed(**changes)
    assert any(re.search(said, x) for x in problems), problems


def test_a_sampler_that_remembers_and_a_model_without_a_mask_token_are_refused() -> None:
    with pytest.raises(
        MethodError, match=r"^masked fills places in any order, and repetition_penalty remembers"
    ):
        decoded(masked("random", {}, "repetition_penalty"))
    without = toys.model(toys.decoder(toys.toy_spec(causal=False, heads=()), 0, torch.float64))
    with pytest.raises(
        MethodError, match=r"^masked fills mask tokens, and toy knows none: choose a model whose"
    ):
        decoded(masked("random"), without)
    with pytest.raises(
        MethodError,
        match=r"^masked fills places with text on both sides, and toy reads from left to right only",
    ):
        decoded(masked("random"), toys.target())
    advice = "or choose the strategy masked and a model without a causal mask"
    with pytest.raises(MethodError, match=rf"^draft_verify uses no unmasking, .* {advice}"):
        decoded(toys.method(unmasking="random"), toys.target())
    with pytest.raises(
        MethodError, match=r"^local_leap\.relaxed_tau = 0\.9 is above tau = 0\.8: choose at most tau"
    ):
        decoded(masked("local_leap", {"tau": 0.8, "relaxed_tau": 0.9}))
