"""Scores of an eviction in a trace at level "full": what left, what stayed, the threshold between them."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import toys

from decodescope.engine.trace import check, open_trace

PROMPT = toys.PROMPT * 3
TREE = ("token_recycling", {"nodes": "16"})


def ran(policy: Any, level: str = "full", drafter: Any = TREE) -> Any:
    return toys.decode(toys.method(policy=policy, drafter=drafter), PROMPT, count=12, level=level)


def test_a_score_is_what_the_recorded_attention_says_and_so_is_what_was_lost() -> None:
    """TOVA uses the last accepted token's row, which the same record has in full."""
    seen = 0
    for step in ran(("tova", dict(cache_size=8))).sink.steps:
        change, fields = step.cache[0], step.fields
        if change.scores is None:
            continue
        for layer in range(3):
            row = fields.attention[layer, :, :, -1].astype(np.float64).mean((0, 1))
            held = fields.positions[layer, 0]
            scores = change.scores.entries[layer]
            assert all(scores[head, held] == pytest.approx(row, abs=1e-3) for head in range(2))
            gone = {
                p for i, _, p in ([] if change.evicted is None else change.evicted.tolist()) if i == layer
            }
            gone |= set([] if change.evicted_all is None else change.evicted_all.tolist())
            left = np.isin(held, list(gone))
            assert gone and change.scores.lost[layer] == pytest.approx(row[left].sum() / row.sum(), abs=2e-3)
            assert change.scores.cut[layer] == pytest.approx(row[~left].min(), abs=1e-3)
            seen += 1
    assert seen > 10


@pytest.mark.parametrize(
    ("policy", "lost"),
    [
        (("h2o", dict(heavy=4, recent=4)), True),
        (("d2o", dict(heavy=8, recent=4)), True),
        (("scissorhands", dict(pivotal_entries=6, recent=3)), False),
        (("adakv", dict(prompt_budget=6, window=4)), False),
        (("kvzip", dict(sink_tokens=2, prompt_budget=4, window=4)), False),
        (("fastgen", dict(min_recovery=0.6, sink_tokens=2, heavy_share=0.2, recent_share=0.1)), True),
    ],
    ids=lambda x: x[0] if isinstance(x, tuple) else "",
)
def test_every_cut_by_score_is_told_and_follows(policy: Any, lost: bool, tmp_path) -> None:
    run = ran(policy)
    cuts = [s.cache[0] for s in run.sink.steps if s.cache[0].evicted_count]
    assert cuts and all(c.scores is not None and (c.scores.lost is not None) is lost for c in cuts)
    report = check(run.sink)
    assert (
        report.ok
        and report.counts["scores of entries"]
        == sum(int((~np.isnan(c.scores.entries)).sum()) for c in cuts)
        > 90
    )
    run.sink.save(tmp_path / "x.dstrace")
    again = next(
        s.cache[0].scores for s in open_trace(tmp_path / "x.dstrace").steps if s.cache[0].scores is not None
    )
    assert np.array_equal(again.entries, cuts[0].scores.entries, equal_nan=True)


def test_nothing_is_kept_that_nobody_asked_for() -> None:
    run = ran(("h2o", dict(heavy=4, recent=4)), level="decisions")
    assert all(s.cache[0].scores is None for s in run.sink.steps) and all(
        x.ranked is None for x in run.target.cache.layers
    )
    assert all(s.cache[0].scores is None for s in ran(("window", dict(window=8))).sink.steps), (
        "what goes by place has no score"
    )


def test_of_hypotheses_that_change_places_no_score_is_told() -> None:
    policy, strategy = ("key_norm", dict(low_norm_entries=5, recent=3)), ("beam", dict(width=3))
    target = toys.model(toys.decoder(replace(toys.SPEC, n_layers=1), seed=toys.LIVELY))
    method = toys.method(policy=policy, strategy=strategy)
    run = toys.decode(method, PROMPT, count=24, level="full", pair=(target, toys.pair()[1]))
    report = check(run.sink)
    assert report.ok, report
    assert any(s.cache[0].evicted_count for s in run.sink.steps) and all(
        s.cache[0].scores is None for s in run.sink.steps[1:]
    )


def test_lies_about_scores_are_found() -> None:
    run = ran(("h2o", dict(heavy=4, recent=4)), drafter="none").sink

    def told(change: Any) -> str:
        steps = run.steps
        run.steps = [*steps[:3], deepcopy(steps[3]), *steps[4:]]
        change(run.steps[3].cache[0].scores)
        problems = " ".join(check(run).problems)
        run.steps = steps
        return problems

    entries = run.steps[3].cache[0].scores.entries
    newest = entries.shape[2] - 1
    left = int(np.nanargmin(entries[0, 0]))
    gone = int(np.flatnonzero(np.isnan(entries[0, 0]))[0])

    def put(at: int, value: float) -> Any:
        return lambda x: x.entries.__setitem__((0, 0, at), value)

    assert told(lambda x: None) == "" and np.isinf(entries[0, 0, newest])
    assert "another threshold" in told(lambda x: x.cut.__setitem__((0, 0), 0.0))
    assert "scored more than one that stayed" in told(put(left, 9.0))
    assert "protected by its place" in told(put(newest, 9.0))
    assert "had left before" in told(put(gone, np.inf))
    assert "of other layers" in told(lambda x: x.__init__(x.cut[:1]))
    assert "lost leaves the interval" in told(lambda x: x.lost.__setitem__((0, 0), 2.0))
    assert "lost does not cover" in told(lambda x: x.lost.__setitem__((0, 0), np.nan))
