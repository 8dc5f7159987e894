"""Any two parts work together or give the reason why not; every record is consistent, at every level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import pytest
import toys
from covering import SAMPLED, Parts, recorded, runs, sample, stand_ins
from pairs import opened, refusal, sort_of
from sizes import by_turns, sizes

from decodescope.engine import Session
from decodescope.engine.core.component import KINDS
from decodescope.engine.trace import check

# for each kind, the number of pairs with the kinds of `partners` that ran at the last count; a new method raises it, and a
# lower number needs a reason
FLOORS = {
    "strategy": 546,
    "drafter": 840,
    "schedule": 343,
    "acceptance": 368,
    "prompt_compression": 674,
    "policy": 1066,
    "kv_compression": 267,
    "adaptive_depth": 1039,
    "unmasking": 70,
    "router": 35,
    "guidance": 165,
    "sampler": 1091,
}
COUNT = 8  # tokens of a run
SHARE = 0.65  # the least share of the pairs of the sample that run
Tell = Callable[[str], None]


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Iterator[Tell]:
    """Records the outcome of a pair, which the end of the tests' output counts. A test that records no outcome fails."""
    told = []
    yield lambda outcome: (told.append(outcome), record_property("counted", outcome))[0]
    assert told, "neither run nor refused"


def that_run(parts: Parts, tell: Tell) -> list[Parts]:
    """The parts, or, if they are refused, the parts that substitute for them."""
    said = refusal(parts)
    tell(sort_of(said, parts) if said else "ran")
    if not said:
        return [parts]
    drawn = SAMPLED if len(parts) == 3 else {}  # a pair with a sampler that draws
    pair = {kind: part for kind, part in parts.items() if kind not in drawn}
    several = [x | drawn for x in stand_ins(pair, lambda x: bool(refusal(x | drawn)))]
    for _ in several:
        tell("another of its family ran")
    return several


def ended(parts: Parts, count: int = COUNT, **more: Any) -> Session:
    """The run of parts that fit, at its end."""
    session = opened(parts, count, **more)
    assert isinstance(session, Session), session
    return toys.finish_session(session)


@pytest.mark.parametrize("parts", by_turns(4, runs()))
def test_pair_runs_or_says_why_not(parts: Parts, tell: Tell) -> None:
    for run in map(ended, that_run(parts, tell)):
        assert len(run.end.tokens) == COUNT and run.end.reason == "max_new_tokens"
        report = check(run.sink)
        assert report.ok, str(report)


def partners(kind: str) -> list[str]:
    """The kinds whose pairs with `kind` its test opens. Each pair of kinds is opened by one of the two, in equal shares."""
    own = KINDS.index(kind)
    return [x for i, x in enumerate(KINDS) if x != kind and (i > own) == ((i + own) % 2 == 1)]


def test_most_pairs_of_the_sample_run_and_every_part_is_in_one_of_them() -> None:
    """Otherwise a refusal that is too wide would turn off the tests of the product one by one.

    The nightly run opens every pair.
    """
    pairs = [*sample()]
    ran = [parts for parts in pairs if not refusal(parts)]
    assert len(ran) > SHARE * len(pairs), f"{len(ran)} of {len(pairs)} pairs run"
    alone = [parts for parts in pairs if len(parts) == 1]
    ran += [x for parts in pairs if parts not in ran for x in stand_ins(parts, lambda x: bool(refusal(x)))]
    met = {(kind, part[0]) for parts in (*ran, *alone) for kind, part in parts.items()}
    assert met == {(kind, part[0]) for kind in KINDS for part in toys.representatives(kind)}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_most_pairs_run_and_every_part_is_in_one_of_them(kind: str) -> None:
    """Every pair is opened; if it is refused, the refusal is a clear sentence."""
    pairs = [
        {kind: x, other: y}
        for other in partners(kind)
        for x in toys.representatives(kind)
        for y in toys.representatives(other)
    ]
    refused = {i: said for i, parts in enumerate(pairs) if (said := refusal(parts))}
    ran = [parts for i, parts in enumerate(pairs) if i not in refused]
    print(f"{len(ran)} of {len(pairs)} pairs run")
    assert len(ran) >= FLOORS[kind], (
        f"{len(ran)} of {len(pairs)} pairs run, {FLOORS[kind]} did; refused are "
        + str(Counter(sort_of(said, pairs[i]) for i, said in refused.items()).most_common())
    )
    assert {part[0] for part in toys.representatives(kind)} == {parts[kind][0] for parts in ran}


def test_every_pair_is_opened_by_the_test_of_one_of_its_kinds() -> None:
    both = [(kind, other) for kind in KINDS for other in partners(kind)]
    assert {frozenset(x) for x in both} == {*map(frozenset, combinations(KINDS, 2))} and len(both) == len(
        {*map(frozenset, both)}
    )


@pytest.mark.parametrize("parts", by_turns(4, recorded()))
def test_level_changes_the_cost_and_never_the_text(parts: Parts, tell: Tell) -> None:
    for one in that_run(parts, tell):
        runs = [ended(one, level=level, seed=3) for level in ("summary", "decisions", "full")]
        assert runs[0].end.tokens == runs[1].end.tokens == runs[2].end.tokens
        shapes = [
            [(s.emitted, s.origins, s.drafted, s.accepted, s.path) for s in run.sink.steps] for run in runs
        ]
        assert shapes[0] == shapes[1] == shapes[2]
        assert all(check(run.sink).ok for run in runs)


@pytest.mark.parametrize("kind", KINDS)
@sizes("times", usual=2, full=5)
def test_same_seed_same_trace(kind: str, times: int, tell: Tell) -> None:
    for part in toys.representatives(kind):
        parts = {kind: part} if kind in ("sampler", "strategy") else {kind: part, **SAMPLED}
        for one in that_run(parts, tell):
            assert len({ended(one, seed=11).end.content_hash for _ in range(times)}) == 1, one
