"""The answer cache: what it holds, what it evicts, and that a repeat costs no pass."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from dataclasses import replace
from itertools import count, pairwise
from random import Random

import pytest
from toys import PROMPT, decoder, model

from decodescope.engine import run
from decodescope.engine.core.params import ParamError
from decodescope.engine.session.answer_cache import (
    AnswerCache,
    CachedAnswer,
    serve_requests,
    workload_totals,
    zipf_requests,
)
from decodescope.engine.trace.records.lookups import (
    EVICTS,
    Evicts,
    HeldAnswers,
    Lookup,
    check_lookups,
    replay_lookups,
)


def workload(
    evicts: Evicts, requests: list[int], costs: list[float], capacity: int, sizes: list[int]
) -> AnswerCache[int]:
    answers: AnswerCache[int] = AnswerCache(capacity, evicts)
    for lookup, value in serve_requests(answers, requests, lambda q: CachedAnswer(q, costs[q], sizes[q])):
        assert value == lookup.query and lookup.used <= capacity, (
            "the answer to another query, or too many are held"
        )
    return answers


def test_a_repeat_costs_no_pass_and_gives_the_stored_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    made, passes = model(decoder()), count()
    forward = type(made.decoder).forward
    monkeypatch.setattr(
        type(made.decoder), "forward", lambda *args, **more: (next(passes), forward(*args, **more))[1]
    )
    prompts = [PROMPT[:6], PROMPT[:9]]

    def answer(number: int) -> CachedAnswer[list[int]]:
        done = run(made, None, prompts[number], max_new_tokens=5)
        return CachedAnswer(done.tokens, float(len(done.trace.steps)), len(done.tokens))

    answers: AnswerCache[list[int]] = AnswerCache(100)
    seen: list[tuple[bool, list[int], int]] = []
    for lookup, tokens in serve_requests(answers, [0, 1, 0, 0, 1], answer):
        seen.append((lookup.hit, tokens, next(passes)))
    assert [hit for hit, _, _ in seen] == [False, False, True, True, True]
    assert seen[1][2] - seen[0][2] > 5, "an answer needs passes"
    assert [b[2] - a[2] for a, b in pairwise(seen[1:])] == [1, 1, 1], "only the counting itself"
    assert seen[2][1] == seen[0][1] == run(made, None, prompts[0], max_new_tokens=5).tokens
    done = workload_totals(answers.lookups)
    assert (done.requests, done.hits) == (5, 3) and done.saved > 0


def test_least_expected_cost_evicts_the_smallest_product_of_a_hand_made_example() -> None:
    """Check the scores after a a b b b c, each divided by 6: a 2 x 9 = 18, b 3 x 4 = 12, c 1 x 14 = 14.

    Then d, 1 x 5, comes and stays out, and e, 1 x 30, evicts b. LRU would evict a, and GDSF, which also uses the size, c.
    """
    costs = {"a": 9.0, "b": 4.0, "c": 14.0, "d": 5.0, "e": 30.0}
    sizes = {"a": 1, "b": 1, "c": 4, "d": 1, "e": 1}

    def last(evicts: Evicts, asked: str, capacity: int) -> Lookup:
        shelf = HeldAnswers(evicts, capacity)
        return [shelf.hit(q) or shelf.miss(q, costs[q], sizes[q]) for q in asked][-1]

    kept_out = last("lec", "aabbbcd", 6)
    assert kept_out.held == ["a", "b", "c", "d"] and kept_out.victims == ["d"]
    assert kept_out.scores == pytest.approx([18 / 7, 12 / 7, 14 / 7, 5 / 7])
    assert last("lec", "aabbbce", 6).victims == ["b"]
    assert last("lru", "aabbbce", 6).victims == ["a"]
    gdsf = last("gdsf", "aabbbce", 6)
    assert gdsf.scores == [18.0, 12.0, 3.5] and gdsf.victims == ["c"] and gdsf.clock == 3.5
    aged = last("gdsf", "aabbbcedc", 6)  # c again needs room 4, so the lowest leave until it fits
    assert aged.scores == [18.0, 12.0, 3.5 + 30.0, 3.5 + 5.0] and aged.victims == ["d", "b"], (
        "later ones stand on the clock"
    )


def test_lru_is_an_ordered_dict_and_the_others_are_their_formulas() -> None:
    draw = Random(3)
    costs, sizes = [draw.uniform(1, 100) for _ in range(30)], [draw.randint(1, 5) for _ in range(30)]
    requests = zipf_requests(30, 600, 0.8, seed=1)
    own: OrderedDict[int, int] = OrderedDict()
    misses = []
    for t, q in enumerate(requests):
        if q in own:
            own.move_to_end(q)
            continue
        misses.append(t)
        while sum(own.values()) + sizes[q] > 20:
            own.popitem(last=False)
        own[q] = sizes[q]
    assert misses == [x.number for x in workload("lru", requests, costs, 20, sizes).lookups if not x.hit]
    asked: Counter[int] = Counter()
    for one in workload("lec", requests, costs, 20, sizes).lookups:
        asked[one.query] += 1  # type: ignore[index] # numbers
        due = [asked[q] / asked.total() * costs[q] for q in one.held]  # type: ignore[index]
        assert one.scores == pytest.approx(due)
        if one.victims:
            assert one.victims == [q for _, _, q in sorted(zip(due, count(), one.held))][: len(one.victims)]
    gdsf = workload("gdsf", requests, costs, 20, sizes).lookups
    assert any(x.victims for x in gdsf) and all(b.clock >= a.clock for a, b in pairwise(gdsf))


def test_costs_that_differ_are_where_lec_and_gdsf_win_on_a_zipf_workload() -> None:
    """Costs are 1 and 100, independent of how often they are asked for: the expected cost says what is worth its place."""
    costs = [100.0 if Random(i).random() < 0.3 else 1.0 for i in range(60)]
    requests = zipf_requests(60, 3000, 0.9)
    paid = {x: workload_totals(workload(x, requests, costs, 12, [1] * 60).lookups) for x in EVICTS}
    none = sum(costs[q] for q in requests)
    assert all(math.isclose(x.cost + x.saved, none) for x in paid.values()), "what is not paid is saved"
    assert paid["lec"].cost < 0.75 * paid["lru"].cost and paid["gdsf"].cost < 0.85 * paid["lru"].cost
    replay = replay_lookups(workload("lru", requests, costs, 12, [1] * 60).lookups, "lec", 12)
    assert workload_totals(replay) == paid["lec"], (
        "costs follow from queries here, so going through again is exact"
    )


@pytest.mark.parametrize("evicts", EVICTS)
def test_going_through_again_finds_what_was_changed(evicts: Evicts) -> None:
    lookups = workload(
        evicts,
        zipf_requests(12, 80),
        [float(i % 5 + 1) for i in range(12)],
        6,
        [i % 3 + 1 for i in range(12)],
    ).lookups
    assert not [*check_lookups(lookups, evicts, 6)]
    at = next(i for i, x in enumerate(lookups) if x.victims and x.victims[0] != x.query)
    other = next(x for x in lookups[at].held if x not in lookups[at].victims)
    bad = [*lookups[:at], replace(lookups[at], victims=[other]), *lookups[at + 1 :]]
    assert "victims" in next(check_lookups(bad, evicts, 6))
    claims = [replace(lookups[0], hit=True), *lookups[1:]]
    assert "not held" in next(check_lookups(claims, evicts, 6))
    assert [*check_lookups(lookups, evicts, 5)], "another capacity"


def test_what_never_fits_and_what_cannot_be_asked_for() -> None:
    shelf = HeldAnswers("gdsf", 3)
    assert shelf.miss("a", 1.0, 4).victims == ["a"] and not shelf.held
    with pytest.raises(ParamError, match="evicts"):
        AnswerCache(4, "fifo")  # type: ignore[arg-type] # the point
    with pytest.raises(ParamError, match="capacity"):
        AnswerCache(0)
    with pytest.raises(ValueError, match="never answered"):
        replay_lookups([Lookup(0, "a", True, 0.0, 1, 1)], "lru", 3)
