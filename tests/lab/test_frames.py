"""Tables of a trace: a row for each thing, and figures that agree with the summary."""

from __future__ import annotations

import pytest
from decodescope.engine.trace import Trace
from decodescope.engine.trace.summary import summarise

from .runs import METHODS, known, run


@pytest.mark.parametrize("name", METHODS)
def test_tables_agree_with_the_summary(name: str) -> None:
    trace = known(name)
    s, steps, decisions = summarise(trace), trace.frame("steps"), trace.frame("decisions")
    assert len(steps) == s.steps and steps["tokens"].sum() == s.tokens
    assert steps["drafted"].sum() == s.drafted and steps["accepted"].sum() == s.accepted
    assert len(decisions) == steps["tried"].sum()
    if s.acceptance is not None:
        assert decisions["ok"].mean() == pytest.approx(s.acceptance)
        assert len(decisions) > 10, "the test needs decisions"
    passes = trace.frame("passes")
    assert len(passes[(passes["lane"] == "target") & (passes["phase"] == "verify")]) == s.target_passes
    cache = trace.frame("cache")
    assert cache[cache["lane"] == "target"]["held_bytes"].iloc[-1] == s.kv_bytes_held


def test_a_decision_is_the_trial_as_it_was_recorded() -> None:
    trace = known("tree")
    for row in trace.frame("decisions").itertuples():
        step = trace.steps[row.step]
        assert step.trials is not None and step.draft is not None
        at = step.trials.node.index(row.node)
        assert (row.p, row.r, row.q, row.ok) == (step.trials.p[at], step.trials.r[at], step.trials.q[at], step.trials.ok[at])
        assert row.token == step.draft.tokens[row.node] and row.text == trace.piece(row.token)
        assert row.depth == 1 if row.parent == -1 else row.depth > 1


def test_units_stand_in_the_names_of_times_and_sizes() -> None:
    names = {c for table in ("steps", "cache", "passes") for c in known("chain").frame(table).columns}
    assert {"wall_us", "draft_us", "verify_us", "held_bytes", "full_bytes"} <= names


def test_what_was_not_recorded_is_missing() -> None:
    trace = run("chain", count=8, level="counts")
    assert trace.frame("decisions").empty and trace.frame("steps")["tried"].isna().all()


def test_a_table_of_no_steps_has_its_columns() -> None:
    empty = Trace([known("chain").header])
    assert empty.frame("steps").empty and list(empty.frame("steps").columns) == list(known("chain").frame("steps").columns)


def test_an_unknown_table_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="steps, decisions, cache, passes"):
        known("chain").frame("step")  # type: ignore[arg-type]
