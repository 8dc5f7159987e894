"""Runs side by side: where texts diverge, whether that is a tie, what had to be equal, and which uniforms are shared."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from decodescope.engine.trace import Trace
from decodescope.lab.views.contrast import EDGE, RunSide, contrast, shared_randomness

from .runs import run


def other(trace: Trace, token: int, **changes: Any) -> tuple[RunSide, RunSide, int]:
    """A run with one token per step, the same run with the second most likely token at `token`, and that token.

    `changes` are applied to that step's record in both runs.
    """
    records = list(trace.records())
    step = next(x for x in records if getattr(x, "step", None) == token)
    second = int(step.tops.ids[0][np.argsort(-step.tops.p[0], kind="stable")[1]])
    sides = []
    for emitted in (step.emitted, [second]):
        made = copy.deepcopy(records)
        mine = next(x for x in made if getattr(x, "step", None) == token)
        mine.emitted = list(emitted)
        for name, value in changes.items():
            setattr(mine, name, value)
        sides.append(RunSide.of(Trace(made)))
    return sides[0], sides[1], second


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [({"tie": [[0.0, 2e-4]]}, "tied"), ({"tie": None}, "differs"), ({"tops": None, "tie": None}, "unknown")],
)
def test_two_lossless_greedy_texts_that_part_are_a_tie_a_fault_or_not_known(
    changes: dict[str, Any], verdict: str
) -> None:
    a, b, second = other(run("plain greedy"), 7, **changes)
    made = contrast(a, b)
    assert (made.due, made.verdict, made.at, made.parted) == ("same", verdict, 7, True)
    assert made.ids == (a.tokens[7], second)
    if verdict == "tied":
        assert made.gap == 2e-4 and made.tied
    if verdict == "unknown":
        assert made.gap is None and made.tied is None
    if verdict == "differs":
        p = sorted((float(x) for x in run("plain greedy").steps[7].tops.p[0]), reverse=True)
        assert made.gap == pytest.approx(float(np.log(p[0] / p[1]))) and made.gap > 1e-3


def test_a_tie_of_other_tokens_excuses_nothing() -> None:
    a, b, _ = other(run("plain greedy"), 7, tie=[[0.0, 2e-4]])
    ids = run("plain greedy").steps[7].tops.ids[0]
    b.tokens[7] = next(x for x in range(13) if x not in [int(k) for k in ids[:2]] and x != a.tokens[7])
    best = a.close[7, 0][2]
    assert b.tokens[7] not in best
    assert contrast(a, b).verdict == "differs"


def test_equal_texts_of_other_lengths_are_equal_as_far_as_both_go() -> None:
    a = RunSide.of(run("plain greedy"))
    b = RunSide.of(run("greedy"))
    assert contrast(a, b).verdict == "same"
    b.tokens, b.wrote = b.tokens[:30], b.wrote[:30]
    made = contrast(a, b)
    assert (made.verdict, made.at, made.parted, made.ids) == ("same", 30, False, (a.tokens[30], None))
    b.over = False
    assert contrast(a, b).verdict == "so far"


def test_the_kept_numbers_are_those_of_the_steps() -> None:
    trace = run("chain", seed=3)
    side = RunSide.of(trace)
    assert side.kept == [x.accepted for x in trace.steps if x.drafted] and side.tokens == trace.emitted_ids
    for token in range(len(side.tokens)):
        number, place = side.wrote[token]
        assert trace.steps[number].emitted[place] == side.tokens[token]
    own = {x.n + len(x.path or []): x.extra.u for x in trace.steps if x.extra is not None}
    assert side.uniforms == own and side.uses_drafts and not side.is_greedy


def test_runs_of_one_seed_share_uniforms_and_those_of_others_none() -> None:
    a, b, c = (RunSide.of(run(kind, seed=seed)) for kind, seed in (("chain", 3), ("tree", 3), ("chain", 4)))
    same, others = contrast(a, b), contrast(a, c)
    assert same.shared == same.both > 3 and same.due == "law" and same.verdict == "free"
    assert others.both > 3 and others.shared == 0
    assert f"at {same.shared} of {same.both}" in shared_randomness(
        a, b, same
    ) and "Other seeds" in shared_randomness(a, c, others)
    still = RunSide.of(run("plain greedy"))
    assert "B draws nothing" in shared_randomness(a, still, contrast(a, still))


def test_texts_drawn_with_one_seed_and_no_drafts_must_be_equal_but_at_the_edge_of_an_interval() -> None:
    a, b = (RunSide.of(run("plain", seed=3)) for _ in range(2))
    assert contrast(a, b).verdict == "same" and contrast(a, b).due == "same"
    b.tokens[5] = (b.tokens[5] + 1) % 13
    position = len(a.header.prompt) + 5
    for edge, verdict in ((EDGE / 2, "tied"), (0.2, "differs")):
        a.edges[position] = b.edges[position] = edge
        assert contrast(a, b).verdict == verdict
