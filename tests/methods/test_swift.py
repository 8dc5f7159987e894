"""SWIFT: no skip set changes the text, the score equals a computation without a cache, and the best set found is kept."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
import torch
import toys

from decodescope.engine.core.component import build
from decodescope.engine.methods.drafters.shared.subsets import propose_subset
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import Skip
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.session.method import Method
from decodescope.engine.trace import check
from decodescope.testing.reference import Warp, text_distribution
from decodescope.testing.tables import PROMPT as SHORT
from decodescope.testing.transformer import logits_by_prefix
from decodescope.testing.walk import Walk, distribution_distance

DEEP = toys.model(toys.decoder(toys.toy_spec(n_layers=5), 7, torch.float64))


def searching(count: int = 60, sampler: str = "greedy", seed: int = 0, **settings):
    knobs = {
        "window": 8,
        "skip_ratio": 0.5,
        "min_probability": 0.0,
        "max_draft_tokens": 3,
        "siblings": False,
        "target_matchness": 1.0,
        **settings,
    }
    return toys.decode(
        toys.method(drafter=("swift", knobs), sampler=sampler), count=count, pair=(DEEP, DEEP), seed=seed
    )


def told(session) -> list[tuple[int, dict]]:
    """(length of the text before it, notes) of every step that drafted."""
    made, n = [], len(toys.PROMPT)
    for step in session.sink.steps:
        if step.draft is not None and step.draft.tokens:
            made.append((n, step.draft.notes))
        n += len(step.emitted)
    return made


@torch.inference_mode()
def matchness(decoder: Decoder, text: list[int], skip: Skip, start: int, window: int) -> float:
    """By definition, one place at a time, each after a cache that holds the tokens before the window."""
    hits, cache = 0, KVCache(decoder.spec, dtype=decoder.dtype)
    if start:
        decoder.forward(Feed.causal_chain(text[:start], 0), cache)
        cache.commit(range(start))
    for end in range(start + 1, start + window + 1):
        logits = decoder.forward(Feed.causal_chain(text[start:end], start), cache, skip=skip)[0, -1]
        cache.rollback()
        hits += int(logits.argmax()) == text[end]
    return hits / window


@pytest.mark.parametrize("prompt", [toys.PROMPT, [7]], ids=["prompt", "prompt of one token"])
@pytest.mark.parametrize("siblings", [False, True])
def test_swift_text_is_greedy_while_the_set_changes(siblings: bool, prompt: list[int]) -> None:
    method = toys.method(
        drafter=(
            "swift",
            {
                "window": 6,
                "skip_ratio": 0.5,
                "bayes_interval": 3,
                "siblings": siblings,
                "min_probability": 0.99,
            },
        )
    )
    session = toys.decode(method, prompt, 80, pair=(DEEP, DEEP))
    assert session.end.tokens == toys.greedy_text(DEEP.decoder, prompt, 80) and toys.matches_fresh_reading(
        session.target
    )
    sets = {
        (*n["attn"], -1, *n["ffn"])
        for step in session.sink.steps[:-1]
        if (n := step.draft and step.draft.notes)
    }
    assert len(sets) > 1, "the test needs a set that was replaced"
    assert check(session.sink).ok


def test_swift_with_nothing_skipped_matches_everywhere_and_stops_searching() -> None:
    notes = [n for _, n in told(searching(skip_ratio=0.0, window=8))]
    assert next(n["match"] for n in notes if "match" in n) == 1.0 and not notes[-1]["searching"]
    assert notes[-1]["rounds"] == 1 and notes[-1]["attn"] == notes[-1]["ffn"] == []


def test_swift_score_is_the_share_of_the_window_that_the_set_would_have_written() -> None:
    session, scored = searching(bayes_interval=4), 0
    text = session.tokens
    for n, notes in told(session):
        full = (n - len(toys.PROMPT)) // 8
        assert ("match" in notes) == (full > 0)
        if full:
            start = len(toys.PROMPT) - 1 + (full - 1) * 8
            skip = Skip(frozenset(notes["attn"]), frozenset(notes["ffn"]))
            assert notes["match"] == pytest.approx(matchness(DEEP.decoder, text, skip, start, 8), abs=1e-4)
            scored += 1
    assert scored > 10


def test_swift_keeps_a_candidate_only_if_it_is_better_on_the_same_window() -> None:
    kept = lost = moved = 0
    notes = [x for _, x in told(searching(120, bayes_interval=4, max_draft_tokens=1, window=16))]
    for a, b in pairwise(notes):
        same = (a["attn"], a["ffn"]) == (b["attn"], b["ffn"])
        if b.get("candidate") == "in use":
            moved += 1
            assert same and b["match"] == b["score"]
        elif "candidate" in b and b["score"] > a["match"]:
            kept += 1
            assert b["match"] == b["score"]
        else:
            lost += 1
            assert same and b.get("match") == a.get("match")
    assert kept >= 1 and lost > 5 and moved > 5, "the test needs all three"
    assert {x.get("candidate") for x in notes} >= {"in use", "random", "bayes"}


@pytest.mark.nightly
def test_swift_accepts_more_with_sets_that_match_better() -> None:
    """For every set of three of the six inner sub-layers: its matchness over a whole text against its drafts of one token."""
    text, words = (
        [*toys.PROMPT, *toys.greedy_text(DEEP.decoder, toys.PROMPT, 40)],
        [f"{kind}{i}" for kind in "af" for i in (1, 2, 3)],
    )
    found = []
    for chosen in combinations(words, 3):
        skip = Skip(*(frozenset(int(x[1]) for x in chosen if x[0] == kind) for kind in "af"))
        method = toys.method(
            drafter=(
                "layer_skip",
                {"skip_sublayers": " ".join(chosen), "max_draft_tokens": 1, "min_probability": 0.0},
            )
        )
        steps = toys.decode(method, count=40, pair=(DEEP, DEEP)).sink.steps
        accepted = sum(step.accepted for step in steps) / sum(step.drafted for step in steps)
        found.append((matchness(DEEP.decoder, text, skip, len(toys.PROMPT) - 1, 40), accepted))
    correlation = torch.corrcoef(torch.tensor(found).T)[0, 1]
    assert len({x for x, _ in found}) > 5 and correlation > 0.7, correlation


def test_swift_searches_one_pass_a_step_and_ends_for_each_reason() -> None:
    for settings, rounds in (
        (dict(target_matchness=0.0), 1),
        (dict(max_rounds=5), 5),
        (dict(max_rounds=0), 0),
        (dict(patience=2), None),
    ):
        session = searching(**settings)
        passes = [[p for p in step.passes if p.phase == "search"] for step in session.sink.steps]
        assert all(len(found) <= 1 for found in passes)
        ran = [
            (p.tokens, sum(5 if x is None else x for x in p.layers[:2])) for found in passes for p in found
        ]
        assert set(ran) <= {(8, 10 - 3)}
        last = told(session)[-1][1]
        assert last["rounds"] == sum(map(len, passes)) and not last["searching"]
        assert rounds is None or last["rounds"] == rounds


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
def test_swift_search_is_drawn_from_the_seed(sampler: str) -> None:
    notes = [[n for _, n in told(searching(40, sampler, seed, bayes_interval=0))] for seed in (1, 1, 2)]
    assert notes[0] == notes[1] != notes[2]
    if sampler == "greedy":
        assert searching(40, seed=1).end.tokens == searching(40, seed=2).end.tokens


@pytest.mark.parametrize(
    "policy", ["keep_all", ("h2o", {"heavy": 60, "recent": 60})], ids=["keep all", "h2o"]
)
def test_swift_search_puts_back_what_it_overwrote(policy) -> None:
    parts = dict(
        drafter=("swift", {"window": 4, "skip_ratio": 0.5, "target_matchness": 1.0, "max_draft_tokens": 2}),
        policy=policy,
    )
    session = toys.decode(toys.method(**parts), count=12, pair=(DEEP, DEEP))
    drafter, target = session.drafter, session.target
    before = [
        (x.kv[:, :, :, : x.n].clone(), {k: x.column(k).clone() for k in x.columns})
        for x in target.cache.layers
    ]
    drafter._at, drafter._searching, rounds = -1, True, len(drafter._scores)
    with torch.inference_mode():
        drafter._search_round(session.context)
    assert len(drafter._scores) == rounds + 1
    for store, (kv, columns) in zip(target.cache.layers, before, strict=True):
        assert (store.n, store.m) == (len(session.tokens) - 1, 0) and torch.equal(
            store.kv[:, :, :, : store.n], kv
        )
        assert all(torch.equal(store.column(name), x) for name, x in columns.items())
    assert bool(columns) == (policy != "keep_all")


def test_swift_rests_while_the_window_is_not_in_the_cache() -> None:
    parts = dict(drafter=("swift", {"window": 4, "skip_ratio": 0.5}), policy=("window", {"window": 6}))
    session = toys.decode(toys.method(**parts), count=30, pair=(DEEP, DEEP))
    assert all(p.phase != "search" for step in session.sink.steps for p in step.passes)
    assert check(session.sink).ok


def test_most_promising_by_hand() -> None:
    """Three sub-layers, one skipped: 100 scored 0.5, 010 scored 0.9 and is in use. 100 was tried, so only 001 is left."""
    seen = torch.tensor([[1, 0, 0], [0, 1, 0]], dtype=torch.bool)
    assert propose_subset(seen, [0.5, 0.9], seen[1], 8).tolist() == [False, False, True]
    assert propose_subset(torch.eye(3, dtype=torch.bool), [0.5, 0.9, 0.2], seen[1], 8) is None


def test_most_promising_has_the_highest_bound() -> None:
    """Computed again with an inverse, for one pair of sets at a time."""
    g = torch.Generator().manual_seed(3)
    seen = torch.stack([torch.rand(8, generator=g).argsort() < 4 for _ in range(12)])
    scores = [float(x[:2].sum()) / 2 for x in seen]  # skipping the first two is good
    used = seen[max(range(12), key=scores.__getitem__)]
    y = torch.tensor(scores, dtype=torch.float64)
    signal, noise = max(float(y.var(correction=0)), 1 / 128), 1 / 128

    def kernel(a: torch.Tensor, b: torch.Tensor) -> float:
        return signal * torch.tensor(-int((a != b).sum()) / 4.0, dtype=torch.float64).exp().item()

    among = torch.tensor(
        [[kernel(a, b) + noise * (i == j) for j, b in enumerate(seen)] for i, a in enumerate(seen)]
    ).double()
    bounds = {}
    for i in used.nonzero()[:, 0].tolist():
        for j in (~used).nonzero()[:, 0].tolist():
            new = used.clone()
            new[i], new[j] = False, True
            if not any(torch.equal(new, x) for x in seen):
                near = torch.tensor([kernel(new, x) for x in seen], dtype=torch.float64)
                weights = among.inverse() @ near
                bounds[tuple(new.tolist())] = (
                    float(y.mean() + weights @ (y - y.mean())) + 2.5 * (signal - float(weights @ near)) ** 0.5
                )
    assert len(bounds) > 10 and tuple(propose_subset(seen, scores, used, 32).tolist()) == max(
        bounds, key=bounds.__getitem__
    )


def test_swift_has_the_targets_law_while_it_searches() -> None:
    """All paths of chance of whole runs, the search's draws included, on a real transformer over three ids."""
    spec = toys.toy_spec(vocab=3, heads=())
    decoder = toys.decoder(spec, 4, torch.float64)
    drafter = build(
        "drafter",
        "swift",
        dict(window=2, skip_ratio=0.5, max_draft_tokens=1, siblings=False, target_matchness=1.0),
    )
    method = Method(drafter=drafter, sampler=build("sampler", "temperature", {"temperature": 1.0}))
    walk = Walk(method, {"target": toys.model(decoder)}, 4, prompt=SHORT)
    law = walk.full_run_distribution()
    assert len(walk.s.drafter._scores) >= 1, "the test needs a search"
    assert (
        distribution_distance(law, text_distribution(logits_by_prefix(decoder), Warp(), SHORT, 4, 3)) < 1e-12
    )
