"""Any two parts work together or say why not; what is recorded agrees with itself at every level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import toys
from pairs import CROSSED, PAIRS, name, opened, refusal, sort_of
from sizes import sizes

from decodescope.engine import Session
from decodescope.engine.core.component import KINDS
from decodescope.engine.trace import check

EVERY = 3  # a commit runs one of so many pairs, so that every part meets a third of every other family: pairs grow with the
# square of the parts, and ten thousand of them were a quarter of all the time
FLOOR = 5961  # pairs that ran when they were last counted; a new method adds to it, a lower number needs a reason
SAMPLED = {"sampler": ("temperature", {"temperature": 0.9})}
GREEDY_ONLY = ("beam", "contrastive_search", "diverse_beam", "jacobi", "superposed")  # strategies that draw nothing
Tell = Callable[[str], None]


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
