"""Chained: a lane that writes on its own leaves the same state as an observed one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import toys

from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.shared.greedy_continuation import continue_greedily, is_unobserved
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.model.forward.feed import Feed


def lane() -> Lane:
    one = Lane("draft", toys.pair()[1].decoder, KeepAll())
    one.read(toys.PROMPT)
    return one


def looked_at(one: Lane, token: int, count: int) -> list[int]:
    written = []
    for _ in range(count):
        one.forward(Feed.causal_chain([token], len(one.tokens)), "draft")
        one.commit([0], compress=False)
        token = one.best[-1]
        written.append(token)
    return written


def test_tokens_entries_and_records_are_those_of_a_lane_that_is_looked_at() -> None:
    alone, other = lane(), lane()
    assert is_unobserved(alone)
    assert continue_greedily(alone, alone.best[-1], 6) == looked_at(other, other.best[-1], 6)
    assert alone.tokens == other.tokens and alone.best == other.best and toys.matches_fresh_reading(alone)
    a, b = ([replace(x, wall_us=0.0) for x in one.take_passes()] for one in (alone, other))
    assert a == b and len(a) == 7


def test_a_lane_whose_numbers_break_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    one = lane()
    before, run, count = list(one.tokens), one.executor.run, [0]

    def broken(*args: object) -> object:
        count[0] += 1
        return run(*args) * (float("nan") if count[0] == 2 else 1.0)  # type: ignore[arg-type] # as it was called

    monkeypatch.setattr(one.executor, "run", broken)
    with pytest.raises(EngineFault, match="finite"):
        continue_greedily(one, one.best[-1], 3)
    assert one.tokens == before and one.cache.length == len(before) and toys.matches_fresh_reading(one)
