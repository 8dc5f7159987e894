"""H2O: the kept sets follow from the attention of committed queries, and from nothing else."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
import toys
from masked import Masked, hitters
from sizes import sizes
from torch import Tensor
from voted import maps, sharp

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed

LAYOUTS = {"4/4": 4, "4/2": 2, "4/1": 1}


def model(kv_heads: int, seed: int) -> Decoder:
    made = toys.decoder(toys.toy_spec(n_kv_heads=kv_heads, n_layers=2), seed, torch.float64)
    for layer in made.layers:
        layer.qkv *= 4  # sharp attention: otherwise the first tokens, which all have seen, are the heavy ones
    return made


def h2o(decoder: Decoder, heavy: int, recent: int) -> Lane:
    return Lane("target", decoder, build("policy", "h2o", dict(heavy=heavy, recent=recent)))


def held(lane: Lane) -> list[list[list[int]]]:
    heads = lane.decoder.spec.n_kv_heads
    return [store.positions()[0].expand(heads, -1).sort(1).values.tolist() for store in lane.cache.layers]


def step(lane: Lane, root: int, path: list[int], wrong: int) -> Tensor:
    """Verify a tree with a refused sibling for each node of the path; commit the path. Returns the logits along the path."""
    tokens = [t for token in path for t in (wrong, token)]
    parents = [p for i in range(len(path)) for p in [2 * i - 1] * 2]
    logits = lane.forward(Draft(tokens, parents).build_feed(root, len(lane.tokens)))
    rows = [0, *(2 * i + 2 for i in range(len(path)))]
    lane.commit(rows)
    return logits[0, rows]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("heavy", "recent"), [(0, 1), (2, 1), (1, 3), (4, 4), (30, 30)])
@sizes("seeds, lengths", usual=(1, (2, 24)), full=(2, (2, 9, 24)))
@torch.inference_mode()
def test_equals_an_explicit_mask(
    heavy: int, recent: int, layout: str, seeds: int, lengths: tuple[int, ...]
) -> None:
    """Token by token and in drafted blocks with refused nodes: same sets, same logits, at the same commits."""
    late = 0
    for seed, length, blocks in product(range(seeds), lengths, (False, True)):
        decoder = model(LAYOUTS[layout], seed)
        lane, reference = h2o(decoder, heavy, recent), Masked(decoder, hitters(heavy, recent))
        text = toys.prompts(1, length + 14, seed)[0]
        assert torch.allclose(lane.read(text[:length]), reference.read(text[:length])[-1], atol=1e-10)
        while len(lane.tokens) < length + 10:
            assert held(lane) == reference.kept
            at = len(lane.tokens)
            path = text[at + 1 : at + 1 + at % 4] if blocks else []
            logits = step(lane, text[at], path, wrong=(text[at] + 5) % 13)
            assert torch.allclose(logits, reference.read([text[at], *path]), atol=1e-10)
        late += sum(heads[:heavy] != list(range(heavy)) for layer in held(lane) for heads in layer)
    assert late > 3 or heavy in (0, 30), "the test needs heavy entries that are not simply the first"


@pytest.mark.parametrize("drafter", ["none", ("token_recycling", {"nodes": "16"})], ids=["plain", "tree"])
def test_the_prompt_ends_behind_its_last_token(drafter: Any) -> None:
    """That token, the question's end, reads the whole prompt and counts; the first cut follows its commit."""
    parts = dict(policy=("h2o", dict(heavy=3, recent=3)), drafter=drafter)
    session, reference = (
        toys.decode(toys.method(**parts), count=30),
        Masked(toys.pair()[0].decoder, hitters(3, 3)),
    )
    begun, first = session.sink.prefill.cache[0], session.sink.steps[0].cache[0]
    at = len(toys.PROMPT) - 1
    assert (begun.held, begun.evicted_count) == (at, 0) and first.evicted_count == at + first.appended - 6
    with torch.inference_mode():
        reference.read(toys.PROMPT[:-1], cut=False)
        for step in session.sink.steps:
            assert (
                reference.read(session.tokens[at : at + len(step.emitted)]).argmax(-1).tolist()
                == step.emitted
            )
            at += len(step.emitted)
    assert held(session.target) == reference.kept
    for i, store in enumerate(session.target.cache.layers):
        at_slots = store.positions().expand(1, 2, -1)[0]
        assert torch.allclose(store.column("mass")[0], reference.mass[i].gather(1, at_slots), atol=1e-5)


@torch.inference_mode()
def test_replay_of_the_rows_gives_every_kept_set_and_the_mass_adds_up() -> None:
    """From the attention rows alone: one unit per committed query head; sums over the held entries give the next set."""
    lane, kept = h2o(model(2, 3), 3, 3), [[], []]
    mass = torch.zeros(2, 2, 40)

    def watch(lane: Lane, rows: list[int], before: list[int]) -> None:
        for i, store in enumerate(lane.cache.layers):
            seen, at = lane.attention(i, rows, before)[0], store.positions().expand(1, 2, -1)[0]
            assert torch.allclose(seen.sum(-1), torch.ones(()), atol=1e-6)
            mass[i].scatter_add_(1, at, seen.sum((1, 2)))
            assert torch.allclose(store.column("mass")[0], mass[i].gather(1, at), atol=1e-6)
            if store.n == lane.cache.length:  # nothing was evicted yet
                assert torch.allclose(
                    store.column("mass")[0].sum(1), torch.full((2,), 2.0 * store.n), atol=1e-4
                )
            kept[i] = [hitters(3, 3)(at[h].tolist(), mass[i, h], lane.cache.length) for h in range(2)]

    lane.watch = watch
    text = toys.prompts(1, 40)[0]
    lane.forward(Feed.causal_chain(text[:10], 0))
    lane.commit(list(range(10)))
    seen_sets = set()
    for at in range(10, 36, 2):
        assert held(lane) == [[sorted(x) for x in heads] for heads in kept]
        seen_sets |= {tuple(x[:3]) for heads in held(lane) for x in heads}
        step(lane, text[at], [text[at + 1]], wrong=3)
    assert len(seen_sets) > 2, "the test needs sets that differ"


@torch.inference_mode()
def test_mass_ignores_refused_nodes() -> None:
    lanes = [h2o(model(2, 1), 4, 4) for _ in range(2)]
    for lane, wrong in zip(lanes, (3, 11), strict=True):
        lane.read(toys.PROMPT)
        for at in range(8):
            step(lane, at, [at + 1], wrong)
    for a, b in zip(*(lane.cache.layers for lane in lanes), strict=True):
        assert torch.equal(a.positions(), b.positions()) and torch.allclose(
            a.column("mass"), b.column("mass"), atol=1e-6
        )


def test_of_equal_masses_the_lower_position_stays() -> None:
    policy = build("policy", "h2o", dict(heavy=2, recent=1))
    positions = torch.tensor([[[4, 0, 3, 1, 2, 5]]])
    same = torch.ones(1, 1, 6)
    for gone, due in (1, [4]), (2, [4, 3]), (3, [4, 3, 2]):
        victims = policy.victims(same, positions, 6, gone)
        assert positions[0, 0][victims[0, 0]].tolist() == due
    uneven = torch.tensor([[[2.0, 1.0, 1.0, 7.0, 1.0, 0.0]]])
    assert positions[0, 0][policy.victims(uneven, positions, 6, 2)[0, 0]].tolist() == [3, 2]


def test_a_slot_without_an_entry_is_never_chosen() -> None:
    policy = build(
        "policy", "key_norm", dict(low_norm_entries=2, recent=1)
    )  # a policy without a "first" zone
    victims = policy.victims(torch.tensor([[[1.0, 1.0, 1.0, 0.0]]]), torch.tensor([[[0, 1, 2, -1]]]), 3, 2)
    assert sorted(victims[0, 0].tolist()) == [0, 1]


@torch.inference_mode()
def test_bytes_follow_the_formula_and_do_not_grow() -> None:
    """2 L H_kv S D b for keys and values, 8 L H_kv S for mass and position; S is the capacity in whole pages."""
    lane = h2o(model(2, 0), 20, 20)
    lane.read(toys.prompts(1, 200)[0])
    sizes = set()
    for token in toys.prompts(1, 150, seed=1)[0]:
        step(lane, token, [], 0)
        capacity = lane.cache.layers[0].capacity
        assert lane.cache.nbytes == 2 * 2 * 2 * capacity * 8 * 8 + 8 * 2 * 2 * capacity
        sizes.add(capacity)
    assert lane.cache.fullest_length == 40 and sizes == {48}


@pytest.mark.parametrize("layout", LAYOUTS)
@torch.inference_mode()
def test_the_oracle_keeps_what_the_full_maps_say_and_the_online_scores_do_not(layout: str) -> None:
    """Set by set from the text alone: an entry's mass is the attention of all tokens so far, with nothing evicted."""
    decoder, text = sharp(3, n_kv_heads=LAYOUTS[layout]), toys.prompts(1, 50, 3)[0]
    knobs = dict(heavy=8, recent=3)
    lanes = {
        x: Lane("target", decoder, build("policy", "h2o", {**knobs, "oracle": x})) for x in (True, False)
    }
    full, kept = maps(decoder, text), [[list(range(20)) for _ in range(LAYOUTS[layout])] for _ in range(2)]
    for lane in lanes.values():
        lane.read(text[:20])
    apart = 0
    for n in range(20, 51):
        for i, h in product(range(2), range(LAYOUTS[layout])):
            mass = full[i][h, :, :n].sum((0, 1))
            kept[i][h] = sorted(hitters(8, 3)(kept[i][h], mass, n))
        assert held(lanes[True]) == kept
        apart += held(lanes[False]) != kept
        for lane in lanes.values() if n < 50 else ():
            lane.forward(Feed.causal_chain(text[n : n + 1], n))
            lane.commit([0])
        kept = [[[*row, n] for row in heads] for heads in kept]
    assert apart > 9 and not lanes[True].needs and lanes[False].reference is None
