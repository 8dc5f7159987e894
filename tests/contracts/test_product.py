"""Any two parts work together or say why not; what is recorded agrees with itself at every level."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import toys
from sizes import sizes

from decodescope.engine import MethodError, Session
from decodescope.engine.core.component import KINDS
from decodescope.engine.trace import check

SHELVES = {kind: [*enumerate(toys.representatives(kind))] for kind in KINDS}
CROSSED = [(i + j, {a: x, b: y}) for a, b in combinations(KINDS, 2) for i, x in SHELVES[a] for j, y in SHELVES[b]]
PAIRS = [parts for _, parts in CROSSED]
EVERY = 3  # a commit runs one of so many pairs, so that every part meets a third of every other family: pairs grow with the
# square of the parts, and ten thousand of them were a quarter of all the time
FLOOR = 5961  # pairs that ran when they were last counted; a new method adds to it, a lower number needs a reason
SAMPLED = {"sampler": ("temperature", {"temperature": 0.9})}
GREEDY_ONLY = ("beam", "contrastive_search", "diverse_beam", "jacobi", "superposed")  # strategies that draw nothing
Tell = Callable[[str], None]


def name(parts: dict) -> str:
    return "-".join(x[0] + "".join(f"_{Path(str(v)).name}" for v in x[1].values()) for x in parts.values())


def whole(parts: dict) -> dict:
    """A schedule is for those who draft, a selector for a canvas, a router for two models."""
    beside = {"drafter": ("draft_model", {"length": 4})} if "schedule" in parts else {}
    beside |= {"strategy": ("masked", {"block": 8})} if "selector" in parts and "schedule" not in parts else {}
    beside |= {"strategy": toys.routed(parts["router"][0])} if "router" in parts and "schedule" not in parts else {}
    return {**beside, **parts}


def opened(parts: dict, count: int = 12, **more) -> Session | str:
    """The run of these parts before its first step, or the sentence with which they are refused before anything runs."""
    method = toys.method(**whole(parts))
    target, models = toys.company(method)
    try:
        return Session(target, method, toys.PROMPT, models=models, max_new_tokens=count, **more)
    except MethodError as refusal:
        said = str(refusal)
        assert said.endswith((".", ".)")) and "\n" not in said and len(said) < 300
        assert any(word in said for word in ("choose", "Choose", "leave", "use ")), f"no way out: {said}"
        assert sum(x[0] in said for x in parts.values()) >= 1, f"names no part: {said}"
        return said


def refusal(parts: dict) -> str:
    """The sentence of a refusal; empty if the parts fit."""
    return said if isinstance(said := opened(parts), str) else ""


def sort_of(said: str, parts: dict) -> str:
    """The first clause of a refusal, with kinds in the place of names: what its likes are counted under."""
    clause = re.split(r"[;.:] |, so ", said)[0]
    for kind, part in whole(parts).items():
        clause = re.sub(rf"\b{part[0]}\b", f"[{kind}]", clause)
    return clause


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Iterator[Tell]:
    """Says what became of a pair; the end of the tests' output counts it. A test that does not say it fails."""
    told = []
    yield lambda outcome: (told.append(outcome), record_property("counted", outcome))[0]
    assert told, "neither run nor refused"


def tried(parts: dict, tell: Tell, count: int = 12, **more) -> Session | None:
    """The run's session, or None if the parts are refused, with a clear sentence."""
    made = opened(parts, count, **more)
    tell(sort_of(made, parts) if isinstance(made, str) else "ran")
    return None if isinstance(made, str) else toys.finished(made)


def runs() -> Iterator[Any]:
    """Every pair as it comes, which is greedy, and with a temperature where it leaves that open. A commit takes one of `EVERY`
    pairs, and one of the two ways, in turns."""
    for place, parts in CROSSED:
        turn, left = divmod(place, EVERY)
        either = "sampler" not in parts and parts.get("strategy", ("",))[0] not in GREEDY_ONLY
        marks = [pytest.mark.nightly if left or (either and turn % 2 != way) else () for way in (0, 1)]
        yield pytest.param(parts, id=name(parts), marks=marks[0])
        if either:
            yield pytest.param({**parts, **SAMPLED}, id=name(parts) + "-drawn", marks=marks[1])


def recorded() -> Iterator[Any]:
    """A third of the pairs of a strategy or a policy; a commit takes one of `EVERY` of these."""
    for place, parts in CROSSED:
        if place % 3 == 0 and ("strategy" in parts or "policy" in parts):
            yield pytest.param(parts, id=name(parts), marks=pytest.mark.nightly if place // 3 % EVERY else ())


@pytest.mark.parametrize("parts", [*runs()])
def test_pair_runs_or_says_why_not(parts: dict, tell: Tell) -> None:
    run = tried(parts, tell)
    if run is not None:
        assert len(run.end.tokens) == 12 and run.end.reason == "max_new_tokens"
        report = check(run.sink)
        assert report.ok, str(report)


def test_most_pairs_run_and_every_part_is_in_one_of_them() -> None:
    """Else a refusal that is too wide would turn the tests of the product off, one by one."""
    ran = [parts for parts in PAIRS if not refusal(parts)]
    print(f"{len(ran)} of {len(PAIRS)} pairs run")
    assert len(ran) >= FLOOR, f"{len(ran)} of {len(PAIRS)} pairs run, {FLOOR} did; refused are " + str(
        Counter(sort_of(said, parts) for parts in PAIRS if (said := refusal(parts))).most_common()
    )
    alone = {(kind, part[0]) for kind in KINDS for part in toys.representatives(kind)}
    assert alone == {(kind, part[0]) for parts in ran for kind, part in parts.items()}


@pytest.mark.parametrize("parts", [*recorded()])
def test_level_changes_the_cost_and_never_the_text(parts: dict, tell: Tell) -> None:
    first = tried(parts, tell, 10, level="counts", seed=3)
    if first is None:
        return
    runs = [first, *(tried(parts, tell, 10, level=level, seed=3) for level in ("decisions", "fields"))]
    assert runs[0].end.tokens == runs[1].end.tokens == runs[2].end.tokens
    shapes = [[(s.emitted, s.origins, s.drafted, s.accepted, s.path) for s in run.sink.steps] for run in runs]
    assert shapes[0] == shapes[1] == shapes[2]
    assert all(check(run.sink).ok for run in runs)


@pytest.mark.parametrize("kind", KINDS)
@sizes("times", usual=2, full=5)
def test_same_seed_same_trace(kind: str, times: int, tell: Tell) -> None:
    for part in toys.representatives(kind):
        parts = {kind: part} if kind in ("sampler", "strategy") else {kind: part, **SAMPLED}
        runs = [tried(parts, tell, seed=11) for _ in range(times)]
        if runs[0] is not None:
            assert len({run.end.content_hash for run in runs}) == 1, part
