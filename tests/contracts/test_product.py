"""Any two parts work together or say why not; what is recorded agrees with itself at every level."""

from __future__ import annotations

from itertools import combinations

import pytest
import toys
from decodescope.engine import MethodError
from decodescope.engine.component import KINDS
from decodescope.engine.trace import check

PAIRS = [{a: x, b: y} for a, b in combinations(KINDS, 2) for x in toys.representatives(a) for y in toys.representatives(b)]
SAMPLED = {"sampler": ("temperature", {"temperature": 0.9})}


def name(parts: dict) -> str:
    return "-".join(x[0] + "".join(f"_{v}" for v in x[1].values()) for x in parts.values())


def tried(parts: dict, count: int = 12, **more):
    """The run's session, or None if the method was refused with a clear sentence."""
    if "schedule" in parts:  # a schedule is for those who draft
        parts = {"drafter": ("draft_model", {"length": 4}), **parts}
    try:
        return toys.decode(toys.method(**parts), count=count, **more)
    except MethodError as refusal:
        said = str(refusal)
        assert said.endswith((".", ".)")) and "\n" not in said and len(said) < 300
        assert any(word in said for word in ("choose", "Choose", "leave", "use ")), f"no way out: {said}"
        assert sum(x[0] in said for x in parts.values()) >= 1, f"names no part: {said}"
        return None


@pytest.mark.parametrize("parts", PAIRS, ids=name)
def test_pair_runs_or_says_why_not(parts: dict) -> None:
    for more in ({}, SAMPLED):
        if more and ("sampler" in parts or parts.get("strategy", ("",))[0] in ("beam", "jacobi")):
            continue
        session = tried({**parts, **more})
        if session is not None:
            assert len(session.end.tokens) == 12 and session.end.reason == "max_new_tokens"
            report = check(session.sink)
            assert report.ok, str(report)


@pytest.mark.parametrize("parts", [p for p in PAIRS if "strategy" in p or "policy" in p][::3], ids=name)
def test_level_changes_the_cost_and_never_the_text(parts: dict) -> None:
    runs = [tried(parts, 10, level=level, seed=3) for level in ("counts", "decisions", "fields")]
    if runs[0] is None:
        return
    assert runs[0].end.tokens == runs[1].end.tokens == runs[2].end.tokens
    shapes = [[(s.emitted, s.origins, s.drafted, s.accepted, s.path) for s in run.sink.steps] for run in runs]
    assert shapes[0] == shapes[1] == shapes[2]
    assert all(check(run.sink).ok for run in runs)


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_trace(kind: str) -> None:
    for part in toys.representatives(kind):
        parts = {kind: part} if kind in ("sampler", "strategy") else {kind: part, **SAMPLED}
        runs = [tried(parts, seed=11) for _ in range(5)]
        if runs[0] is not None:
            assert len({run.end.content_hash for run in runs}) == 1, part
