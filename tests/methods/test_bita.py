"""BiTA: every pass checks and drafts; mask tokens and their prefix influence their own guesses and nothing else."""

from __future__ import annotations

import copy
import dataclasses
from itertools import product

import pytest
import torch
import toys
from drafting import path_of

from decodescope.engine import Session
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.methods.drafters.heads.bita import RATES
from decodescope.engine.session.replay.exact_distribution import exact_distribution

V5 = toys.model(toys.decoder(toys.toy_spec(vocab=5), 3, torch.float64, sharp=2.0))
M = 3  # the toy's number of mask tokens


def steps(nodes: int, count: int = 12, sampler: str = "greedy", target=None):
    """(text with the root last, outcome) of the first steps of a run of the lively target."""
    session = Session(
        target or toys.pair()[0],
        toys.method(drafter=("bita", {"nodes": nodes}), sampler=sampler),
        toys.PROMPT,
        seed=5,
    )
    session.start()
    observe, seen = session.drafter.observe, []
    session.drafter.observe = lambda outcome: (seen.append(outcome), observe(outcome))[1]  # type: ignore[method-assign]
    for _ in range(count):
        text = list(session.tokens)
        session.step()
        yield text, seen[-1]


def other_prefix():
    """The lively target with another prefix for the same mask tokens."""
    target, decoder = toys.pair()[0], copy.copy(toys.pair()[0].decoder)
    head = toys.heads("bita", 32, seed=9, n_layers=3, n_kv_heads=2, head_dim=8).copy_to(dtype=torch.float64)
    with torch.no_grad():
        head.embeds.copy_(target.decoder.heads["bita"].embeds)
        head.prefix.mul_(4)
    decoder.heads = {**target.decoder.heads, "bita": head}
    return dataclasses.replace(target, decoder=decoder)


def test_every_place_has_a_group_and_the_group_where_the_path_ends_makes_the_next_candidates() -> None:
    before, used = None, 0
    for _, outcome in steps(6):
        draft = outcome.draft
        assert draft.notes["slots"] == [M] * (len(draft) + 1) and len(outcome.slots) == M * (len(draft) + 1)
        assert len(draft) == (0 if before is None else 6)
        if before is not None:
            place = before.verdict.path[-1] + 1 if before.verdict.path else 0
            guesses = before.slots[M * place : M * (place + 1)].argsort(1, descending=True)
            for node, rank in enumerate(draft.notes["ranks"]):
                assert draft.tokens[node] == guesses[draft.depth[node] - 1, rank]
                used += 1
        before = outcome
    assert used > 40


def test_candidates_are_those_with_the_most_expected_tokens() -> None:
    """The six combinations of ranks that are most likely right form the tree with the highest value."""
    ways = [way for depth in (1, 2, 3) for way in product(range(6), repeat=depth)]
    value = {way: float(torch.tensor([RATES[d][r] for d, r in enumerate(way)]).prod()) for way in ways}
    best = sorted(ways, key=lambda way: -value[way])[
        :6
    ]  # a combination is never worth more than its beginning
    _, outcome = [*steps(6, 2)][1]
    draft, ranks = outcome.draft, outcome.draft.notes["ranks"]

    def way(node: int) -> tuple[int, ...]:
        return () if node == ROOT else (*way(draft.parents[node]), ranks[node])

    assert {way(node) for node in range(6)} == set(best)
    assert draft.notes["expected"] == pytest.approx(1 + sum(value[x] for x in best), abs=1e-4)


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
def test_the_check_has_the_logits_of_one_without_mask_tokens_and_prefix(sampler: str) -> None:
    """Bit for bit, compared with a pass of as many rows, with tokens that nobody sees instead of the mask tokens."""
    rows = 0
    for text, outcome in steps(5, sampler=sampler):
        draft, slots = outcome.draft, outcome.draft.slots
        at = [node for node, step in zip(slots.at, slots.steps, strict=True) if step == 1]
        several = {node: [node] for node in at}
        plain = Draft(list(draft.tokens), list(draft.parents))
        for node, step in zip(
            slots.at, slots.steps, strict=True
        ):  # a chain of auxiliary nodes instead of each group
            plain.parents.append(several[node][step - 1])
            plain.tokens.append(4)
            several[node].append(len(plain.tokens) - 1)
        plain.acceptable = [node < len(draft) for node in range(len(plain.tokens))]
        session = Session(toys.pair()[0], toys.method(), text)
        session.start()
        lane, place, n = session.target, len(text) - 1, len(draft) + 1
        with torch.inference_mode():
            due = lane.decoder.forward(plain.build_feed(text[-1], place), lane.cache)[0]
            lane.rollback()
            mine = lane.decoder.forward(draft.build_feed(text[-1], place), lane.cache)[0]
        assert torch.equal(mine[:n], due[:n]) and torch.allclose(outcome.logits, due[:n], atol=1e-12)
        rows += n
    assert rows > 50


def test_a_prefix_changes_guesses_and_never_the_text_or_the_cache() -> None:
    mine, others = [*steps(5)], [*steps(5, target=other_prefix())]
    first, second = mine[0][1], others[0][1]
    assert torch.equal(first.logits, second.logits) and float((first.slots - second.slots).abs().max()) > 0.1
    assert any(a.draft.tokens != b.draft.tokens for (_, a), (_, b) in zip(mine, others, strict=True))
    session = toys.decode(toys.method(drafter="bita"), count=30)
    assert session.end.tokens == toys.cached_greedy_text(toys.pair()[0], toys.PROMPT, 30)
    cache, text = session.target.cache, session.tokens
    plain = Session(toys.pair()[0], toys.method(), text[: cache.length + 1])
    plain.start()
    assert not cache.outside and cache.lengths() == cache.length == plain.target.cache.length
    for a, b in zip(cache.layers, plain.target.cache.layers, strict=True):
        assert not a.m and torch.allclose(a.k, b.k, atol=1e-12) and torch.allclose(a.v, b.v, atol=1e-12)


def test_a_group_sees_its_own_branch_alone() -> None:
    """The guesses after a node equal those after the same text without the other branches."""
    compared = 0
    for text, outcome in steps(5, 5):
        for place in range(len(outcome.draft) + 1):
            whole = [*text, *path_of(outcome.draft, place - 1)]
            session = Session(toys.pair()[0], toys.method(drafter="bita"), whole, seed=5)
            session.start()
            draft = session.drafter.propose(session.context)
            with torch.inference_mode():
                rows = session.target.forward(draft.build_feed(whole[-1], len(whole) - 1))[0]
            assert torch.allclose(outcome.slots[M * place : M * place + M], rows[1:], atol=1e-9)
            compared += 1
    assert compared > 20


@pytest.mark.parametrize("nodes", [1, 4])
def test_law_is_the_targets_by_counting_every_outcome(nodes: int) -> None:
    knobs = {"temperature": {"temperature": 1.0}, "top_k": {"k": 2}}
    names = {"sampler": ["temperature", "top_k"]}
    plain = toys.Method.from_names(names, knobs)
    drafted = toys.Method.from_names({**names, "drafter": "bita"}, {**knobs, "drafter": {"nodes": nodes}})
    counted, due = (
        exact_distribution(V5, drafted, [1, 2, 1, 3], 4),
        exact_distribution(V5, plain, [1, 2, 1, 3], 4),
    )
    assert len(due) >= 8 and counted == pytest.approx(due, abs=1e-12)
